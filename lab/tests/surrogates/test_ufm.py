"""The MSE model: gradients, minimisers in every regime, descent on few columns, bad input."""

import math

import pytest
import torch

from ncscope.errors import InputError
from ncscope.math.frames import simplex_etf
from ncscope_lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.surrogates.ufm import UFM

NO_BIAS = {
    "wide": UFM(4, 20, 50, 0.005, 0.001),
    "square": UFM(4, 4, 5, 0.02, 0.03),
    "one axis short": UFM(4, 3, 5, 0.02, 0.03),
    "two axes": UFM(5, 2, 5, 0.02, 0.03),
    "two classes": UFM(2, 1, 1, 0.01, 0.02),
    "zero": UFM(4, 6, 5, 0.2, 0.3),
}
FREE_BIAS = {
    "wide, free": UFM(4, 20, 50, 0.005, 0.001, 0.0),
    "simplex fits, free": UFM(4, 3, 5, 0.02, 0.03, 0.0),
    "two axes, free": UFM(5, 2, 5, 0.02, 0.03, 0.0),
    "one sample, free": UFM(3, 5, 1, 0.05, 0.02, 0.0),
    "zero, free": UFM(4, 6, 5, 0.2, 0.3, 0.0),
}
REGULARISED = {
    "wide, below the edge": UFM(4, 20, 50, 0.005, 0.001, 0.05),
    "wide, above the edge": UFM(4, 20, 50, 0.005, 0.001, 0.3),
    "strong": UFM(4, 4, 5, 0.02, 0.03, 20.0),
    "one axis short, regularised": UFM(4, 3, 5, 0.02, 0.03, 0.5),
    "two axes, regularised": UFM(5, 2, 5, 0.02, 0.03, 5.0),
    "zero, regularised": UFM(4, 6, 5, 0.2, 0.3, 0.5),
}
ALL = NO_BIAS | FREE_BIAS | REGULARISED
every_regime = pytest.mark.parametrize("problem", ALL.values(), ids=ALL.keys())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def norm(point: Point) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in point))


def means_of(problem: UFM, point: Point) -> torch.Tensor:
    return point[1][:, :: problem.per_class]


@every_regime
def test_objective_is_the_sum_over_samples(problem: UFM) -> None:
    weight, features, *rest = problem.start(seeded())
    bias = rest[0] if rest else torch.zeros(problem.num_classes, dtype=torch.float64)
    total = torch.zeros(())
    for column, label in enumerate(problem.labels):
        logits = weight @ features[:, column] + bias
        target = torch.eye(problem.num_classes, dtype=torch.float64)[label]
        total = total + (logits - target).square().sum() / 2
    total = total / (problem.num_classes * problem.per_class)
    for decay, part in (
        (problem.weight_decay, weight),
        (problem.feature_decay, features),
        (problem.bias_decay or 0.0, bias),
    ):
        total = total + decay / 2 * part.square().sum()
    assert torch.allclose(total, problem.objective((weight, features, *rest)), rtol=1e-13)


@every_regime
def test_gradient_is_that_of_autograd(problem: UFM) -> None:
    point = tuple(part.requires_grad_() for part in problem.start(seeded()))
    expected = torch.autograd.grad(problem.objective(point), point)
    for slope, wanted in zip(problem.gradient(point), expected, strict=True):
        assert torch.allclose(slope, wanted, rtol=1e-12, atol=1e-14)


@every_regime
@pytest.mark.parametrize("seed", [None, 1])
def test_minimiser_is_critical_and_has_the_stated_objective(problem: UFM, seed: int | None) -> None:
    best = problem.minimiser(None if seed is None else seeded(seed))
    assert norm(problem.gradient(best.point)) < 1e-14
    assert math.isclose(float(problem.objective(best.point)), best.objective, rel_tol=1e-14)


@every_regime
def test_no_perturbation_of_the_minimiser_is_lower(problem: UFM) -> None:
    generator = seeded()
    for trial in range(200):
        best = problem.minimiser(generator)
        size = 10 ** (-4 + 5 * trial / 199)
        moved = tuple(part + size * torch.randn(part.shape, generator=generator).double()
                      for part in best.point)  # fmt: skip
        assert float(problem.objective(moved)) > best.objective - 1e-14


@pytest.mark.slow
@every_regime
def test_random_starts_end_at_the_minimum(problem: UFM) -> None:
    starts_end_at_the_minimum(problem, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    "name", ["square", "simplex fits, free", "two axes, regularised", "strong"]
)
def test_200_random_starts_end_at_the_minimum(name: str) -> None:
    starts_end_at_the_minimum(ALL[name], 200)


def starts_end_at_the_minimum(problem: UFM, count: int) -> None:
    best, generator = problem.minimiser().objective, seeded()
    for _ in range(count):
        compact, start = problem.compact(problem.start(generator))
        found = quasi_newton(compact, start)
        assert abs(found.objective - best) < 1e-13
        assert found.gradient_norm < 1e-12


