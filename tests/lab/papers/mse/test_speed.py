"""Epochs to a value of NC1, and the fitted rate, of made courses."""

import math

import pytest

from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.difficulty import growth
from ncscope.lab.papers.mse.speed import epochs_to, exponent


def course(values: dict[int, float]) -> list[Observation]:
    return [Observation(epoch, epoch, values={"nc1": value}) for epoch, value in values.items()]


@pytest.mark.parametrize(
    ("level", "epoch"), [(10.0, 2.0), (1.0, 4.0), (0.1, 7.0), (0.01, 10.0), (100.0, math.nan)]
)
def test_epochs_to_a_value_are_interpolated_on_its_logarithm(level: float, epoch: float) -> None:
    path = course({0: 100.0, 4: 1.0, 10: 0.01})
    assert epochs_to(path, level) == pytest.approx(epoch, nan_ok=True)


def test_the_first_of_several_passages_counts() -> None:
    assert epochs_to(course({0: 10.0, 2: 0.1, 4: 10.0, 6: 0.1}), 1.0) == pytest.approx(1)
    assert math.isnan(epochs_to(course({0: 10.0, 2: math.nan}), 1.0))
    assert math.isnan(epochs_to(course({0: 10.0, 2: 1.0}), math.nan))


def test_the_rate_is_the_exponent_of_a_power_of_the_epoch() -> None:
    path = course({0: 7.0} | {epoch: 5 * epoch**-1.5 for epoch in (1, 3, 10, 30)})
    assert exponent(path) == pytest.approx(1.5)
    assert math.isnan(exponent(path[:2]))
    assert math.isnan(exponent(course({1: 1.0, 2: 0.0})))


def test_growth_needs_positive_values() -> None:
    assert growth([(0, 3.0), (1, 6.0), (2, 12.0)]) == pytest.approx(2)
    assert math.isnan(growth([(0, 3.0)]))
    assert math.isnan(growth([(0, 3.0), (1, math.nan)]))
