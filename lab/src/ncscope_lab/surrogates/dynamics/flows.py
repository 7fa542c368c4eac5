r"""The two flows on the central path in the features, and the discrete algorithm of one of them.

The flows do not use the laws of growth. They take the gradient of the loss in all d x N features
and a projection onto the tangent space of the manifold.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import solve_ivp
from torch import Tensor

from ncscope_lab.surrogates.dynamics.central_path import least_squares_gradient
from ncscope_lab.surrogates.dynamics.manifold import oblique_projection, orthogonal_projection
from ncscope_lab.surrogates.dynamics.snr import renormalise

Velocity = Callable[[Tensor, int], Tensor]
"""Function of renormalised features and the number of classes that returns dX/dt."""


def velocity_by_projection(
    features: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d n"]:
    r"""Riemannian gradient flow in the Frobenius metric: $-Π^\perp\nabla\mathcal L_{LS}(X)$.

    At renormalised features this is $\dot X=\sum_j\frac{\omega_j}{n(K+\omega_j^2)^2}u_jv_j^\top Y$:
    only class means move. Source: MSE (5), with the projection for which MSE lemma 5 holds.
    """
    slope = least_squares_gradient(features, num_classes)
    return -orthogonal_projection(features, slope, num_classes)


def velocity_by_renormalisation(
    features: Float[Tensor, "d n"], num_classes: int
) -> Float[Tensor, "d n"]:
    r"""Limit of renormalised gradient steps for small step sizes: $-Π\nabla\mathcal L_{LS}(X)$.

    At renormalised features $\dot X=\sum_j\frac{\omega_j}{nK(K+\omega_j^2)}u_jv_j^\top Y$.
    Source: MSE (5), with the projection of MSE proposition 4.
    """
    slope = least_squares_gradient(features, num_classes)
    return -oblique_projection(features, slope, num_classes)


def flow(
    velocity: Velocity,
    start: Float[Tensor, "d n"],
    num_classes: int,
    times: Sequence[float],
    tolerance: float = 1e-9,
) -> Iterator[tuple[float, Float[Tensor, "d n"]]]:
    """Integrate a velocity in all d x N features by LSODA (Adams, or BDF if it is stiff).

    Cost: the solver stores (dN)^2 numbers.

    Args:
        velocity: `velocity_by_projection` or `velocity_by_renormalisation`.
        start: Renormalised features.
        num_classes: K.
        times: Times at which to yield, ascending and non-negative.
        tolerance: Allowed error per step, relative to each entry or to the largest entry.

    Yields:
        Time and features.
    """

    def move(flat: Tensor) -> Tensor:
        return velocity(flat.view(start.shape), num_classes).reshape(-1)

    unit = float(start.shape[1] * num_classes)
    for time, flat in integrate_velocity(move, start.reshape(-1), times, unit, tolerance):
        yield time, flat.view(start.shape)


def integrate_velocity(
    derivative: Callable[[Tensor], Tensor],
    start: Float[Tensor, " m"],
    times: Sequence[float],
    unit: float,
    tolerance: float,
    jacobian: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[tuple[float, Float[Tensor, " m"]]]:
    r"""Solve an autonomous equation by LSODA in $s=\log(1+t/unit)$.

    In $s$, growth like a power of t is exponential at a constant rate, and all decades of time cost
    equally many steps.

    Args:
        derivative: Derivative of the state.
        start: State at time 0.
        times: Times at which to yield, ascending and non-negative.
        unit: Time scale of the first changes.
        tolerance: Allowed error per step, relative to each entry or to the largest entry.
        jacobian: Jacobian of the derivative; None lets the solver use finite differences.

    Yields:
        Time and state.

    Raises:
        RuntimeError: If the solver fails.
    """

    def slow(s: float, flat: np.ndarray) -> np.ndarray:
        return (derivative(torch.from_numpy(flat)) * (unit * np.exp(s))).numpy()

    def slow_jacobian(s: float, flat: np.ndarray) -> np.ndarray:
        assert jacobian is not None
        return (jacobian(torch.from_numpy(flat)) * (unit * np.exp(s))).numpy()

    stops = np.log1p(np.asarray(times, dtype=float) / unit)
    done = solve_ivp(
        slow,
        (0.0, stops[-1]),
        start.numpy(),
        method="LSODA",
        t_eval=stops,
        rtol=tolerance,
        atol=tolerance * float(start.abs().max()),
        jac=None if jacobian is None else slow_jacobian,
    )
    if not done.success:
        raise RuntimeError(done.message)
    for time, state in zip(times, done.y.T, strict=True):
        yield float(time), torch.from_numpy(state.copy())


def descend_and_renormalise(
    start: Float[Tensor, "d n"], num_classes: int, rate: float, steps: int
) -> Iterator[Float[Tensor, "d n"]]:
    r"""Iterate $X\mapsto \Sigma_W^{-1/2}(X-\eta\nabla\mathcal L_{LS}(X))$.

    Source: MSE D.1.

    Args:
        start: Renormalised features.
        num_classes: K.
        rate: $\eta$.
        steps: Number of steps.

    Yields:
        Features after each step.
    """
    here = start
    for _ in range(steps):
        moved = here - rate * least_squares_gradient(here, num_classes)
        here = renormalise(moved, num_classes)
        yield here
