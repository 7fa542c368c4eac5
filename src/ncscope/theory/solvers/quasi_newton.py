"""A fast way to a minimum: limited-memory BFGS in float64."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ncscope.theory.surrogates.problem import Point, Problem


@dataclass(frozen=True)
class Found:
    """Where a solver stopped.

    Attributes:
        point: The point.
        objective: Its objective.
        gradient_norm: Euclidean norm of the gradient there.
        evaluations: How often objective and gradient were computed.
    """

    point: Point
    objective: float
    gradient_norm: float
    evaluations: int


def quasi_newton(problem: Problem, start: Point, limit: int = 20_000) -> Found:
    """Minimise from a start by limited-memory BFGS, as far as float64 allows.

    Args:
        problem: What to minimise.
        start: Where to begin.
        limit: The most iterations.

    Returns:
        The last point. Whether it is a minimum, its gradient's norm tells.
    """

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = _unflatten(torch.from_numpy(flat), start)
        with torch.no_grad():
            value, slopes = problem.objective(point), problem.gradient(point)
        return float(value), _flatten(slopes).numpy()

    options = {"maxiter": limit, "maxfun": 10 * limit, "ftol": 0.0, "gtol": 0.0, "maxcor": 30}
    done = minimize(evaluate, _flatten(start).numpy(), jac=True, method="L-BFGS-B", options=options)
    return Found(
        point=_unflatten(torch.from_numpy(done.x), start),
        objective=float(done.fun),
        gradient_norm=float(np.linalg.norm(done.jac)),
        evaluations=int(done.nfev),
    )


def _flatten(point: Point) -> Tensor:
    return torch.cat([part.reshape(-1) for part in point])


def _unflatten(flat: Tensor, like: Point) -> Point:
    pieces = flat.split([part.numel() for part in like])
    return tuple(piece.view(part.shape) for piece, part in zip(pieces, like, strict=True))
