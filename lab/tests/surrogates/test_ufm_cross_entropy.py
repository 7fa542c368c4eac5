"""The cross-entropy model: gradients, the simplex in closed form, where it becomes zero."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from ncscope.errors import InputError
from ncscope.math.frames import simplex_etf
from ncscope_lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.surrogates.ufm_cross_entropy import CrossEntropyUFM

PROBLEMS = {
    "wide": CrossEntropyUFM(4, 20, 50, 0.005, 0.001),
    "simplex fits": CrossEntropyUFM(4, 3, 5, 0.02, 0.03),
    "two classes": CrossEntropyUFM(2, 1, 3, 0.01, 0.02),
    "one sample": CrossEntropyUFM(5, 6, 1, 0.05, 0.02),
    "just below the edge": CrossEntropyUFM(4, 5, 5, 0.2, 0.99**2 / 16),
    "just above the edge": CrossEntropyUFM(4, 5, 5, 0.2, 1.01**2 / 16),
    "zero, no room": CrossEntropyUFM(5, 1, 5, 0.2, 0.3),
}
every_regime = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def norm(point: Point) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in point))


@every_regime
def test_objective_and_gradient(problem: CrossEntropyUFM) -> None:
    point = tuple(part.requires_grad_() for part in problem.start(seeded()))
    weight, features = point
    loss = cross_entropy((weight @ features).mT, problem.labels)
    decays = problem.weight_decay * weight.square().sum()
    decays = decays + problem.feature_decay * features.square().sum()
    objective = loss + decays / 2
    assert torch.allclose(problem.objective(point), objective, rtol=1e-13)
    for slope, wanted in zip(
        problem.gradient(point), torch.autograd.grad(objective, point), strict=True
    ):
        assert torch.allclose(slope, wanted, rtol=1e-12, atol=1e-14)


@every_regime
@pytest.mark.parametrize("seed", [None, 1])
def test_minimiser_is_critical_and_has_the_stated_objective(
    problem: CrossEntropyUFM, seed: int | None
) -> None:
    best = problem.minimiser(None if seed is None else seeded(seed))
    assert norm(problem.gradient(best.point)) < 1e-14
    assert math.isclose(float(problem.objective(best.point)), best.objective, rel_tol=1e-14)


@every_regime
def test_no_perturbation_of_the_minimiser_is_lower(problem: CrossEntropyUFM) -> None:
    generator = seeded()
    for trial in range(200):
        best = problem.minimiser(generator)
        size = 10 ** (-4 + 5 * trial / 199)
        moved = tuple(part + size * torch.randn(part.shape, generator=generator).double()
                      for part in best.point)  # fmt: skip
        assert float(problem.objective(moved)) > best.objective - 1e-14


@every_regime
def test_random_starts_end_at_the_minimum(problem: CrossEntropyUFM) -> None:
    starts_end_at_the_minimum(problem, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_200_random_starts_end_at_the_minimum() -> None:
    starts_end_at_the_minimum(next(iter(PROBLEMS.values())), 200)


def starts_end_at_the_minimum(problem: CrossEntropyUFM, count: int) -> None:
    best, generator = problem.minimiser().objective, seeded()
    for _ in range(count):
        found = quasi_newton(problem, problem.start(generator))
        assert abs(found.objective - best) < 1e-13
        assert found.gradient_norm < 1e-12


def test_it_is_zero_from_c_of_1_on() -> None:
    below, above = PROBLEMS["just below the edge"], PROBLEMS["just above the edge"]
    assert (round(below.c, 12), round(above.c, 12)) == (0.99, 1.01)
    assert norm(below.minimiser().point) > 0.1
    assert norm(above.minimiser().point) == 0
    assert above.minimiser().objective == math.log(4)


def test_it_is_a_simplex_aligned_with_the_classifier() -> None:
    problem = PROBLEMS["wide"]
    weight, features = problem.minimiser(seeded()).point
    means = features[:, :: problem.per_class]
    simplex = simplex_etf(4)
    assert torch.allclose(
        means.mT @ means / means[:, 0].square().sum(), simplex @ simplex.mT, atol=1e-14
    )
    logits = weight @ means
    alpha = float(logits[0, 0] - logits[0, 1])
    probability = 1 / (1 + 3 * math.exp(-alpha))
    pull = (1 - probability) / 3  # what the loss's slope and the decays' must agree on
    decay = math.sqrt(problem.weight_decay * problem.feature_decay * problem.per_class)
    assert math.isclose(pull, decay, rel_tol=1e-13)
    assert torch.allclose(weight / weight.norm(), means.mT / means.norm(), atol=1e-14)


def test_gradient_descent_arrives() -> None:
    problem = CrossEntropyUFM(3, 4, 3, 0.1, 0.05)
    ((_, last),) = gradient_descent(problem, problem.start(seeded()), 0.3, [1000])
    assert 0 <= float(problem.objective(last)) - problem.minimiser().objective + 1e-15 < 1e-12


def test_what_is_read_of_a_point() -> None:
    problem = CrossEntropyUFM(3, 5, 2, 0.01, 0.01)
    weight, features = point = problem.start(seeded(3))
    assert problem.names == ("W", "H")
    assert problem.levels(point) == {"H": features}
    assert problem.head(point) == (weight, None)


def test_bad_input() -> None:
    with pytest.raises(
        InputError, match="expected dim >= K - 1 = 4 for a closed form, found dim=3"
    ):
        CrossEntropyUFM(5, 3, 2, 0.01, 0.01).minimiser()
    with pytest.raises(InputError, match="expected a positive weight_decay, found -1"):
        CrossEntropyUFM(5, 3, 2, -1.0, 0.01)
