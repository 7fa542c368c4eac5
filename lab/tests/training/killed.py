"""A program that trains, is killed at random moments or while it writes, and resumes.

Each attempt is a forked child, so that an attempt costs no start of Python.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from lab.tests.tiny import training

from ncscope_lab import execution
from ncscope_lab.runs.resources import Resources

EXPERIMENTS = {"random": training.EXPERIMENT, "writing": training.HEAVY}


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


def at_random(child: int, moments: random.Random, length: float) -> int:
    """Kill at a moment of the first eighth of what a whole run takes."""
    time.sleep(moments.uniform(0.02, 0.13) * length)
    os.kill(child, signal.SIGKILL)
    return ended(child)


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


def main(folder: Path, how: str, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    execution.find_experiment = lambda name: EXPERIMENTS[how]
    start = time.monotonic()
    assert ended(forked(folder / "whole")) == 0
    moments, length = random.Random(seed), time.monotonic() - start
    strike: Callable[[int], int] = partial(at_random, moments=moments, length=length)
    if how == "writing":
        strike = partial(in_a_save, folder=folder / "killed", saves=2)
    for kill in range(1, kills + 1):
        status = strike(forked(folder / "killed"))
        halves = len(half_written(folder / "killed"))
        finished = (folder / "killed/finished.json").exists()
        print(f"kill {kill}: status {status}, left {halves} half-written, finished {finished}")
    assert ended(forked(folder / "killed")) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
