r"""Gradient flow of classifier and features together, off the central path or on it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.surrogates.dynamics.central_path import least_squares, least_squares_loss
from ncscope_lab.surrogates.dynamics.flows import integrate_velocity
from ncscope_lab.surrogates.dynamics.snr import split

_ROUNDING = 1e-15


@dataclass(frozen=True)
class State:
    """Classifier and features.

    Attributes:
        weight: $W$.
        bias: $b$.
        features: $H$, class by class.
    """

    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"]
    features: Float[Tensor, "d n"]


@dataclass(frozen=True)
class Distance:
    r"""Distance of a classifier from the least-squares classifier of its features.

    Attributes:
        loss: $\mathcal L$ without weight decay.
        least_squares: $\mathcal L_{LS}$, the loss of the best classifier. Its error is at least
            about 1e-15, as the within-class covariance degenerates when the loss vanishes.
        classifier: $\lVert W-W_{LS}\rVert_F/\lVert W_{LS}\rVert_F$; NaN for losses below this
            error.
    """

    loss: float
    least_squares: float
    classifier: float


def residual(state: State) -> Float[Tensor, "k n"]:
    r"""$WH+b\mathbf 1^\top-Y$."""
    k, n = len(state.weight), state.features.shape[1]
    labels = torch.eye(k, dtype=torch.float64).repeat_interleave(n // k, 1)
    return state.weight @ state.features + state.bias[:, None] - labels


def loss(state: State) -> Float[Tensor, ""]:
    r"""$\frac1{2N}\lVert WH+b\mathbf 1^\top-Y\rVert_F^2$; autograd can differentiate it."""
    return residual(state).square().sum() / (2 * state.features.shape[1])


def descent_direction(state: State) -> State:
    """Return minus the gradient of `loss`."""
    missed = residual(state) / -state.features.shape[1]
    return State(missed @ state.features.mT, missed.sum(1), state.weight.mT @ missed)


def distance(state: State) -> Distance:
    """Measure the distance of a state from the central path, by loss and by classifier."""
    k = len(state.weight)
    reached, least = float(loss(state)), float(least_squares_loss(state.features, k))
    if reached < _ROUNDING:
        return Distance(reached, least, math.nan)
    best, _ = least_squares(state.features, k)
    return Distance(reached, least, float((state.weight - best).norm() / best.norm()))


def flow_unrestricted(
    start: State, times: Sequence[float], tolerance: float = 1e-9
) -> Iterator[tuple[float, State]]:
    r"""$(\dot W,\dot b,\dot H)=-\nabla\mathcal L$, by LSODA.

    The rows of $\dot H$ are combinations of the rows of H, of the labels and of the vector of ones.
    Let Q have orthonormal rows that span all of these. Then $H=HQ^\top Q$ throughout, and $HQ^\top$
    satisfies a closed equation: at most d (K + d) variables instead of dN, without approximation.

    Args:
        start: Initial state; with the classifier `least_squares` it is on the central path.
        times: Times at which to yield, ascending and non-negative.
        tolerance: Allowed error per step, relative to each entry or to the largest entry.

    Yields:
        Time and state. The flow conserves $W^\top W-HH^\top$.
    """
    k, n = len(start.weight), start.features.shape[1]
    labels = torch.eye(k, dtype=torch.float64).repeat_interleave(n // k, 1)
    _, values, rows = torch.linalg.svd(split(start.features, k).within, full_matrices=False)
    basis = torch.cat([labels * (k / n) ** 0.5, rows[values > 0]])
    short = State(start.weight, start.bias, start.features @ basis.mT)
    targets, ones = labels @ basis.mT, basis.sum(1)

    def move(flat: Tensor) -> Tensor:
        here = _state(flat, short)
        missed = targets - here.weight @ here.features - here.bias[:, None] * ones
        slopes = (missed @ here.features.mT, missed @ ones, here.weight.mT @ missed)
        return _flat(State(*slopes)) / n

    def jacobian(flat: Tensor) -> Tensor:
        here, one = _state(flat, short), torch.eye(len(flat), dtype=torch.float64)
        missed = targets - here.weight @ here.features - here.bias[:, None] * ones
        weight, bias, features = _parts(one, short)
        change = -(weight @ here.features + here.weight @ features + bias[..., None] * ones)
        columns = (
            change @ here.features.mT + missed @ features.mT,
            change @ ones,
            weight.mT @ missed + here.weight.mT @ change,
        )
        return torch.cat([column.flatten(1) for column in columns], 1).mT / n

    steps = integrate_velocity(move, _flat(short), times, float(n), tolerance, jacobian)
    for time, flat in steps:
        here = _state(flat, short)
        yield time, State(here.weight, here.bias, here.features @ basis)


def _flat(state: State) -> Tensor:
    parts = (state.weight, state.bias, state.features)
    return torch.cat([part.reshape(-1) for part in parts])


def _state(flat: Tensor, like: State) -> State:
    return State(*_parts(flat, like))


def _parts(flat: Tensor, like: State) -> list[Tensor]:
    """Split the last dimension of one or many flat states into classifier, bias and features."""
    whole = (like.weight, like.bias, like.features)
    pieces = flat.split([part.numel() for part in whole], -1)
    batch = flat.shape[:-1]
    return [piece.reshape(batch + part.shape) for piece, part in zip(pieces, whole, strict=True)]
