"""A program that trains with few labels, is killed with SIGKILL, and resumes.

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

from ncscope.lab.observations import Heartbeat, plain_event
from ncscope.lab.runs.reproducible import reproducible
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.semi_supervised.run import few_labels_events
from tests.lab.training.semi_supervised.runs import short


def attempt(folder: Path) -> None:
    """Run, or go on, saving the place after every step."""
    settings = short(mutual_information=0.5, steps_per_epoch=20)
    with reproducible(0):
        resources = Resources(checkpoints=folder, checkpoint_interval=0.0)
        events = [
            plain_event(event)
            for event in few_labels_events(settings, resources)
            if not isinstance(event, Heartbeat)
        ]
    (folder / "events.json").write_text(json.dumps(events))


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


def kept(checkpoint: Path) -> int | None:
    """The step that a resumed run starts from."""
    if not checkpoint.exists():
        return None
    return torch.load(checkpoint, weights_only=True)["learner"]["place"]["step"]


def main(folder: Path, kills: int) -> None:
    torch.set_num_threads(1)
    attempt(folder / "whole")  # and imports what the children will need
    start = time.monotonic()
    assert os.waitpid(forked(folder / "forked"), 0)[1] == 0
    length = time.monotonic() - start
    moments = random.Random(0)
    for _ in range(kills):
        child = forked(folder / "killed")
        time.sleep(moments.uniform(0.05, 0.4) * length)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        print(f"status {status} after step {kept(folder / 'killed/checkpoint.pt')}")
    assert os.waitpid(forked(folder / "killed"), 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
