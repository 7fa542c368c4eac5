"""A program that trains, is killed while it writes a checkpoint, and resumes.

Each attempt is a forked child, so that an attempt costs no start of Python.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from lab.tests.tiny import training

from ncscope_lab import execution
from ncscope_lab.runs.resources import Resources


def attempt(folder: Path) -> None:
    """Run, or go on, saving the place after every step."""
    execution.run(
        "tiny/training", out=folder, resume=True, resources=Resources(checkpoint_interval=0.0)
    )


def forked(folder: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            attempt(folder)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def ended(child: int) -> int:
    return os.waitpid(child, 0)[1]


def half_written(folder: Path) -> set[str]:
    """Names of what saves are writing, or were killed writing."""
    place = folder / "checkpoints" / "heavy"
    files = place.iterdir() if place.exists() else ()
    return {file.name for file in files if file.suffix == ".part"}


def in_a_save(child: int, folder: Path, saves: int) -> int:
    """Kill in the middle of the save with this number from now on, where the run gets there."""
    stale, seen = half_written(folder), set[str]()
    while len(seen) < saves:
        over, status = os.waitpid(child, os.WNOHANG)
        if over:
            return status
        seen |= half_written(folder) - stale
    os.kill(child, signal.SIGKILL)
    return ended(child)


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    execution.find_experiment = lambda name: training.HEAVY
    assert ended(forked(folder / "whole")) == 0
    for kill in range(1, kills + 1):
        status = in_a_save(forked(folder / "killed"), folder / "killed", saves=2)
        halves = len(half_written(folder / "killed"))
        finished = (folder / "killed/finished.json").exists()
        print(f"kill {kill}: status {status}, left {halves} half-written, finished {finished}")
    assert ended(forked(folder / "killed")) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