def test_gram_matrices() -> None:
    for problem in (NO_BIAS["wide"], NO_BIAS["square"]):
        means = means_of(problem, problem.minimiser(seeded()).point)
        length = (1 - problem.c) * math.sqrt(
            problem.weight_decay / (problem.per_class * problem.feature_decay)
        )
        assert torch.allclose(means.mT @ means, length * torch.eye(4).double(), atol=1e-14)
    for problem in (FREE_BIAS["wide, free"], REGULARISED["wide, below the edge"]):
        means = means_of(problem, problem.minimiser(seeded()).point)
        simplex = simplex_etf(4)
        gram = (means.mT @ means) / means[:, 0].square().sum()
        assert torch.allclose(gram, simplex @ simplex.mT, atol=1e-14)


def test_simplex_up_to_the_edge_and_not_past_it() -> None:
    edge = NO_BIAS["wide"].c / (1 - NO_BIAS["wide"].c)
    for decay, zero in ((0.999 * edge, True), (1.001 * edge, False)):
        problem = UFM(4, 20, 50, 0.005, 0.001, decay)
        mean = means_of(problem, problem.minimiser().point).mean(1).norm()
        assert (mean < 1e-14) == zero


def test_where_classes_are_alike_any_may_be_left_out() -> None:
    """With fewer dimensions than classes the frame is chosen by the generator."""
    problem = NO_BIAS["two axes"]
    plain = means_of(problem, problem.minimiser().point)
    assert (plain.norm(dim=0) > 0).tolist() == [True, True, False, False, False]
    drawn = means_of(problem, problem.minimiser(seeded()).point)
    assert drawn.norm(dim=0).min() > 0
    assert drawn.norm(dim=0).std() > 0.01


@pytest.mark.parametrize("name", ["wide", "wide, free", "wide, above the edge"])
def test_descent_on_few_columns_is_descent(name: str) -> None:
    problem = ALL[name]
    start = problem.start(seeded())
    compact, begin = problem.compact(start)
    assert begin[1].shape == (20, 24)
    pairs = zip(
        gradient_descent(problem, start, 0.1, [0, 1, 300]),
        gradient_descent(compact, begin, 0.1, [0, 1, 300]),
        strict=True,
    )
    for (_, whole), (_, few) in pairs:
        assert torch.allclose(compact.levels(few)["H"], whole[1], atol=1e-12)
        assert torch.allclose(few[0], whole[0], atol=1e-12)
        for wanted, got in zip(problem.head(whole), compact.head(few), strict=True):
            assert (wanted is got is None) or torch.allclose(got, wanted, atol=1e-12)
        assert math.isclose(
            float(compact.objective(few)), float(problem.objective(whole)), rel_tol=1e-12
        )
        assert math.isclose(
            norm(compact.gradient(few)), norm(problem.gradient(whole)), rel_tol=1e-11
        )


def test_few_columns_only_where_they_are_fewer() -> None:
    problem = UFM(3, 6, 3, 0.01, 0.01)
    start = problem.start(seeded())
    same, begin = problem.compact(start)
    assert same is problem
    assert begin is start


@pytest.mark.parametrize("bias_decay", [None, 0.0, 2.0])
def test_gradient_descent_arrives(bias_decay: float | None) -> None:
    problem = UFM(3, 4, 3, 0.1, 0.05, bias_decay)
    ((_, last),) = gradient_descent(problem, problem.start(seeded()), 0.3, [1000])
    assert 0 <= float(problem.objective(last)) - problem.minimiser().objective + 1e-15 < 1e-12


def test_what_is_read_of_a_point() -> None:
    problem = UFM(3, 5, 2, 0.01, 0.01, 0.0)
    weight, features, bias = point = problem.start(seeded(3))
    assert problem.names == ("W", "H", "b")
    assert problem.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert problem.levels(point) == {"H": features}
    assert problem.head(point) == (weight, bias)
    assert NO_BIAS["wide"].names == ("W", "H")
    assert NO_BIAS["wide"].head(point[:2]) == (weight, None)
    large = UFM(10, 60, 100, 0.01, 0.01).start(seeded())[1]
    assert abs(float(large.std()) - 1) < 0.02


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((1, 5, 2, 0.1, 0.1, None), "expected num_classes >= 2, found 1"),
        ((3, 0, 2, 0.1, 0.1, None), "expected dim >= 1, found 0"),
        ((3, 5, 0, 0.1, 0.1, None), "expected per_class >= 1, found 0"),
        ((3, 5, 2, 0.0, 0.1, None), "expected a positive weight_decay, found 0.0"),
        ((3, 5, 2, 0.1, math.nan, None), "expected a positive feature_decay, found nan"),
        ((3, 5, 2, 0.1, 0.1, -1.0), "expected a bias decay of at least 0, found -1.0"),
        ((3, 5, 2, 0.1, 0.1, math.inf), "expected a bias decay of at least 0, found inf"),
    ],
)
def test_bad_input(given: tuple[int, int, int, float, float, float | None], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        UFM(*given)
