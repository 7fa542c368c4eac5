"""Solvers of surrogate models: quasi-Newton, and plain gradient descent."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, minres
from torch import Tensor

from ncscope.errors import InputError
from ncscope_lab.surrogates.problem import Point, Problem

_Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class SolverResult:
    """Point at which a solver stopped.

    Attributes:
        point: The last point.
        objective: Objective at the point.
        gradient_norm: Euclidean norm of the gradient at the point.
        evaluations: Number of evaluations of objective and gradient.
    """

    point: Point
    objective: float
    gradient_norm: float
    evaluations: int


def quasi_newton(problem: Problem, start: Point, limit: int = 20_000) -> SolverResult:
    """Minimise from a start to the accuracy of float64.

    BFGS compares objectives, whose changes are rounding once the gradient is about the square root
    of the rounding error. Newton steps use only the gradient, and reduce it further.

    Args:
        problem: Problem to minimise.
        start: Initial point.
        limit: Largest number of BFGS iterations. If it is reached, no Newton step follows.

    Returns:
        Last point. The norm of its gradient shows whether it is a stationary point.
    """
    evaluations = 0

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        evaluations += 1
        point = _unflatten(torch.from_numpy(flat), start)
        with torch.no_grad():
            value, slopes = problem.objective(point), problem.gradient(point)
        return float(value), _flatten(slopes).numpy()

    options = {"maxiter": limit, "maxfun": 10 * limit, "ftol": 0.0, "gtol": 0.0, "maxcor": 30}
    done = minimize(evaluate, _flatten(start).numpy(), jac=True, method="L-BFGS-B", options=options)
    flat = done.x if done.nit >= limit else _polish(evaluate, done.x)
    value, slope = evaluate(flat)
    return SolverResult(
        point=_unflatten(torch.from_numpy(flat), start),
        objective=value,
        gradient_norm=float(np.linalg.norm(slope)),
        evaluations=evaluations,
    )


def _polish(evaluate: _Evaluate, flat: np.ndarray) -> np.ndarray:
    """Take Newton steps while each at least halves the gradient and the objective does not rise.

    The objective may rise by rounding, whose size is that of its terms, not of their sum.
    """
    value, slope = evaluate(flat)
    for _ in range(_MOST_STEPS if slope.any() else 0):
        there = flat + _newton_step(evaluate, flat, slope)
        new_value, new_slope = evaluate(there)
        rises = new_value > value + _ROUNDING * abs(value)
        if rises or np.linalg.norm(new_slope) > np.linalg.norm(slope) / 2:
            break
        flat, value, slope = there, new_value, new_slope
    return flat


_MOST_STEPS, _ROUNDING = 10, 1e-12


def _newton_step(evaluate: _Evaluate, flat: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Return the shortest step at which the linearised gradient vanishes, by MINRES.

    Symmetries make the Hessian singular, but MINRES only needs the gradient to be in its range.
    Products with the Hessian are approximated by differences of gradients.
    """
    reach = _EPS**0.5 * (1 + np.linalg.norm(flat))

    def product(direction: np.ndarray) -> np.ndarray:
        length = np.linalg.norm(direction)
        if length == 0:
            return np.zeros_like(flat)
        shift = reach / length
        return (evaluate(flat + shift * direction)[1] - slope) / shift

    operator = LinearOperator((flat.size, flat.size), matvec=product, dtype=np.float64)
    step, _ = minres(operator, -slope, rtol=1e-6, maxiter=200)
    return step


def _flatten(point: Point) -> Tensor:
    return torch.cat([part.reshape(-1) for part in point])


def _unflatten(flat: Tensor, like: Point) -> Point:
    pieces = flat.split([part.numel() for part in like])
    return tuple(piece.view(part.shape) for piece, part in zip(pieces, like, strict=True))


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


def descend_together(
    problem: Problem, starts: Sequence[Point], rate: float, steps: int
) -> list[tuple[Problem, Point]]:
    """Descend from several starts at once, in a fraction of the time of single descents.

    The points are those of `gradient_descent` from each start, bit for bit.

    Args:
        problem: Problem to minimise; without a bias, and linear or with one layer of weights.
        starts: Initial points, not modified.
        rate: Step size.
        steps: Number of steps.

    Returns:
        The last point from each start, with the problem that it is a point of: the given problem,
        or the one with fewer columns that replaces it for this start.

    Raises:
        InputError: If a descent diverges.
    """
    pairs = [problem.compact(start) for start in starts]
    problems, begins = [own for own, _ in pairs], [begin for _, begin in pairs]
    whole = problems[0].stack(problems)
    stacked = tuple(torch.stack(parts) for parts in zip(*begins, strict=True))
    ((_, ends),) = gradient_descent(whole, stacked, rate, [steps])
    return [
        (own, tuple(part[index].clone() for part in ends)) for index, own in enumerate(problems)
    ]


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
