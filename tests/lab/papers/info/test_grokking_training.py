"""What a run of grokking measures, and that it goes on where it was stopped."""

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from ncscope.errors import InputError
from ncscope.lab.observations import Heartbeat, Recorded
from ncscope.lab.papers.info.grokking_training import (
    Grokking,
    cross_entropy,
    grokking_events,
    prepared,
)
from ncscope.lab.runs.resources import Resources
from ncscope.lab.runs.settings import settings
from ncscope.metrics.information import pair_entropies
from tests.lab.observed import gathered
from tests.lab.training.test_killed import assert_as_never_killed, killed

TINY = Grokking(
    modulus=7,
    train_share=0.5,
    width=32,
    hidden=64,
    steps=40,
    learning_rate=0.01,
    measurements=4,
    accuracy_measurements=6,
    batch_size=8,
)


def recorded(resources: Resources, seed: int = 0) -> list[Recorded]:
    events = grokking_events(TINY, seed, resources)
    return [event for event in events if not isinstance(event, Heartbeat)]


def test_information_at_some_of_the_steps_at_which_accuracy_is_measured() -> None:
    found = gathered(grokking_events(TINY, 0, Resources()))
    assert TINY.informed == [0, 1, 6, 40]
    assert TINY.accuracy_steps == [0, 1, 3, 6, 16, 40]
    for split in ("train", "test"):
        own = [row for row in found if row.split == split]
        assert [row.step for row in own] == TINY.accuracy_steps
        assert [row.step for row in own if "mir" in row] == TINY.informed
        for key in ("hdr", "mir_centered", "mir_means", "mir_batch", "hdr_batch_spread"):
            assert all(key in row for row in own if "mir" in row)
    train, test = found[-2:]
    assert train["accuracy"] == 1
    assert float(test["accuracy"]) < 1
    assert float(train["loss"]) < 0.01 < float(test["loss"])


def test_what_is_measured_is_the_stream_against_the_unembedding() -> None:
    bench = prepared(TINY, 3, Resources().fabric)
    (pairs, labels), model = bench.data.train, bench.learner.model
    with torch.no_grad():
        features = model.features(pairs)
        loss = functional.cross_entropy(model(pairs).double(), labels)
    first, *_ = gathered(grokking_events(TINY, 3, Resources()))
    expected = pair_entropies(features, model.head.weight.detach()[labels])
    assert first.split == "train"
    assert math.isclose(float(first["mir"]), expected.mir, rel_tol=1e-6)
    assert math.isclose(float(first["hdr"]), expected.hdr, rel_tol=1e-6)
    assert math.isclose(float(first["loss"]), float(loss), rel_tol=1e-9)


def test_every_parameter_decays_apart_from_its_gradient() -> None:
    bench = prepared(TINY, 0, Resources().fabric)
    (group,) = bench.learner.optimiser.param_groups
    assert len(group["params"]) == len(list(bench.learner.model.parameters()))
    assert group["weight_decay"] == 1
    assert group["lr"] == 0.01
    assert group["betas"] == (0.9, 0.98)


def test_the_loss_of_what_is_known_well_does_not_round_to_nothing() -> None:
    logits = torch.tensor([[30.0, 0.0, 0.0]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([0]))
    assert math.isclose(float(loss.detach()), 2 * math.exp(-30), rel_tol=1e-2)
    loss.backward()
    assert float(logits.grad[0, 0]) < 0


@pytest.mark.slow
def test_a_run_stopped_anywhere_goes_on_to_the_same_results(tmp_path: Path) -> None:
    whole = recorded(Resources(), seed=2)
    resources = Resources(checkpoints=tmp_path, checkpoint_interval=0.0)
    for stop in (3, 30):  # among the measurements; in the middle of the steps
        begun = grokking_events(TINY, 2, resources)
        for _ in range(stop):
            next(begun)
        del begun
    assert recorded(resources, seed=2) == whole
    assert next(grokking_events(TINY, 3, Resources())) != whole[0]


@pytest.mark.slow
def test_a_run_killed_ten_times_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    said = killed(tmp_path, "grokking", kills=10)
    assert said.count("status 9,") >= 6, said
    assert_as_never_killed(tmp_path, ("seed 0", "seed 1"), said)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"width": 30}, "a width that the heads share"), ({"modulus": 11}, "pairs for two batches")],
)
def test_sizes_that_do_not_fit_are_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        settings(Grokking, given)
