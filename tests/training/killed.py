"""A program that trains a tiny recipe, is killed at random moments, and resumes.

Each attempt is a forked child, so that an attempt costs no start of Python.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from ncscope.api import studies
from ncscope.training.work import Work
from tests.recipes import tiny_training


def attempt(folder: Path) -> None:
    """Run, or go on, saving the place after every step."""
    studies.reproduce("tiny/training", out=folder, resume=True, work=Work(seconds=0.0))


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


def main(folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    studies.experiment = lambda name: tiny_training.RECIPE
    start = time.monotonic()
    _, status = os.waitpid(forked(folder / "whole"), 0)
    assert status == 0
    length = time.monotonic() - start
    moments = random.Random(seed)
    done = 0
    while done < kills:
        child = forked(folder / "killed")
        time.sleep(moments.uniform(0.02, 0.13) * length)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        done += 1
        print(
            f"kill {done}: status {status}, finished {(folder / 'killed/finished.json').exists()}"
        )
    _, status = os.waitpid(forked(folder / "killed"), 0)
    assert status == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
