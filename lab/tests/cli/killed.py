"""A program that runs an experiment, kills it with SIGKILL at random moments, and resumes it.

Every attempt is a forked child, so that an attempt costs no start of Python.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from shutil import rmtree

import torch
from lab.tests.tiny import linear

from ncscope_lab import execution
from ncscope_lab.runs.resources import Resources


def fork_run(folder: Path) -> int:
    """Start a process that runs, or resumes, and saves rows and checkpoints after every step."""
    child = os.fork()
    if child == 0:
        try:
            execution.run(
                "tiny", out=folder, resume=True, resources=Resources(checkpoint_interval=0.0)
            )
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def wait_for(child: int) -> int:
    return os.waitpid(child, 0)[1]


def newest_file(folder: Path) -> str:
    """Name how far a killed run has come, by the last file that it wrote."""
    found = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".part"]
    newest = max(found, key=lambda file: file.stat().st_mtime_ns, default=folder)
    return str(newest.relative_to(folder))


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    execution.find_experiment = lambda name: linear.EXPERIMENT
    execution._SECONDS_BETWEEN_SAVES = 0.0
    assert wait_for(fork_run(folder / "first")) == 0  # imports what is imported late
    execution.run("tiny", out=folder / "whole", resources=Resources(checkpoint_interval=0.0))
    start = time.monotonic()
    assert wait_for(fork_run(folder / "timed")) == 0
    length, moments = time.monotonic() - start, random.Random(0)
    kill = 0
    while kill < kills:
        run = folder / f"killed {kill}"
        child, moment = fork_run(run), moments.uniform(0.01, 1.0) * length
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        if wait_for(child) != signal.SIGKILL:  # it was over: the machine is less busy than before
            length = moment
            rmtree(run)
            continue
        print(f"kill {kill} after {newest_file(run)}")
        assert wait_for(fork_run(run)) == 0, run
        length *= 1.02  # the machine may have more to do than before
        kill += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
