"""The manifold of renormalised features, and steps on it (MSE D.2 and D.3).

Features are d x N, ordered by class, with n samples of each of K classes. The paper writes C for K,
N for n and P for d.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import simplex_basis
from ncscope_lab.surrogates.dynamics.manifold import (
    constraint_derivative,
    oblique_adjoint,
    oblique_projection,
    orthogonal_projection,
)
from ncscope_lab.surrogates.dynamics.snr import (
    Alignment,
    renormalise,
    split,
    spread_over_samples,
)
from ncscope_lab.theory.search import integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_INSTANCES = 12


@dataclass(frozen=True)
class ManifoldPoint:
    """Renormalised features, with the singular value decomposition of their SNR matrix."""

    k: int
    n: int
    features: Float[Tensor, "d n"]
    snr: Alignment

    @property
    def modes(self) -> Float[Tensor, "m n"]:
        """Return a direction of the features for each singular value: rows of V^T Y."""
        return spread_over_samples(self.snr.right.mT, self.n)

    def moving(self, rates: Float[Tensor, " m"]) -> Float[Tensor, "d n"]:
        """Return the motion that changes each singular value at its rate, and nothing else."""
        return self.snr.left * rates @ self.modes

    def at(self, values: Float[Tensor, " m"]) -> Float[Tensor, "d n"]:
        """Return the features with other singular values."""
        return self.moving(values) + split(self.features, self.k).within

    def rates(self, motion: Float[Tensor, "d n"]) -> Float[Tensor, " m"]:
        """Return the rates at which singular values change."""
        classes = split(motion, self.k).classes
        return (self.snr.left.mT @ classes @ self.snr.right).diag()


def points(generator: torch.Generator, count: int = _INSTANCES) -> Iterator[ManifoldPoint]:
    """Yield points of the manifold, with singular values from 0.03 to 30 and 2 to 6 classes."""
    for _ in range(count):
        k = integer(2, 6, generator)
        d = k + integer(0, 3, generator)
        n = -(-d // k) + integer(1, 4, generator)
        values = sorted((magnitude(-1.5, 1.5, generator) for _ in range(k - 1)), reverse=True)
        left, _ = torch.linalg.qr(normal(d, k - 1, generator=generator))
        turn, _ = torch.linalg.qr(normal(k - 1, k - 1, generator=generator))
        snr = Alignment(left, torch.tensor(values, dtype=torch.float64), simplex_basis(k) @ turn)
        noise = renormalise(normal(d, n * k, generator=generator), k)
        within = split(noise, k).within
        classes = snr.left * snr.values @ snr.right.mT
        yield ManifoldPoint(k, n, within + spread_over_samples(classes, n), snr)


def raw_features(
    point: ManifoldPoint, generator: torch.Generator, *, symmetric: bool = False
) -> Float[Tensor, "d n"]:
    """Return the features in other coordinates, of condition at most 100, with a global mean."""
    return coordinates(len(point.features), generator, symmetric) @ point.features + normal(
        len(point.features), 1, generator=generator
    )


def coordinates(d: int, generator: torch.Generator, symmetric: bool) -> Float[Tensor, "_d _d"]:
    """Draw an invertible matrix of condition 100 at most."""
    left, _ = torch.linalg.qr(normal(d, d, generator=generator))
    right, _ = torch.linalg.qr(normal(d, d, generator=generator))
    sizes = [magnitude(-1, 1, generator) for _ in range(d)]
    values = torch.tensor(sizes, dtype=torch.float64)
    signs = normal(d, generator=generator).sign()
    return left * (signs * values) @ (left if symmetric else right).mT


def slope_at_zero(function: Callable[[float], Tensor]) -> Tensor:
    """Differentiate an analytic function by central differences extrapolated to step 0."""
    steps = [0.5**level for level in range(5)]
    row = [(function(step) - function(-step)) / (2 * step) for step in steps]
    for order in range(1, len(row)):
        share = 4**order
        row = [(share * b - a) / (share - 1) for a, b in pairwise(row)]
    return row[0]


def far(computed: Tensor, expected: Tensor) -> float:
    """Return the distance relative to the norm of the expected tensor."""
    return float((computed - expected).norm() / expected.norm())


def tangent_space(generator: torch.Generator) -> Iterator[float]:
    """MSE proposition 3: velocities of curves on the manifold, and the dimension."""
    for point in points(generator, 6):
        x, k = point.features, point.k
        step = 0.05 * normal(*x.shape, generator=generator)
        velocity = _motion_with_renormalisation(x, step, k)
        yield float(constraint_derivative(x, velocity, k).norm() / velocity.norm())
        d, size = len(x), x.numel()
        units = torch.eye(size, dtype=torch.float64).view(size, *x.shape)
        changes = torch.stack([constraint_derivative(x, unit, k).reshape(-1) for unit in units])
        rank = int(torch.linalg.matrix_rank(changes, rtol=1e-9))
        yield abs(rank / (d * (d + 1) / 2) - 1)


def projects(generator: torch.Generator) -> Iterator[float]:
    """MSE proposition 4: the map goes into the tangent space, and is the identity on it."""
    for point in points(generator):
        direction = normal(*point.features.shape, generator=generator)
        image = oblique_projection(point.features, direction, point.k)
        yield float(constraint_derivative(point.features, image, point.k).norm() / image.norm())
        tangent = orthogonal_projection(point.features, direction, point.k)
        yield far(oblique_projection(point.features, tangent, point.k), tangent)


def self_adjoint(generator: torch.Generator) -> Iterator[float]:
    r"""$\langleΠ Z,W\rangle=\langle Z,Π W\rangle$, as the proof of MSE lemma 4 assumes."""
    for point in points(generator):
        z = normal(*point.features.shape, generator=generator)
        w = oblique_projection(point.features, z, point.k)
        there = (w * w).sum() - (z * oblique_projection(point.features, w, point.k)).sum()
        yield float(there.abs() / (z.norm() * w.norm()))


def adjoint(generator: torch.Generator) -> Iterator[float]:
    """Check that the adjoint is another map; the orthogonal projection is its own adjoint."""
    for point in points(generator):
        x, k = point.features, point.k
        z, w = (normal(*x.shape, generator=generator) for _ in range(2))
        first, second = oblique_projection(x, z, k), oblique_adjoint(x, w, k)
        yield float(((first * w).sum() - (z * second).sum()).abs() / (first.norm() * w.norm()))
        near, other = orthogonal_projection(x, z, k), orthogonal_projection(x, w, k)
        yield float(((near * w).sum() - (z * other).sum()).abs() / (z.norm() * w.norm()))
        yield far(oblique_projection(x, near, k), near)
        yield far(orthogonal_projection(x, first, k), first)


def step_with_renormalisation(generator: torch.Generator) -> Iterator[float]:
    r"""MSE lemma 2: the derivative of $\Sigma_W^{-1/2}(X+\epsilon Z)\,(X+\epsilon Z)$ at 0."""
    for point in points(generator):
        x, k = point.features, point.k
        z = 0.05 * normal(*x.shape, generator=generator)
        z = z - z.mean(1, keepdim=True)
        moved = _motion_with_renormalisation(x, z, k)
        yield float((moved - oblique_projection(x, z, k)).norm() / x.norm())


def _motion_with_renormalisation(
    features: Float[Tensor, "d n"], direction: Float[Tensor, "d n"], k: int
) -> Float[Tensor, "d n"]:
    return slope_at_zero(lambda step: renormalise(features + step * direction, k))


STATEMENTS = (
    Statement(
        id="mse/proposition-3",
        statement="The tangent space of {X: X C X^T = I} is {Z: X C Z^T + Z C X^T = 0}.",
        source="MSE proposition 3",
        tolerance=TOLERANCE,
        printed=tangent_space,
    ),
    Statement(
        id="mse/proposition-4",
        statement=(
            "Z - 1/2 (X C Z^T + Z C X^T) X is a projection: the result is tangent, and equals Z "
            "if Z is tangent."
        ),
        source="MSE proposition 4",
        tolerance=TOLERANCE,
        printed=projects,
    ),
    Statement(
        id="mse/proposition-4-adjoint",
        statement=(
            "The projection of proposition 4 is self-adjoint; corrected: its adjoint is "
            "Z - 1/2 (X Z^T + Z X^T) X C, and the self-adjoint projection onto the same space is "
            "Z - CN/2 (X C Z^T + Z C X^T) X C."
        ),
        source="MSE proof of lemma 4",
        tolerance=TOLERANCE,
        printed=self_adjoint,
        corrected=adjoint,
        grade="false",
    ),
    Statement(
        id="mse/lemma-2",
        statement=(
            "A renormalised step from X to Sigma_W^-1/2(X + D)(X + D) is X + Pi(D) + O(|D|^2), "
            "Pi the projection of proposition 4."
        ),
        source="MSE lemma 2",
        tolerance=TOLERANCE,
        printed=step_with_renormalisation,
    ),
)
