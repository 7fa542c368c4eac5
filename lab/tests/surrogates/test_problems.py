"""Every model: its objective, gradient and minimum, descent on few columns, bad input."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from ncscope.errors import InputError
from ncscope_lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.mufm import MUFM, ClassifierMUFM, LayeredMUFM
from ncscope_lab.surrogates.perturbed import PerturbedUFM
from ncscope_lab.surrogates.plain import PlainUFM
from ncscope_lab.surrogates.problem import Point, gaussian_classes
from ncscope_lab.surrogates.ufm import UFM
from ncscope_lab.surrogates.ufm_cross_entropy import CrossEntropyUFM


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def norm(point: Point) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in point))


def deep(
    factors: int, activation: Any = "linear", dim: int = 6, strength: float = 1.0
) -> ExtendedUFM:
    """K = 4, n = 3, decays all different."""
    decays = tuple(strength * 0.01 * (index + 1) for index in range(factors - 1))
    return ExtendedUFM(4, dim, 3, decays, strength * 0.02, activation)


DATA = gaussian_classes(3, 4, 5, seeded(7))
UFMS: dict[str, Any] = {
    "wide": UFM(4, 20, 50, 0.005, 0.001),
    "square": UFM(4, 4, 5, 0.02, 0.03),
    "one axis short": UFM(4, 3, 5, 0.02, 0.03),
    "two axes": UFM(5, 2, 5, 0.02, 0.03),
    "two classes": UFM(2, 1, 1, 0.01, 0.02),
    "zero": UFM(4, 6, 5, 0.2, 0.3),
    "wide, free": UFM(4, 20, 50, 0.005, 0.001, 0.0),
    "simplex fits, free": UFM(4, 3, 5, 0.02, 0.03, 0.0),
    "two axes, free": UFM(5, 2, 5, 0.02, 0.03, 0.0),
    "one sample, free": UFM(3, 5, 1, 0.05, 0.02, 0.0),
    "zero, free": UFM(4, 6, 5, 0.2, 0.3, 0.0),
    "wide, below the edge": UFM(4, 20, 50, 0.005, 0.001, 0.05),
    "wide, above the edge": UFM(4, 20, 50, 0.005, 0.001, 0.3),
    "strong": UFM(4, 4, 5, 0.02, 0.03, 20.0),
    "one axis short, regularised": UFM(4, 3, 5, 0.02, 0.03, 0.5),
    "two axes, regularised": UFM(5, 2, 5, 0.02, 0.03, 5.0),
    "zero, regularised": UFM(4, 6, 5, 0.2, 0.3, 0.5),
}
CROSS_ENTROPY: dict[str, Any] = {
    f"cross-entropy, {name}": CrossEntropyUFM(*sizes)
    for name, sizes in {
        "wide": (4, 20, 50, 0.005, 0.001),
        "simplex fits": (4, 3, 5, 0.02, 0.03),
        "two classes": (2, 1, 3, 0.01, 0.02),
        "one sample": (5, 6, 1, 0.05, 0.02),
        "just below the edge": (4, 5, 5, 0.2, 0.99**2 / 16),
        "just above the edge": (4, 5, 5, 0.2, 1.01**2 / 16),
        "zero, no room": (5, 1, 5, 0.2, 0.3),
    }.items()
}
CLOSED: dict[str, Any] = {
    **UFMS,
    **CROSS_ENTROPY,
    **{f"{factors} factors": deep(factors) for factors in (2, 3, 4, 5)},
    **{f"noise {noise}": PerturbedUFM(3, 6, 30, 0.005, 0.05, noise, 0) for noise in (0.0, 0.1, 2)},
}
"""Problems whose minimiser has a closed form."""
ALL: dict[str, Any] = {
    **CLOSED,
    **{f"{factors} factors, relu": deep(factors, "relu") for factors in (2, 3, 4, 5)},
    **{
        f"plain, {activation}, {decays}": PlainUFM(3, 4, 2, *decays, activation)
        for activation in ("linear", "relu")
        for decays in ((0.0, 0.0), (0.05, 0.02))
    },
    **{
        f"{kind}-{loss}-{normalised}": problem
        for loss in ("mse", "cross-entropy")
        for normalised in (True, False)
        for kind, problem in {
            "reduced": MUFM(DATA, 3, 0.1, 0.2, loss, normalised),
            "layered": LayeredMUFM(DATA, 3, 3, 0.1, 0.2, loss, normalised),
        }.items()
    },
    "classifier": ClassifierMUFM(MUFM(DATA, 3, 0.1, 0.2)),
}


def printed(problem: Any, point: Point) -> float:
    """The objective as its paper prints it, of what the head makes of the last level."""
    if isinstance(problem, ClassifierMUFM):
        return printed(problem.model, problem.complete(point))
    model = getattr(problem, "_last", problem)  # of a layered one, which has the decays
    parts = list(point)
    if isinstance(model, MUFM):
        parts[1:] = [new - old for old, new in pairwise([model.data, *point[1:]])]
        whole, each = (model.num_classes, len(model.labels)) if model.normalised else (1, 1)
        decays = [model.weight_decay / whole] + [model.transport / each] * len(parts[1:])
    elif isinstance(model, ExtendedUFM):
        decays = list(model.decays)
    else:
        names = ("weight_decay", "feature_decay", "bias_decay")
        decays = [getattr(model, name, None) or 0.0 for name in names[: len(parts)]]
    cost = sum(decay / 2 * norm((part,)) ** 2 for decay, part in zip(decays, parts, strict=True))
    (head, bias), (*_, features) = problem.head(point), problem.levels(point).values()
    logits = head @ features + (0 if bias is None else bias[:, None])
    if isinstance(model, CrossEntropyUFM) or getattr(model, "loss", "mse") != "mse":
        return float(torch.nn.functional.cross_entropy(logits.mT, model.labels)) + cost
    targets = torch.eye(model.num_classes, dtype=torch.float64)[:, model.labels]
    return norm((logits - targets,)) ** 2 / (2 * len(model.labels)) + cost


@pytest.mark.parametrize("name", ALL)
def test_objective_is_the_printed_one_and_gradient_its_own(name: str) -> None:
    problem = ALL[name]
    point = tuple(3 * part for part in problem.start(seeded()))
    assert math.isclose(float(problem.objective(point)), printed(problem, point), rel_tol=1e-12)
    by_hand = problem.gradient(point)
    leaves = [part.clone().requires_grad_() for part in point]
    expected = torch.autograd.grad(problem.objective(tuple(leaves)), leaves)
    for _ in range(2):
        for found, wanted in zip(by_hand, expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)
        # The room that a gradient uses again is not what it hands over.
        problem.gradient(tuple(2 * part for part in point))


@pytest.mark.parametrize("name", CLOSED)
def test_the_minimiser_is_critical_has_its_objective_and_nothing_near_is_lower(name: str) -> None:
    problem, generator = CLOSED[name], seeded()
    drawn = [(), (generator,)] if isinstance(problem, UFM | CrossEntropyUFM) else [()]
    for given in drawn:
        best = problem.minimiser(*given)
        assert norm(problem.gradient(best.point)) < 1e-14
        assert math.isclose(float(problem.objective(best.point)), best.objective, rel_tol=1e-13)
    for trial in range(100):
        best = problem.minimiser(*drawn[-1])
        size = 10 ** (-4 + 5 * trial / 99)
        moved = tuple(
            part + size * torch.randn(part.shape, generator=generator).double()
            for part in best.point
        )
        assert float(problem.objective(moved)) > best.objective - 1e-14


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 2) for name in (*UFMS, *CROSS_ENTROPY)),
        *((name, 40) for name in ("square", "simplex fits, free", "two axes, regularised")),
        *((name, 40) for name in ("strong", "cross-entropy, wide")),
    ],
)
def test_random_starts_end_at_the_minimum(name: str, count: int) -> None:
    problem, generator = CLOSED[name], seeded()
    best = problem.minimiser().objective
    for _ in range(count):
        found = quasi_newton(*problem.compact(problem.start(generator)))
        assert abs(found.objective - best) < 1e-13
        assert found.gradient_norm < 1e-12


@pytest.mark.parametrize(
    "problem",
    [
        *(UFM(3, 4, 3, 0.1, 0.05, decay) for decay in (None, 0.0, 2.0)),
        CrossEntropyUFM(3, 4, 3, 0.1, 0.05),
        PerturbedUFM(3, 6, 30, 0.005, 0.05, 1.0, 0),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_gradient_descent_arrives(problem: Any) -> None:
    ((_, last),) = gradient_descent(problem, problem.start(seeded()), 0.3, [4000])
    assert 0 <= float(problem.objective(last)) - problem.minimiser().objective + 1e-15 < 1e-12


FEW_COLUMNS: dict[str, tuple[Any, int, int]] = {
    **{name: (UFMS[name], 1, 24) for name in ("wide", "wide, free", "wide, above the edge")},
    "two levels": (ExtendedUFM(3, 5, 8, (0.02, 0.01), 0.01), 2, 8),
    "with data": (MUFM(gaussian_classes(3, 20, 4, seeded()), 3, 5e-3, 1e-3, "mse", False), 1, 11),
}


@pytest.mark.parametrize("name", FEW_COLUMNS)
def test_descent_on_few_columns_is_descent(name: str) -> None:
    problem, place, columns = FEW_COLUMNS[name]
    start = problem.start(seeded(1))
    compact, begin = problem.compact(start)
    assert begin[place].shape[1] == columns
    pairs = zip(
        gradient_descent(problem, start, 0.1, [0, 1, 300]),
        gradient_descent(compact, begin, 0.1, [0, 1, 300]),
        strict=True,
    )
    for (_, whole), (_, few) in pairs:
        for level, features in problem.levels(whole).items():
            torch.testing.assert_close(compact.levels(few)[level], features, rtol=0, atol=1e-11)
        for wanted, got in zip(problem.head(whole), compact.head(few), strict=True):
            assert (wanted is got is None) or torch.allclose(got, wanted, atol=1e-11)
        objectives = float(compact.objective(few)), float(problem.objective(whole))
        assert math.isclose(*objectives, rel_tol=1e-11)
        slopes = norm(compact.gradient(few)), norm(problem.gradient(whole))
        assert math.isclose(*slopes, rel_tol=1e-9)


@pytest.mark.parametrize(
    "problem",
    [UFM(3, 6, 3, 0.01, 0.01), deep(3, "relu"), MUFM(DATA, 3, 0.1, 0.2)],
    ids=["as many columns", "relu", "too few samples"],
)
def test_where_columns_are_not_fewer_the_problem_stays(problem: Any) -> None:
    start = problem.start(seeded())
    assert problem.compact(start) == (problem, start)


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        (UFM, (1, 5, 2, 0.1, 0.1, None), "expected num_classes >= 2, found 1"),
        (UFM, (3, 0, 2, 0.1, 0.1, None), "expected dim >= 1, found 0"),
        (UFM, (3, 5, 0, 0.1, 0.1, None), "expected per_class >= 1, found 0"),
        (UFM, (3, 5, 2, 0.0, 0.1, None), "expected a positive weight_decay, found 0.0"),
        (UFM, (3, 5, 2, 0.1, math.nan, None), "expected a positive feature_decay, found nan"),
        (UFM, (3, 5, 2, 0.1, 0.1, -1.0), "expected a bias decay of at least 0, found -1.0"),
        (UFM, (3, 5, 2, 0.1, 0.1, math.inf), "expected a bias decay of at least 0, found inf"),
        (CrossEntropyUFM, (5, 3, 2, -1.0, 0.01), "expected a positive weight_decay, found -1"),
        (PlainUFM, (0, 2, 2, 0.0, 0.0), "decays of at least 0"),
        (PlainUFM, (2, 2, 2, -0.1, 0.0), "decays of at least 0"),
        (PerturbedUFM, (3, 2, 10, 0.1, 0.1, 0.1), "d >= K"),
        (PerturbedUFM, (3, 4, 0, 0.1, 0.1, 0.1), "n >= 1"),
        (PerturbedUFM, (3, 4, 10, 0.0, 0.1, 0.1), "positive decays"),
        (PerturbedUFM, (3, 4, 10, 0.1, 0.1, -0.1), "noise >= 0"),
        (PerturbedUFM, (3, 4, 10, 0.5, 0.5, 0.1), "smaller ones"),
        (ExtendedUFM, (0, 4, 2, (0.1, 0.1), 0.1), "expected"),
        (ExtendedUFM, (3, 0, 2, (0.1, 0.1), 0.1), "expected"),
        (ExtendedUFM, (3, 4, 0, (0.1, 0.1), 0.1), "expected"),
        (ExtendedUFM, (3, 4, 2, (0.1, 0.1), 0.0), "expected"),
        (ExtendedUFM, (3, 4, 2, (0.1, 0.1), math.nan), "expected"),
        (ExtendedUFM, (3, 4, 2, (0.1, -0.1), 0.1), "expected"),
        (ExtendedUFM, (3, 4, 2, (), 0.1), "expected"),
        (ExtendedUFM, (3, 4, 2, (0.1, 0.1), 0.1, "linear", (0.1, 0.1)), "expected"),
        (ExtendedUFM, (3, 4, 2, (0.1, 0.1), 0.1, "linear", (0.1, 0.1, 0.0)), "expected"),
        (MUFM, (DATA, 5, 0.1, 0.2), "same number of samples of each, found 5 classes, 12 samples"),
        (MUFM, (DATA, 1, 0.1, 0.2), "at least 2 classes"),
        (MUFM, (DATA, 3, 0.0, 0.2), "weight_decay > 0"),
        (MUFM, (DATA, 3, 0.1, -1.0), "found weight_decay=0.1, transport=-1.0"),
        (LayeredMUFM, (DATA, 3, 0, 0.1, 0.2), "depth >= 1, found depth=0"),
        (ClassifierMUFM, (MUFM(DATA, 3, 0.1, 0.2, "cross-entropy"),), "the squared loss"),
    ],
)
def test_bad_input_is_refused(model: Any, given: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        model(*given)
