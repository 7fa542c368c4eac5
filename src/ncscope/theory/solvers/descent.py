"""Plain gradient descent, as in the papers' experiments."""

from collections.abc import Collection, Iterator

import torch

from ncscope.theory.surrogates.problem import Point, Problem


def gradient_descent(
    problem: Problem, start: Point, rate: float, record: Collection[int]
) -> Iterator[tuple[int, Point]]:
    r"""Steps of $-\eta\nabla f$, handing over the point at chosen ones.

    Args:
        problem: What to minimise.
        start: Where to begin; left as it is.
        rate: Step size $\eta$.
        record: Steps at which to hand over, 0 being the start; the last one ends the descent.

    Yields:
        The number of steps taken, and a copy of the point reached.
    """
    point, taken = tuple(part.clone() for part in start), 0
    with torch.no_grad():
        for due in sorted(set(record)):
            for _ in range(due - taken):
                for part, slope in zip(point, problem.gradient(point), strict=True):
                    part.sub_(slope, alpha=rate)
            taken = due
            yield taken, tuple(part.clone() for part in point)
