"""A run's rows and signs of life; checkpoints of other runs, and disks that fill up."""

import io
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ncscope.errors import InputError
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.learner import Learner
from ncscope.lab.training.loop import EpochEnd, supervised, train
from ncscope.lab.training.optimisation import Optimisation, learner
from ncscope.lab.training.resumable import AfterStep, resumable_rows
from ncscope.probing.records import Row

EPOCHS = 3
DATA = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2


def classifier(hidden: int = 4, **given) -> Learner:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, hidden), nn.Linear(hidden, 2))
    return learner(model, Optimisation(epochs=EPOCHS, learning_rate=0.1, **given))


def measured(learns: Learner, end: EpochEnd) -> list[Row]:
    weight = float(learns.model[0].weight.detach().sum())
    return [{"step": end.step, "epoch": end.epoch, "weight": weight}]


def rows(learns: Learner, place: Path, seconds: float = 0.0, run: str = "") -> Iterator[Row]:
    resources = Resources(checkpoints=place, checkpoint_interval=seconds, run=run)

    def epochs(after_step: AfterStep) -> Iterator[EpochEnd]:
        def batches(epoch: int, first: int):
            return list(zip(*(part.split(4) for part in DATA), strict=True))[first:]

        loss = supervised(nn.functional.cross_entropy)
        return train(resources.fabric, learns, batches, loss, EPOCHS, after_step=after_step)

    return resumable_rows(learns, epochs, partial(measured, learns), EPOCHS, resources)


def test_a_sign_of_life_an_epoch_also_for_epochs_of_before(tmp_path: Path) -> None:
    whole = list(rows(classifier(), tmp_path / "whole"))
    assert [row.get("epoch") for row in whole] == [0, 1, None, 2, None, 3, None]
    stopped = rows(classifier(), tmp_path / "stopped")
    for _ in range(4):
        next(stopped)
    del stopped
    again = list(rows(classifier(), tmp_path / "stopped"))
    assert [row.get("epoch") for row in again] == [0, 1, 2, None, None, 3, None]
    assert [row for row in again if row] == [row for row in whole if row]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"hidden": 5}, r"model's 0.weight: \(4, 3\) there, \(5, 3\) here, in .*checkpoint.pt"),
        ({"average": 0.5}, r"average's n_averaged: none there, \(\) here, in"),
        ({"optimiser": "adamw"}, r"groups: \[4\] there, \[2, 2\] here, in"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_line(tmp_path, other, said) -> None:
    list(rows(classifier(), tmp_path))
    with pytest.raises(InputError, match=said) as caught:
        list(rows(classifier(**other), tmp_path))
    assert "\n" not in str(caught.value)


def test_the_checkpoint_of_another_part_is_refused(tmp_path: Path) -> None:
    """Two parts of one layout: nothing else tells their checkpoints apart."""
    for seed in (1, 2):
        list(rows(classifier(), tmp_path / f"seed {seed}"))
    other = (tmp_path / "seed 2" / "checkpoint.pt").read_bytes()
    (tmp_path / "seed 1" / "checkpoint.pt").write_bytes(other)
    with pytest.raises(InputError, match=r"seed 1 under .*, found that of .*seed 2 under these"):
        list(rows(classifier(), tmp_path / "seed 1"))


def test_a_checkpoint_under_other_settings_is_refused(tmp_path: Path) -> None:
    """It may be of one layout, and hold a learning rate that is now another."""
    stopped = rows(classifier(), tmp_path, run="a")
    next(stopped)
    with pytest.raises(InputError, match=r"found that of .* under other settings, in .*; remove"):
        list(rows(classifier(), tmp_path, run="b"))
    assert [row["epoch"] for row in rows(classifier(), tmp_path, run="a") if row] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "state",
    [{}, {"learner": 3}, {"learner": {}}, {"learner": {"model": [1]}, "rows": []}],
)
def test_a_mapping_that_is_no_checkpoint_is_refused(state, tmp_path: Path) -> None:
    list(rows(classifier(), tmp_path))
    known = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    owner = {"part": known["part"], "run": known["run"]}
    for added in ({}, owner, owner | {"rows": 3}):
        torch.save(state | added, tmp_path / "checkpoint.pt")
        with pytest.raises(InputError, match=r"checkpoint\.pt(: no learner and rows)?; "):
            list(rows(classifier(), tmp_path))


def test_a_checkpoint_of_a_learner_with_other_parts_is_refused(tmp_path: Path) -> None:
    list(rows(classifier(), tmp_path))
    file = tmp_path / "checkpoint.pt"
    state = torch.load(file, weights_only=True)
    del state["learner"]["schedule"]
    torch.save(state, file)
    with pytest.raises(InputError, match=r"parts: \['average', 'memory', .* there, .* here, in"):
        list(rows(classifier(), tmp_path))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_save_that_the_disk_refuses_leaves_the_last_one_whole(tmp_path: Path) -> None:
    begun = rows(classifier(), tmp_path)
    assert next(begun)["epoch"] == 0
    kept = (tmp_path / "checkpoint.pt").read_bytes()
    with (
        files_of_at_most(len(kept) - 100),
        pytest.raises(InputError, match=r"to write .*checkpoint.pt, found File too large; mend"),
    ):
        list(begun)
    assert (tmp_path / "checkpoint.pt").read_bytes() == kept
    assert not list(tmp_path.glob("*.part"))
    assert [row["epoch"] for row in rows(classifier(), tmp_path) if row] == [0, 1, 2, 3]


def test_room_is_asked_for_what_the_optimiser_will_hold(tmp_path: Path, monkeypatch) -> None:
    start = classifier(optimiser="adamw")
    buffer = io.BytesIO()
    torch.save(start.state(), buffer)
    weights = sum(parameter.nbytes for parameter in start.model.parameters())
    needed = 11 * (len(buffer.getvalue()) + 2 * weights) // 5
    disk = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr("ncscope.lab.training.checkpoint.shutil.disk_usage", lambda path: disk)
    with pytest.raises(InputError, match=f"expected {needed:,} bytes free for checkpoints"):
        next(rows(start, tmp_path))
    disk.free += 1
    assert next(rows(start, tmp_path))["epoch"] == 0
