"""The extended model: the closed form of any depth, and what cannot beat it."""

import math
from itertools import product

import pytest
import torch
from lab.tests.surrogates.test_problems import deep, norm, seeded

from ncscope.errors import InputError
from ncscope_lab.surrogates.descent import quasi_newton
from ncscope_lab.surrogates.extended import ExtendedUFM, best_product, nonzero_limit

DEPTHS = (2, 3, 4, 5)
ACTIVATIONS = ("linear", "relu")


@pytest.mark.parametrize("factors", DEPTHS)
def test_point_at_collapse_is_stationary_with_its_objective(factors: int):
    for case in product(ACTIVATIONS, (2, 4, 7), (1.0, 4.0, 40.0)):
        problem = deep(factors, *case)
        point = problem.point_at_collapse()
        assert norm(problem.gradient(point)) < 1e-14, case
        assert abs(float(problem.objective(point)) - problem.objective_at_collapse()) < 1e-14, case
        assert all((part >= 0).all() for part in point), case


@pytest.mark.parametrize("factors", DEPTHS)
def test_factors_are_balanced(factors: int):
    problem = deep(factors)
    squares = [part.square().sum() for part in problem.point_at_collapse()]
    shares = [decay * square for decay, square in zip(problem.decays, squares, strict=True)]
    assert max(shares) - min(shares) < 1e-14
    assert min(shares) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("dim", [3, 6])
@pytest.mark.parametrize("factors", DEPTHS)
def test_nothing_is_found_below_the_minimum(factors: int, dim: int):
    problem = deep(factors, dim=dim)
    best = problem.minimiser()
    generator = seeded(factors)
    starts = [tuple(size * p for p in problem.start(generator)) for size in (10, 20)]
    noise = problem.start(generator)
    starts.append(tuple(p + 2 * q for p, q in zip(best.point, noise, strict=True)))
    reached = [quasi_newton(problem, start, limit=800).objective for start in starts]
    reached = [objective - best.objective for objective in reached]
    assert min(reached) > -1e-13
    assert min(reached) < 1e-12, "no start arrived"


@pytest.mark.nightly
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_60_restarts_and_60_perturbations_find_nothing_lower(activation: str):
    problem = deep(3, activation)
    best, generator = problem.objective_at_collapse(), seeded(7)
    point = problem.point_at_collapse()
    for attempt in range(60):
        scale = 10.0 ** (attempt % 5 / 2)
        start = tuple(scale * part for part in problem.start(generator))
        assert quasi_newton(problem, start, limit=150).objective > best - 1e-12
        noise = tuple(10.0 ** (-attempt % 5) * part for part in problem.start(generator))
        near = tuple(p + q for p, q in zip(point, noise, strict=True))
        assert float(problem.objective(near)) > best - 1e-12


@pytest.mark.parametrize("factors", [2, 3, 4, 6, 10])
def test_the_gain_is_the_best_on_a_grid(factors: int):
    grid = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    for share in (0.01, 0.5, 0.99, 0.999, 1.001, 1.5):
        load = share * nonzero_limit(factors)
        values = (1 - grid) ** 2 / 2 + factors / 2 * load * grid ** (2 / factors)
        assert abs(best_product(factors, load) - float(grid[values.argmin()])) < 1e-4


def test_limits_and_gains_are_the_known_ones():
    assert nonzero_limit(2) == 1
    assert math.isclose(nonzero_limit(3), 2 ** (-4 / 3))
    for factors in (3, 4, 7):
        just_below = best_product(factors, nonzero_limit(factors) * (1 - 1e-9))
        assert just_below > (factors - 2) / (factors - 1) > just_below - 1e-3
        assert best_product(factors, nonzero_limit(factors)) == 0
    # q^4 - q + c = 0 for p = q^3
    q = best_product(3, 0.2) ** (1 / 3)
    assert abs(q**4 - q + 0.2) < 1e-15


def test_levels_have_names_and_feed_the_head():
    linear, relu = deep(4), deep(4, "relu")
    point = linear.start(seeded(0))
    assert list(linear.levels(point)) == ["H1", "H2", "H3"]
    levels = relu.levels(point)
    assert list(levels) == ["H1", "W1 H1", "H2", "W2 H2", "H3"]
    torch.testing.assert_close(levels["H3"], levels["W2 H2"].clamp(min=0))
    torch.testing.assert_close(levels["W2 H2"], point[1] @ levels["H2"])
    weight, bias = relu.head(point)
    assert weight is point[0]
    assert bias is None


def test_start_has_the_deviations_given():
    problem = ExtendedUFM(10, 40, 50, (0.1, 0.1), 0.1, deviations=(0.1, 0.3, 0.2))
    spread = [float(part.std()) for part in problem.start(seeded(0))]
    assert spread == pytest.approx([0.1, 0.3, 0.2], rel=0.1)


def test_a_minimum_under_relu_is_not_claimed():
    with pytest.raises(InputError, match="point_at_collapse"):
        deep(3, "relu").minimiser()
    plain = deep(2, "relu").minimiser()
    assert plain.objective == deep(2).minimiser().objective
