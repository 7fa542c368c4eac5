"""Plain descent: the law of a quadratic bowl, and what is handed over when."""

import pytest
import torch
from lab.tests.surrogates.solvers.bowl import Bowl

from ncscope.errors import InputError
from ncscope_lab.surrogates.descent import descend_together, gradient_descent
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.plain import PlainUFM
from ncscope_lab.surrogates.problem import Problem
from ncscope_lab.surrogates.ufm import UFM

CURVATURE = torch.tensor([[0.5, 2.0], [1.0, 3.0]], dtype=torch.float64)


def test_a_bowl_is_descended_by_its_law() -> None:
    bowl = Bowl(CURVATURE)
    start = bowl.start(torch.Generator().manual_seed(0))
    for step, point in gradient_descent(bowl, start, 0.1, range(0, 50, 7)):
        for part, begin in zip(point, start, strict=True):
            assert torch.allclose(part, (1 - 0.1 * CURVATURE) ** step * begin, rtol=1e-13)


def test_steps_are_handed_over_once_and_in_order() -> None:
    bowl = Bowl(CURVATURE)
    start = bowl.start(torch.Generator().manual_seed(0))
    kept = tuple(part.clone() for part in start)
    seen = list(gradient_descent(bowl, start, 0.1, [5, 0, 2, 5]))
    assert [step for step, _ in seen] == [0, 2, 5]
    assert all(torch.equal(part, was) for part, was in zip(start, kept, strict=True))
    assert not torch.equal(seen[0][1][0], seen[1][1][0])
    assert list(gradient_descent(bowl, start, 0.1, [])) == []


def test_a_descent_in_progress_leaves_autograd_on() -> None:
    bowl = Bowl(CURVATURE)
    start = bowl.start(torch.Generator().manual_seed(0))
    first, second = (gradient_descent(bowl, start, 0.1, [0, 1]) for _ in range(2))
    for _ in zip(first, second, strict=True):
        assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("last", [200, 5000])
def test_a_rate_too_high_is_said(last: int) -> None:
    bowl = Bowl(CURVATURE)
    start = bowl.start(torch.Generator().manual_seed(0))
    expected = f"values past 1e.50 by step {last} at rate 2; lower the rate"
    with pytest.raises(InputError, match=expected):
        list(gradient_descent(bowl, start, 2.0, [0, last]))


@pytest.mark.parametrize(
    "problem",
    [
        UFM(4, 20, 50, weight_decay=0.005, feature_decay=0.001),
        PlainUFM(4, 20, 50, weight_decay=0.0, feature_decay=0.0),
        PlainUFM(4, 20, 50, weight_decay=0.005, feature_decay=0.001, activation="relu"),
        ExtendedUFM(4, 20, 50, weight_decays=(0.005, 0.0025), feature_decay=0.001),
    ],
)
def test_descents_together_are_the_single_descents_bit_for_bit(problem: Problem) -> None:
    starts = [problem.start(torch.Generator().manual_seed(seed)) for seed in range(3)]
    together = descend_together(problem, starts, 0.1, 300)
    for start, (own, end) in zip(starts, together, strict=True):
        compact, begin = problem.compact(start)
        ((_, alone),) = gradient_descent(compact, begin, 0.1, [300])
        assert all(torch.equal(part, other) for part, other in zip(end, alone, strict=True))
        assert torch.equal(own.objective(end), compact.objective(alone))
