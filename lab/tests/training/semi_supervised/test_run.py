"""Runs with few labels: no label leaks, a stopped run goes on exactly, events hold what is said."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lab.tests.observed import gathered
from lab.tests.training.semi_supervised.runs import short
from torch import Tensor

from ncscope.errors import InputError
from ncscope_lab.observations import Results
from ncscope_lab.runs.reproducible import reproducible
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.semi_supervised.run import (
    FewLabelsBench,
    choose_images_to_measure,
    few_labels_bench_events,
    few_labels_events,
    prepare_few_labels,
)
from ncscope_lab.training.semi_supervised.settings import FewLabels
from ncscope_lab.training.semi_supervised.unlabelled import UNKNOWN
from tests.pace import others_slow

INFORMED = short(mutual_information=0.5)
FIXED = short("fixmatch", threshold=0.12)
COUNTED = short("flexmatch", threshold=0.13)


def trained(
    run: FewLabelsBench, resources: Resources | None = None
) -> tuple[dict[str, Tensor], Results]:
    """The learner's tensors at the end, and what was measured."""
    with reproducible(0):
        results = gathered(few_labels_bench_events(run, resources or Resources()))
    learner = run.bench.learner
    assert learner.average is not None
    modules = {"model": learner.model, "average": learner.average}
    if learner.memory is not None:
        modules["memory"] = learner.memory
    return {
        f"{part} {name}": value
        for part, module in modules.items()
        for name, value in module.state_dict().items()
    }, results


def prepared(settings) -> FewLabelsBench:
    with reproducible(0):
        return prepare_few_labels(settings, Resources())


def permuted(run: FewLabelsBench) -> FewLabelsBench:
    """The same run, the true labels of its unlabelled images shuffled."""
    order = torch.randperm(len(run.unlabelled), generator=torch.Generator().manual_seed(1))
    other = run.unlabelled.subset(torch.arange(len(order)))
    other.labels = run.unlabelled.labels[order]
    return replace(run, unlabelled=other)


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, Tensor], Results]:
    """A run that nobody stopped."""
    return trained(prepared(INFORMED))


@pytest.mark.parametrize(
    "settings",
    [INFORMED, pytest.param(FIXED, marks=pytest.mark.slow), COUNTED],
    ids=["freematch with MI", "fixmatch", "flexmatch"],
)
def test_true_labels_of_unlabelled_images_never_reach_training(settings, whole) -> None:
    plain, rows = whole if settings is INFORMED else trained(prepared(settings))
    other, others = trained(permuted(prepared(settings)))
    assert all(torch.equal(value, other[name]) for name, value in plain.items())
    seen = [
        [row["pseudo_label_accuracy"] for row in found if row.split == "unlabelled"]
        for found in (rows, others)
    ]
    assert seen[0] != seen[1]  # they were shuffled
    for key in ("mask_rate", "histogram_3", "loss"):
        assert rows[-1][key] == others[-1][key]


@pytest.mark.slow
def test_labels_and_unlabelled_images_do_reach_training(whole) -> None:
    plain, _ = whole
    run = prepared(INFORMED)
    run.bench.data.train.labels = run.bench.data.train.labels.roll(1)
    relabelled, _ = trained(run)
    fewer, _ = trained(replace(prepared(INFORMED), unlabelled=run.unlabelled.draw_balanced(100)))
    for other in (relabelled, fewer):
        assert not torch.equal(plain["model classifier.weight"], other["model classifier.weight"])


def stopped_at(stop: int, settings: FewLabels, folder: Path) -> tuple[dict[str, Tensor], Results]:
    """A run that dies in or after a step, and goes on from its checkpoint."""
    stopped = prepared(settings)
    # The place is kept after every step.
    resources = Resources(checkpoints=folder / "stopped", checkpoint_interval=0.0)
    learner = stopped.bench.learner

    def die(model: torch.nn.Module, inputs: object) -> None:
        if model.training and learner.step == stop:
            raise KeyboardInterrupt

    handle = learner.model.register_forward_pre_hook(die)
    with pytest.raises(KeyboardInterrupt):
        trained(stopped, resources)
    handle.remove()
    return trained(prepared(settings), resources)


