"""Balanced classes in the notation of the MSE paper, and its loss as a sum over samples.

Features are P x CN, with one sample per column, ordered by class.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.frames import simplex_basis
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope_lab.theory.search import choice, integer, magnitude, normal


@dataclass(frozen=True)
class Classes:
    r"""Features $H$ of C balanced classes of N samples, and the paper's derived quantities.

    Attributes:
        features: $H$.
        k: Number of classes C.
    """

    features: Float[Tensor, "p m"]
    k: int

    @property
    def per_class(self) -> int:
        """Number of samples N of a class."""
        return self.features.shape[1] // self.k

    @cached_property
    def targets(self) -> Float[Tensor, "k m"]:
        """One-hot labels $Y$."""
        one_hot = torch.eye(self.k, dtype=torch.float64)
        return one_hot.repeat_interleave(self.per_class, 1)

    @cached_property
    def means(self) -> Float[Tensor, "p k"]:
        """Class means."""
        return self.features.unflatten(1, (self.k, self.per_class)).mean(2)

    @cached_property
    def centred(self) -> Float[Tensor, "p m"]:
        r"""$\bar H$: features minus the global mean."""
        return self.features - self.features.mean(1, keepdim=True)

    @cached_property
    def centred_means(self) -> Float[Tensor, "p k"]:
        r"""$\bar M$."""
        return self.means - self.means.mean(1, keepdim=True)

    @cached_property
    def noise(self) -> Float[Tensor, "p m"]:
        """Return the deviation of each sample from its class mean."""
        return self.features - self.means.repeat_interleave(self.per_class, 1)

    @cached_property
    def within(self) -> Float[Tensor, "p p"]:
        r"""$\Sigma_W$."""
        return self.noise @ self.noise.mT / self.features.shape[1]

    @cached_property
    def total(self) -> Float[Tensor, "p p"]:
        r"""$\Sigma_T$."""
        return self.centred @ self.centred.mT / self.features.shape[1]

    @cached_property
    def extended(self) -> "Classes":
        r"""Return the classes with extended features $[h;1]$ for $h$."""
        return Classes(torch.cat([self.features, torch.ones_like(self.features[:1])]), self.k)

    def with_noise(self, scale: float) -> "Classes":
        r"""Return classes with the same means and $s^2\Sigma_W$ for $\Sigma_W$."""
        return Classes(self.features + (scale - 1) * self.noise, self.k)

    def statistics(self) -> ClassStatistics:
        """Return the statistics from which the package computes its metrics."""
        moments = ClassMoments(self.k, self.features.shape[0], statistics=("scatter",))
        moments.update(self.features.mT, torch.arange(self.k).repeat_interleave(self.per_class))
        return finish(moments)


def loss(
    classes: Classes, classifier: Float[Tensor, "k e"], decay: float = 0.0
) -> Float[Tensor, ""]:
    """MSE (3), sample by sample."""
    missed = classifier @ classes.extended.features - classes.targets
    return missed.square().sum(0).mean() / 2 + decay / 2 * classifier.square().sum()


def best_classifier(classes: Classes, decay: float = 0.0) -> Float[Tensor, "k e"]:
    """Return the minimiser of least norm, by an SVD instead of normal equations."""
    inputs, targets = classes.extended.features.mT, classes.targets.mT
    samples, size = inputs.shape
    ridge = (decay * samples) ** 0.5 * torch.eye(size, dtype=torch.float64)
    rows = torch.cat([inputs, ridge])
    padded = torch.cat([targets, targets.new_zeros(size, classes.k)])
    return torch.linalg.lstsq(rows, padded, driver="gelsd").solution.mT


def symmetric_power(matrix: Float[Tensor, "p p"], power: float) -> Float[Tensor, "p p"]:
    """Compute a power of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values**power @ vectors.mT


def draw_separated(
    ratios: Float[Tensor, " _r"], dim: int, generator: torch.Generator, *, plain: bool = False
) -> Classes:
    r"""Draw classes whose SNR matrix $\Sigma_W^{-1/2}\bar M$ has given singular values.

    Args:
        ratios: The C - 1 singular values.
        dim: P, at least the number of singular values.
        generator: Generator of N, the directions, a linear map of condition up to 10, and the mean.
        plain: Return renormalised features with mean 0, without map and shift, if True.
    """
    k = len(ratios) + 1
    per_class = 1 + -(-dim // k) + integer(0, 3, generator)
    noise = Classes(normal(dim, k * per_class, generator=generator), k).noise
    orthonormal, _ = torch.linalg.qr(noise.mT)
    sphered = (k * per_class) ** 0.5 * orthonormal.mT
    left, right = _orthogonal(dim, generator), _orthogonal(k - 1, generator)
    means = left[:, : k - 1] * ratios @ (simplex_basis(k) @ right).mT
    features = sphered + means.repeat_interleave(per_class, 1)
    if plain:
        return Classes(features, k)
    spectrum = torch.logspace(0, -magnitude(-3, 0, generator), dim, dtype=torch.float64)
    linear = _orthogonal(dim, generator) * spectrum @ _orthogonal(dim, generator)
    moved = magnitude(-1, 1, generator) * (linear @ features)
    shift = normal(dim, 1, generator=generator) * moved.square().mean().sqrt()
    return Classes(moved + magnitude(-1, 0.5, generator) * shift, k)


def signal_to_noise(
    generator: torch.Generator, low: float = 0.05, high: float = 10.0
) -> Iterator[Float[Tensor, " _r"]]:
    """Yield singular values of SNR matrices of 2 to 8 classes: equal, random, or extreme."""
    for k in (2, 2, 3, 4, 5, 8):
        flat = torch.full((k - 1,), 1.0, dtype=torch.float64)
        yield flat * low
        yield flat * high
        for _ in range(2):
            share = torch.rand(k - 1, dtype=torch.float64, generator=generator)
            yield low * (high / low) ** share
        ends = flat * high
        ends[0] = low
        yield ends


def any_classes(generator: torch.Generator) -> Iterator[tuple[Classes, float]]:
    r"""Yield features and weight decays $\lambda$ for which $\tilde W_{LS}$ is defined.

    With $\lambda>0$ the instances include fewer samples than dimensions, one sample per class, and
    collapsed or coinciding classes. With $\lambda=0$ the extended features span the space.
    """
    for k in (2, 3, 5, 8):
        for _ in range(4):
            dim, per_class = integer(1, 12, generator), integer(1, 5, generator)
            scale = magnitude(-2, 2, generator)
            decay = magnitude(-4, 2, generator) * scale**2
            yield _draw(k, dim, per_class, scale, generator), decay
            yield _draw(k, dim, 2 + dim // k, scale, generator), 0.0


def _draw(k: int, dim: int, per_class: int, scale: float, generator: torch.Generator) -> Classes:
    means = normal(dim, k, generator=generator)
    means[:, 1] = choice((means[:, 0], means[:, 1]), generator)
    spread = choice((0.1, 1.0, 10.0), generator)
    noise = spread * normal(dim, k * per_class, generator=generator)
    features = means.repeat_interleave(per_class, 1) + noise
    offset = choice((0.0, 3.0), generator) * normal(dim, 1, generator=generator)
    return Classes(scale * (features + offset), k)


def _orthogonal(size: int, generator: torch.Generator) -> Float[Tensor, "d d"]:
    orthogonal, _ = torch.linalg.qr(normal(size, size, generator=generator))
    return orthogonal
