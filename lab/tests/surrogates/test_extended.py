"""The extended model: gradients, the closed form of any depth, and what cannot beat it."""

import math

import pytest
import torch
from lab.tests.surrogates.test_problems import norm, seeded

from ncscope.errors import InputError
from ncscope_lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope_lab.surrogates.extended import ExtendedUFM, best_product, nonzero_limit
from ncscope_lab.surrogates.problem import Point

DEPTHS = (2, 3, 4, 5)
ACTIVATIONS = ("linear", "relu")


def model(factors: int, dim: int = 6, activation: str = "linear", strength: float = 1.0):
    """K = 4, n = 3, decays all different."""
    decays = tuple(strength * 0.01 * (index + 1) for index in range(factors - 1))
    return ExtendedUFM(4, dim, 3, decays, strength * 0.02, activation)


def plain_objective(problem: ExtendedUFM, point: Point) -> torch.Tensor:
    """The objective as the paper writes it for two and three factors."""
    (*weights, h), (*decays, own) = point, problem.decays
    y = torch.kron(torch.eye(problem.num_classes), torch.ones(1, problem.per_class)).double()
    z = h
    if len(weights) == 2:
        z = weights[1] @ h
        z = torch.relu(z) if problem.activation == "relu" else z
    loss = torch.linalg.matrix_norm(weights[0] @ z - y) ** 2 / (2 * y.shape[1])
    regularisers = [d / 2 * torch.trace(w.T @ w) for d, w in zip(decays, weights, strict=True)]
    return loss + sum(regularisers) + own / 2 * torch.trace(h.T @ h)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("factors", [2, 3])
def test_objective_is_the_papers(factors: int, activation: str):
    problem = model(factors, activation=activation)
    point = problem.start(seeded(0))
    expected = plain_objective(problem, point)
    assert torch.isclose(problem.objective(point), expected, rtol=1e-14)


@pytest.mark.parametrize("strength", [1.0, 4.0, 40.0])
@pytest.mark.parametrize("dim", [2, 4, 7])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("factors", DEPTHS)
def test_point_at_collapse_is_stationary_with_its_objective(
    factors: int, activation: str, dim: int, strength: float
):
    problem = model(factors, dim, activation, strength)
    point = problem.point_at_collapse()
    assert norm(problem.gradient(point)) < 1e-14
    assert abs(float(problem.objective(point)) - problem.objective_at_collapse()) < 1e-14
    assert all((part >= 0).all() for part in point)


@pytest.mark.parametrize("factors", DEPTHS)
def test_factors_are_balanced(factors: int):
    problem = model(factors)
    squares = [part.square().sum() for part in problem.point_at_collapse()]
    shares = [decay * square for decay, square in zip(problem.decays, squares, strict=True)]
    assert max(shares) - min(shares) < 1e-14
    assert min(shares) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("dim", [3, 6])
@pytest.mark.parametrize(
    "factors", [2, 3, *(pytest.param(deep, marks=pytest.mark.slow) for deep in (4, 5))]
)
def test_nothing_is_found_below_the_minimum(factors: int, dim: int):
    problem = model(factors, dim)
    best = problem.minimiser()
    generator = seeded(factors)
    starts = [tuple(size * p for p in problem.start(generator)) for size in (10, 20)]
    noise = problem.start(generator)
    starts.append(tuple(p + 2 * q for p, q in zip(best.point, noise, strict=True)))
    reached = [quasi_newton(problem, start, limit=800).objective for start in starts]
    reached = [objective - best.objective for objective in reached]
    assert min(reached) > -1e-13
    assert min(reached) < 1e-12, "no start arrived"


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("factors", [3])
def test_200_restarts_and_200_perturbations_find_nothing_lower(factors: int, activation: str):
    problem = model(factors, activation=activation)
    best, generator = problem.objective_at_collapse(), seeded(7)
    point = problem.point_at_collapse()
    for attempt in range(200):
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


def test_descent_arrives_at_the_minimum():
    problem = model(3)
    start = tuple(5 * part for part in problem.start(seeded(1)))
    *_, (_, point) = gradient_descent(problem, start, 1.0, [6000])
    assert abs(float(problem.objective(point)) - problem.minimiser().objective) < 1e-9


def test_levels_have_names_and_feed_the_head():
    linear, relu = model(4), model(4, activation="relu")
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
        model(3, activation="relu").minimiser()
    plain = model(2, activation="relu").minimiser()
    assert plain.objective == model(2).minimiser().objective