def equal(one: tuple[dict[str, Tensor], Results], other: tuple[dict[str, Tensor], Results]) -> None:
    assert all(torch.equal(value, other[0][name]) for name, value in one[0].items())
    assert repr(list(one[1])) == repr(list(other[1]))
    assert repr(one[1].measurements) == repr(other[1].measurements)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [2, 3])  # in an epoch, at its end
def test_a_run_stopped_anywhere_goes_on_exactly(stop: int, whole, tmp_path: Path) -> None:
    equal(whole, stopped_at(stop, INFORMED, tmp_path))


NEW = {
    "pi-model": {},
    "pseudo-label": {"threshold": 0.11},
    "mean-teacher": {},
    "uda": {"threshold": 0.11, "annealing": "linear"},
    "flexmatch": {"threshold": 0.13},
    "softmatch": {},
}
"""Settings under which a network that has hardly learnt trusts some pseudo-labels."""


# One with a state of its own.
@pytest.mark.parametrize("name", others_slow(NEW, "softmatch"))
def test_each_method_trains_and_goes_on_exactly(name: str, tmp_path: Path) -> None:
    settings = short(name, **NEW[name])
    plain = trained(prepared(settings))
    equal(plain, stopped_at(4, settings, tmp_path))
    last = plain[1][-1]
    assert last["mask_rate"] > 0
    assert math.isfinite(last["loss"])
    supervised, _ = trained(prepared(short("supervised")))
    key = "model classifier.weight"
    assert not torch.equal(plain[0][key], supervised[key])
    assert "memory progress.seen" not in plain[0] or plain[0]["memory progress.seen"] == 6


@pytest.mark.slow
def test_rows_are_of_held_out_images_and_of_pseudo_labels() -> None:
    settings = short(groups=("nc4", "information"))
    with reproducible(0):
        rows = gathered(few_labels_events(settings, Resources()))
    assert [(row.epoch, row.split) for row in rows] == [
        (epoch, split) for epoch in (0, 2) for split in ("test", "unlabelled")
    ]
    test, pseudo = rows[-2:]
    assert test["error"] == 1 - test["accuracy"]
    assert {"mir", "hdr"} <= set(test.values)
    assert [(each.step, each.split) for each in rows.measurements] == [(0, "test"), (2, "test")]
    shares = [pseudo[f"histogram_{k}"] for k in range(10)]
    assert sum(shares) == pytest.approx(1)
    thresholds = [pseudo[f"threshold_{k}"] for k in range(10)]
    assert max(thresholds) == pytest.approx(pseudo["threshold"])
    assert 0.1 < pseudo["threshold"] < 1
    assert rows[1]["threshold"] == pytest.approx(0.1)
    assert rows[1]["mask_rate"] == 1
    assert math.isfinite(pseudo["loss"])


def test_pseudo_labels_are_measured_on_images_as_they_are_in_the_pool() -> None:
    """Of STL-10's unlabelled images one in twenty-one has a label that is known."""
    run = prepared(short(measured=400))
    places = torch.arange(len(run.unlabelled))
    pool = run.unlabelled.subset(places)
    pool.labels = torch.where(places % 21 == 0, pool.labels, UNKNOWN)
    images = choose_images_to_measure(replace(run, unlabelled=pool))
    assert len(images) == 400
    assert int((images.labels != UNKNOWN).sum()) < 2 * 400 / 21
    everything = prepared(short())
    assert choose_images_to_measure(everything) is everything.unlabelled
    with pytest.raises(InputError, match=r"a subset of 1 to 1437 samples"):
        choose_images_to_measure(prepared(short(measured=2_000)))


@pytest.mark.slow
def test_supervised_runs_ignore_unlabelled_images() -> None:
    plain, rows = trained(prepared(short("supervised")))
    run = prepared(short("supervised"))
    other, _ = trained(replace(run, unlabelled=run.unlabelled.draw_balanced(100)))
    assert all(torch.equal(value, other[name]) for name, value in plain.items())
    assert {row.split for row in rows} == {"test"}


def test_labels_are_equally_many_of_each_class() -> None:
    labels = prepared(short(labels=30)).bench.data.train.labels
    assert labels.bincount().tolist() == [3] * 10
    with pytest.raises(InputError, match="multiple of 10"):
        prepare_few_labels(short(labels=15), Resources())
