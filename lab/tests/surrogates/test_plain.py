"""The plain model without decays and with a ReLU: gradient, minimum, and where descent ends."""

import pytest
import torch

from ncscope_lab.surrogates.descent import gradient_descent
from ncscope_lab.surrogates.plain import PlainUFM
from ncscope_lab.surrogates.ufm import UFM


def test_a_relu_does_not_change_the_minimum() -> None:
    sizes = (3, 4, 2, 0.05, 0.02)
    best = UFM(*sizes).minimiser()
    assert all(float(part.min()) >= 0 for part in best.point)
    value = float(PlainUFM(*sizes, activation="relu").objective(best.point))
    assert value == pytest.approx(best.objective, rel=1e-12)


def descended(problem: PlainUFM, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    start = problem.start(torch.Generator().manual_seed(0))
    ((_, (_, last)),) = gradient_descent(problem, start, 0.1, [steps])
    return start[1], last


def test_entries_that_start_negative_stay_negative_under_a_relu() -> None:
    for decay in (0.0, 0.02):
        start, last = descended(PlainUFM(3, 4, 2, decay, decay, "relu"), 500)
        assert bool((last[start < 0] < 0).all())
        assert bool((last[start > 0] != start[start > 0]).any())
    start, last = descended(PlainUFM(3, 4, 2, 0.0, 0.0), 500)
    assert bool((last[start < 0] > 0).any())


def test_without_decays_descent_fits_and_keeps_the_spread_of_a_class() -> None:
    problem = PlainUFM(3, 20, 4, 0.0, 0.0)
    _, last = descended(problem, 4000)
    within = last.unflatten(1, (3, 4)).var(2).sum()
    assert float(within) > 0.1
    ((_, point),) = gradient_descent(
        problem, problem.start(torch.Generator().manual_seed(0)), 0.1, [4000]
    )
    assert float(problem.objective(point)) < 1e-6
