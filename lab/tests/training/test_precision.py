"""Mixed precision is of the products of training alone: weights and measurements keep theirs."""

import math
from functools import cache

import pytest
import torch

from ncscope.measurement.records import Measurement
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.optimisation import Optimisation
from ncscope_lab.training.settings import Training
from ncscope_lab.training.supervised import Bench, _epochs, measure_splits, prepare_bench


def bench(precision: str) -> Bench:
    settings = Training(
        data="digits",
        network="small-resnet",
        optimisation=Optimisation(epochs=1, batch_size=100, precision=precision),
        balanced=200,
        measured=50,
        layers=(),
        groups=("nc1",),
    )
    with torch.random.fork_rng():
        return prepare_bench(settings, Resources())


@cache
def trained(precision: str) -> tuple[Bench, EpochEnd, list[Measurement], list[Measurement]]:
    """A run of two steps, and what is measured before and after."""
    run = bench(precision)
    with torch.random.fork_rng():
        ends = _epochs(run, lambda: None)
        before = measure_splits(run, next(ends))
        end = next(ends)
        return run, end, before, measure_splits(run, end)


@pytest.mark.slow
def test_the_loss_is_finite_and_close_to_full_precisions() -> None:
    (_, half, *_), (_, full, *_) = trained("bf16-mixed"), trained("32-true")
    assert math.isfinite(half.loss)
    assert half.loss != full.loss
    assert abs(half.loss - full.loss) < 2**-6 * full.loss  # two roundings of 8 bits


def test_weights_gradients_and_momentum_are_of_full_precision() -> None:
    learner = trained("bf16-mixed")[0].learner
    held = [
        *learner.model.state_dict().values(),
        *(state["momentum_buffer"] for state in learner.optimiser.state.values()),
    ]
    assert {value.dtype for value in held if value.is_floating_point()} == {torch.float32}


def test_before_training_the_measurements_are_those_of_full_precision() -> None:
    (_, _, half, after), (_, _, full, _) = trained("bf16-mixed"), trained("32-true")
    assert half == full
    assert {each.split for each in after} == {"train", "test"}
    assert all(
        math.isfinite(row.metrics["nc1"]) for each in after for row in each.model_record.layers
    )
