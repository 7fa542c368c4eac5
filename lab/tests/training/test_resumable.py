"""A run's events and heartbeats; checkpoints of other runs, and disks that fill up."""

import io
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ncscope.errors import InputError
from ncscope_lab.observations import Event, Heartbeat, Observation
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.learner import Learner
from ncscope_lab.training.loop import EpochEnd, supervised, train
from ncscope_lab.training.optimisation import Optimisation, learner
from ncscope_lab.training.resumable import AfterStep, resumable_events

EPOCHS = 3
DATA = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2


def classifier(hidden: int = 4, **given) -> Learner:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, hidden), nn.Linear(hidden, 2))
    return learner(model, Optimisation(epochs=EPOCHS, learning_rate=0.1, **given))


def measured(learns: Learner, end: EpochEnd) -> list[Observation]:
    weight = float(learns.model[0].weight.detach().sum())
    return [Observation(end.step, end.epoch, values={"weight": weight})]


def events(learns: Learner, place: Path, seconds: float = 0.0, run: str = "") -> Iterator[Event]:
    resources = Resources(checkpoints=place, checkpoint_interval=seconds, run=run)

    def epochs(after_step: AfterStep) -> Iterator[EpochEnd]:
        def batches(epoch: int, first: int):
            return list(zip(*(part.split(4) for part in DATA), strict=True))[first:]

        loss = supervised(nn.functional.cross_entropy)
        return train(resources.fabric, learns, batches, loss, EPOCHS, after_step=after_step)

    return resumable_events(learns, epochs, partial(measured, learns), EPOCHS, resources)


def epoch_of(event: Event) -> int | None:
    """The epoch of an observation; None of a heartbeat."""
    return event.epoch if isinstance(event, Observation) else None


def kept(found: Iterable[Event]) -> list[Event]:
    """The events that are no heartbeats."""
    return [event for event in found if not isinstance(event, Heartbeat)]


def test_a_heartbeat_an_epoch_also_for_epochs_of_before(tmp_path: Path) -> None:
    whole = list(events(classifier(), tmp_path / "whole"))
    assert list(map(epoch_of, whole)) == [0, 1, None, 2, None, 3, None]
    stopped = events(classifier(), tmp_path / "stopped")
    for _ in range(4):
        next(stopped)
    del stopped
    again = list(events(classifier(), tmp_path / "stopped"))
    assert list(map(epoch_of, again)) == [0, 1, 2, None, None, 3, None]
    assert kept(again) == kept(whole)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"hidden": 5}, r"model's 0.weight: \(4, 3\) there, \(5, 3\) here, in .*checkpoint.pt"),
        ({"average": 0.5}, r"average's n_averaged: none there, \(\) here, in"),
        ({"optimiser": "adamw"}, r"groups: \[4\] there, \[2, 2\] here, in"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_line(tmp_path, other, said) -> None:
    list(events(classifier(), tmp_path))
    with pytest.raises(InputError, match=said) as caught:
        list(events(classifier(**other), tmp_path))
    assert "\n" not in str(caught.value)


def test_the_checkpoint_of_another_part_is_refused(tmp_path: Path) -> None:
    """Two parts of one layout: nothing else tells their checkpoints apart."""
    for seed in (1, 2):
        list(events(classifier(), tmp_path / f"seed {seed}"))
    other = (tmp_path / "seed 2" / "checkpoint.pt").read_bytes()
    (tmp_path / "seed 1" / "checkpoint.pt").write_bytes(other)
    with pytest.raises(InputError, match=r"seed 1 under .*, found that of .*seed 2 under these"):
        list(events(classifier(), tmp_path / "seed 1"))


def test_a_checkpoint_under_other_settings_is_refused(tmp_path: Path) -> None:
    """It may be of one layout, and hold a learning rate that is now another."""
    stopped = events(classifier(), tmp_path, run="a")
    next(stopped)
    with pytest.raises(InputError, match=r"found that of .* under other settings, in .*; remove"):
        list(events(classifier(), tmp_path, run="b"))
    assert list(map(epoch_of, kept(events(classifier(), tmp_path, run="a")))) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "state",
    [{}, {"learner": 3}, {"learner": {}}, {"learner": {"model": [1]}, "events": []}],
)
def test_a_mapping_that_is_no_checkpoint_is_refused(state, tmp_path: Path) -> None:
    list(events(classifier(), tmp_path))
    known = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    owner = {"part": known["part"], "run": known["run"]}
    for added in ({}, owner, owner | {"events": 3}):
        torch.save(state | added, tmp_path / "checkpoint.pt")
        with pytest.raises(InputError, match=r"checkpoint\.pt(: no learner and events)?; "):
            list(events(classifier(), tmp_path))


NO_EVENTS = (
    3,
    {},
    {"kind": "observation"},
    {"kind": "observation", "step": "one", "epoch": 1},
    {"kind": "observation", "step": 1, "epoch": 1, "values": 3},
    {"kind": "observation", "step": 1, "epoch": 1, "colour": "red"},
    {"kind": "measurement", "probe": 3},
)


@pytest.mark.parametrize("event", NO_EVENTS, ids=str)
@pytest.mark.usefixtures("unchecked_signatures")
def test_a_checkpoint_whose_events_are_none_is_refused(event: object, tmp_path: Path) -> None:
    list(events(classifier(), tmp_path))
    file = tmp_path / "checkpoint.pt"
    state = torch.load(file, weights_only=True)
    torch.save(state | {"events": [event]}, file)
    with pytest.raises(InputError, match=r"checkpoint\.pt: events that cannot be read; "):
        list(events(classifier(), tmp_path))


def test_a_checkpoint_of_a_learner_with_other_parts_is_refused(tmp_path: Path) -> None:
    list(events(classifier(), tmp_path))
    file = tmp_path / "checkpoint.pt"
    state = torch.load(file, weights_only=True)
    del state["learner"]["schedule"]
    torch.save(state, file)
    with pytest.raises(InputError, match=r"parts: \['average', 'memory', .* there, .* here, in"):
        list(events(classifier(), tmp_path))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_save_that_the_disk_refuses_leaves_the_last_one_whole(tmp_path: Path) -> None:
    begun = events(classifier(), tmp_path)
    assert epoch_of(next(begun)) == 0
    last = (tmp_path / "checkpoint.pt").read_bytes()
    with (
        files_of_at_most(len(last) - 100),
        pytest.raises(InputError, match=r"to write .*checkpoint.pt, found File too large; mend"),
    ):
        list(begun)
    assert (tmp_path / "checkpoint.pt").read_bytes() == last
    assert not list(tmp_path.glob("*.part"))
    assert list(map(epoch_of, kept(events(classifier(), tmp_path)))) == [0, 1, 2, 3]


def test_room_is_asked_for_what_the_optimiser_will_hold(tmp_path: Path, monkeypatch) -> None:
    start = classifier(optimiser="adamw")
    buffer = io.BytesIO()
    torch.save(start.state(), buffer)
    weights = sum(parameter.nbytes for parameter in start.model.parameters())
    needed = 11 * (len(buffer.getvalue()) + 2 * weights) // 5
    disk = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr("ncscope_lab.training.checkpoint.shutil.disk_usage", lambda path: disk)
    with pytest.raises(InputError, match=f"expected {needed:,} bytes free for checkpoints"):
        next(events(start, tmp_path))
    disk.free += 1
    assert epoch_of(next(events(start, tmp_path))) == 0
