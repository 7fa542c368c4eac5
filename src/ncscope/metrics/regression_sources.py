"""Features and targets of a regression, in memory or as moments, as sources of its metrics."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.devices import chunk_bytes
from ncscope.math.powers import rescale_rows
from ncscope.math.symmetric import symmetric_pairs
from ncscope.metrics.regression import RegressionSource
from ncscope.stats.regression_moments import RegressionMoments

_EPSILON = torch.finfo(torch.float64).eps
_CONSTANT = 8 * _EPSILON
"""Spread relative to the mean below which numbers are constant up to rounding."""


@dataclass(frozen=True)
class RegressionArrays(RegressionSource):
    """Features and targets in memory; distances are computed as distances.

    So values near zero have small relative errors, which differences such as one minus a share do
    not have.

    Args:
        features: Finite features of at least two samples.
        targets: Finite targets, float64, on the device of the features.
    """

    features: Shaped[Tensor, "n d"]
    targets: Float[Tensor, "n t"]

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.features)

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.features.shape[1]

    @property
    def target_dim(self) -> int:
        """Target dimension t."""
        return self.targets.shape[1]

    @cached_property
    def zero_vectors(self) -> int:
        """Number of features that are zero."""
        return int((self.features == 0).all(1).sum())

    def principal(self) -> tuple[Float[Tensor, " m"], Float[Tensor, "d m"]]:
        """Return singular values of the centred features, descending, and the components."""
        _, spread, components = self._decomposition
        return spread, components

    def target_axes(self) -> tuple[Float[Tensor, " t"], Float[Tensor, "t t"]]:
        """Return the targets' standard deviations along their principal axes, and the axes."""
        reduced = torch.linalg.qr(self.targets - self.targets.mean(0), mode="r").R
        _, spread, axes = torch.linalg.svd(reduced, full_matrices=True)
        deviations = self.targets.new_zeros(self.target_dim)
        deviations[: len(spread)] = spread / self.count**0.5
        cut = _EPSILON * max(self.count, self.target_dim) * deviations[0]
        cut = torch.maximum(cut, _CONSTANT * torch.linalg.vector_norm(self.targets.mean(0)))
        return torch.where(deviations > cut, deviations, 0.0), axes.mT

    def outside(self, basis: Float[Tensor, "d r"]) -> Float[Tensor, ""]:
        """Return the mean squared distance of the unit features from an orthonormal basis."""
        total = basis.new_zeros(())
        for rows, _ in self._chunks():
            rows, lengths = rescale_rows(rows)
            unit = rows / torch.where(lengths > 0, lengths, 1.0)[:, None]
            total += (unit - unit @ basis @ basis.mT).square().sum()
        return total / (self.count - self.zero_vectors)

    def head_error(
        self, weight: Float[Tensor, "t d"], bias: Float[Tensor, " t"]
    ) -> Float[Tensor, ""]:
        """Return the sum of squared errors of the head."""
        total = weight.new_zeros(())
        for rows, targets in self._chunks():
            total += (targets - rows @ weight.mT - bias).square().sum()
        return total

    def least_error(self) -> Float[Tensor, ""]:
        """Return the sum of squared errors of least squares with an intercept."""
        left, spread, _ = self._decomposition
        left, reduced = left[:, spread > 0], self._triangular_factor[:, self.dim :]
        return (reduced - left @ (left.mT @ reduced)).square().sum()

    @cached_property
    def _means(self) -> tuple[Float[Tensor, " d"], Float[Tensor, " t"]]:
        total = self.targets.new_zeros(self.dim)
        for rows, _ in self._chunks():
            total += rows.sum(0)
        return total / self.count, self.targets.mean(0)

    @cached_property
    def _triangular_factor(self) -> Float[Tensor, "m joint"]:
        """Triangular factor of the centred features and targets side by side.

        Unlike the scatter, the factor keeps singular values down to 1e-16 of the largest.
        """
        mean, target_mean = self._means
        reduced = self.targets.new_zeros(0, self.dim + self.target_dim)
        for rows, targets in self._chunks(least=4 * (self.dim + self.target_dim)):
            centred = torch.cat([rows - mean, targets - target_mean], dim=1)
            reduced = torch.linalg.qr(torch.cat([reduced, centred]), mode="r").R
        return reduced

    @cached_property
    def _decomposition(
        self,
    ) -> tuple[Float[Tensor, "m r"], Float[Tensor, " r"], Float[Tensor, "d r"]]:
        """Singular value decomposition of the centred features, in the rows of the factor."""
        left, spread, components = torch.linalg.svd(
            self._triangular_factor[:, : self.dim], full_matrices=False
        )
        cut = _EPSILON * max(self.count, self.dim) * spread[0]
        offset = torch.linalg.vector_norm(self._means[0])
        cut = torch.maximum(cut, _CONSTANT * self.count**0.5 * offset)
        return left, torch.where(spread > cut, spread, 0.0), components.mT

    def _chunks(
        self, least: int = 16
    ) -> Iterator[tuple[Float[Tensor, "m d"], Float[Tensor, "m t"]]]:
        """Yield features and targets in float64 by chunks of at least so many rows."""
        size = max(least, chunk_bytes(self.features.device) // (8 * self.dim))
        for rows, targets in zip(self.features.split(size), self.targets.split(size), strict=True):
            yield rows.to(torch.float64), targets


@dataclass(frozen=True)
class RegressionSums(RegressionSource):
    """Moments of features and targets; values have an absolute error of about 1e-15.

    Args:
        moments: Moments of at least two samples.
    """

    moments: RegressionMoments

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.moments.counts)

    @property
    def dim(self) -> int:
        """Feature dimension d."""
        return self.moments.dim

    @property
    def target_dim(self) -> int:
        """Target dimension t."""
        return self.moments.target_dim

    @property
    def zero_vectors(self) -> int:
        """Number of features that are zero."""
        return int(self.moments.zero_vectors)

    def principal(self) -> tuple[Float[Tensor, " m"], Float[Tensor, "d m"]]:
        """Return singular values of the centred features, descending, and the components."""
        values, components = self._eigen
        return values.sqrt(), components

    def target_axes(self) -> tuple[Float[Tensor, " t"], Float[Tensor, "t t"]]:
        """Return the targets' standard deviations along their principal axes, and the axes."""
        scatter, mean = self.moments.target_scatter, self.moments.target_means
        values, axes = _cut_eigen(scatter / self.count, mean, count=1)
        return values.sqrt(), axes

    def outside(self, basis: Float[Tensor, "d r"]) -> Float[Tensor, ""]:
        """Return the mean squared distance of the unit features from an orthonormal basis."""
        directions = self.moments.full_directions()
        # Projected from both sides, because one minus the trace inside cancels.
        rest = directions - basis @ (basis.mT @ directions)
        rest -= rest @ basis @ basis.mT
        return rest.trace().clamp(min=0) / (self.count - self.zero_vectors)

    def head_error(
        self, weight: Float[Tensor, "t d"], bias: Float[Tensor, " t"]
    ) -> Float[Tensor, ""]:
        """Return the sum of squared errors of the head."""
        moments = self.moments
        mean = moments.target_means[0] - weight @ moments.means[0] - bias
        fitted = (weight @ moments.full_scatter() * weight).sum()
        spread = moments.target_scatter.trace() - 2 * (weight * moments.cross.mT).sum() + fitted
        return self.count * mean.square().sum() + spread.clamp(min=0)

    def least_error(self) -> Float[Tensor, ""]:
        """Return the sum of squared errors of least squares with an intercept."""
        values, components = self._eigen
        cross = components[:, values > 0].mT @ self.moments.cross
        fitted = (cross.square().sum(1) / values[values > 0]).sum()
        return (self.moments.target_scatter.trace() - fitted).clamp(min=0)

    @cached_property
    def _eigen(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        return _cut_eigen(self.moments.full_scatter(), self.moments.means, self.count)


def _cut_eigen(
    scatter: Float[Tensor, "d d"], mean: Float[Tensor, "1 d"], count: int
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Return eigenpairs, descending, with eigenvalues that are rounding errors set to zero."""
    values, vectors = symmetric_pairs(scatter)
    cut = torch.maximum(
        _EPSILON * len(values) * values[0], count * _CONSTANT**2 * mean.square().sum()
    )
    return torch.where(values > cut, values, 0.0), vectors
