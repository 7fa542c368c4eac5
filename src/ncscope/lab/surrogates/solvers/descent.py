"""Plain gradient descent, as in the papers' experiments."""

from collections.abc import Collection, Iterator

import torch

from ncscope.errors import InputError
from ncscope.lab.surrogates.problem import Point, Problem


def gradient_descent(
    problem: Problem, start: Point, rate: float, record: Collection[int]
) -> Iterator[tuple[int, Point]]:
    r"""Step by $-\eta\nabla f$, and yield the point at chosen steps.

    Args:
        problem: Problem to minimise.
        start: Initial point, not modified.
        rate: Step size $\eta$.
        record: Steps at which to yield; 0 is the start, and the last one ends the descent.

    Yields:
        Number of steps taken, and a copy of the current point.

    Raises:
        InputError: If the descent diverges.
    """
    point, taken = tuple(part.detach().clone() for part in start), 0
    for due in sorted(set(record)):
        _descend(problem, point, rate, due - taken)
        taken = due
        if not all((part.abs() < _BEYOND_RETURN).all() for part in point):
            raise InputError(
                expected="a descent that stays finite",
                found=f"values past {_BEYOND_RETURN:g} by step {taken} at rate {rate:g}",
                fix="lower the rate",
            )
        yield taken, tuple(part.clone() for part in point)


_BEYOND_RETURN = 1e50
"""Bound on the entries; fourth powers of smaller entries, as in metrics, are still finite."""


@torch.no_grad()
def _descend(problem: Problem, point: Point, rate: float, steps: int) -> None:
    """Take steps in place, without autograd.

    This is not part of the generator: a generator that is suspended within ``no_grad`` would turn
    autograd off in its caller.
    """
    for _ in range(steps):
        for part, slope in zip(point, problem.gradient(point), strict=True):
            part.sub_(slope, alpha=rate)
