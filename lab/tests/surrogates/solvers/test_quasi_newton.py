"""The fast solver: known minima, to rounding; flat directions; when it stops."""

import pytest
import torch
from lab.tests.surrogates.solvers.bowl import Bowl, Valley

from ncscope_lab.surrogates.descent import quasi_newton
from ncscope_lab.surrogates.ufm import UFM


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_a_bowl_is_left_at_its_lowest_point(spread: float) -> None:
    bowl = Bowl(torch.logspace(0, 1, 12, base=spread).double().view(3, 4), centre=2.0)
    found = quasi_newton(bowl, bowl.start(seeded()))
    assert found.gradient_norm < 1e-10
    assert found.objective < 1e-20
    assert all(torch.allclose(part, torch.full((3, 4), 2.0).double()) for part in found.point)


def test_flat_directions_are_left_alone() -> None:
    bowl = Bowl(torch.tensor([[0.0, 1.0, 3.0]]).double())
    start = bowl.start(seeded())
    found = quasi_newton(bowl, start)
    assert found.gradient_norm < 1e-14
    for part, begin in zip(found.point, start, strict=True):
        assert abs(float(part[0, 0] - begin[0, 0])) < 1e-12


def test_a_curved_valley() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    found = quasi_newton(Valley(), (-1.2 * one, one))
    assert abs(float(found.point[0]) - 1) < 1e-12
    assert found.gradient_norm < 1e-12


def test_newton_steps_go_on_where_the_objective_no_longer_changes() -> None:
    """BFGS alone ends near 1e-9 here, where a step changes the objective by less than rounding."""
    problem = UFM(4, 6, 5, 0.02, 0.03, 0.0)
    for _ in range(3):
        assert quasi_newton(problem, problem.start(seeded())).gradient_norm < 1e-14


def test_a_limit_is_kept_and_evaluations_are_counted() -> None:
    bowl = Bowl(torch.logspace(0, 4, 12).double().view(3, 4), centre=2.0)
    start = bowl.start(seeded())
    short = quasi_newton(bowl, start, limit=3)
    assert short.gradient_norm > 1e-3
    assert short.evaluations == bowl.evaluations < 12


def test_a_minimum_is_not_left() -> None:
    bowl = Bowl(torch.ones(2, 2).double(), centre=0.0)
    zero = torch.zeros(2, 2, dtype=torch.float64)
    found = quasi_newton(bowl, (zero, zero))
    assert found.gradient_norm == found.objective == 0
    assert found.evaluations <= 4
