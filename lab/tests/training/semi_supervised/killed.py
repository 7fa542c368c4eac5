"""A program that trains by a method with few labels, is killed with SIGKILL, and resumes.

Each attempt is a forked child, so that an attempt costs no start of Python.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from lab.tests.training.semi_supervised.runs import short

from ncscope_lab.observations import Heartbeat, plain_event
from ncscope_lab.runs.reproducible import reproducible
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.semi_supervised.run import few_labels_events

SETTINGS = {
    "freematch": {"mutual_information": 0.5},
    "flexmatch": {"threshold": 0.2},
    "mean-teacher": {},
}


def attempt(folder: Path, name: str) -> None:
    """Run, or go on, saving the place after every step."""
    settings = short(name, steps_per_epoch=20, **SETTINGS[name])
    with reproducible(0):
        resources = Resources(checkpoints=folder, checkpoint_interval=0.0)
        events = [
            plain_event(event)
            for event in few_labels_events(settings, resources)
            if not isinstance(event, Heartbeat)
        ]
    (folder / "events.json").write_text(json.dumps(events))


def forked(folder: Path, name: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            attempt(folder, name)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return child


def kept(checkpoint: Path) -> int | None:
    """The step that a resumed run starts from."""
    if not checkpoint.exists():
        return None
    return torch.load(checkpoint, weights_only=True)["learner"]["place"]["step"]


def await_step(checkpoint: Path, step: int) -> None:
    """Wait until the run has come to a step: by time alone a loaded machine would end it first."""
    end = time.monotonic() + 100
    while (kept(checkpoint) or 0) < step and time.monotonic() < end:
        time.sleep(0.01)


def main(folder: Path, kills: int, name: str) -> None:
    torch.set_num_threads(1)
    attempt(folder / "whole", name)  # and imports what the children will need
    moments, checkpoint = random.Random(0), folder / "killed/checkpoint.pt"
    for _ in range(kills):
        child = forked(folder / "killed", name)
        await_step(checkpoint, (kept(checkpoint) or 0) + moments.randint(1, 3))
        time.sleep(moments.uniform(0, 0.02))  # to the midst of a step, or of a save
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print(f"status {status} after step {kept(checkpoint)}")
    assert os.waitpid(forked(folder / "killed", name), 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
