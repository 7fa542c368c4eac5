"""Moments of features and targets of a regression, in one pass, for any batches and merging."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_magnitude, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.labels import split_batches
from ncscope.math.powers import STREAM_LIMIT, exponent_of
from ncscope.math.symmetric import add_gram_, mirror_upper
from ncscope.stats.locking import Moments
from ncscope.stats.merging import MergeParts

_SUMS = ("scatter", "cross", "target_scatter", "directions", "zero_vectors")
_STATE = ("means", "target_means", *_SUMS)


@check_arguments
class RegressionMoments(Moments):
    r"""Means, scatters and second moment of directions of a stream of features and targets.

    All that neural regression collapse needs: the share of $\tilde h=h/\lVert h\rVert$ outside of a
    subspace, averaged over samples, is the trace of $\frac1n\sum_i\tilde h_i\tilde h_i^\top$ there,
    so no second pass is needed. Values from moments carry an absolute error of about
    $10^{-15}$; `ncscope.measure_regression` on arrays resolves smaller values.

    ``merge`` and ``+`` add the samples of two streams, `sum` adds a list, and
    `ncscope.stats.merging.merge_across_processes` those of several processes. All can be pickled.

    Args:
        device: Device to accumulate on, in float64; batches are moved to this device.

    Attributes:
        dim: Feature dimension d; 0 before the first batch.
        target_dim: Target dimension t; 0 before the first batch.
        counts: Number of samples, as a tensor of one entry.
        means: Mean of the features, 1 x d.
        target_means: Mean of the targets, 1 x t.
        cross: $\sum_i(h_i-\bar h)(y_i-\bar y)^\top$, d x t.
        target_scatter: $\sum_i(y_i-\bar y)(y_i-\bar y)^\top$, t x t.
        zero_vectors: Number of features that are zero and so have no direction.

    Example:
        >>> moments = RegressionMoments()
        >>> for batch in torch.arange(6.0).view(2, 3):
        ...     moments.update(batch[:, None], 2 * batch)
        >>> moments.means.item(), moments.cross.item(), moments.target_scatter.item()
        (2.5, 35.0, 70.0)
    """

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        super().__init__(device)
        self.counts = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.zero_vectors = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._allocate(0, 0)

    def update(self, features: Any, targets: Any) -> None:
        r"""Add a batch of any size; a batch that is refused changes nothing.

        Args:
            features: n x d array-like of any real dtype.
            targets: n x t array-like, or n numbers for t = 1.

        Raises:
            InputError: If shapes do not fit, a number is NaN or infinite, or the largest magnitude
                is beyond $2^{\pm470}$.

        Cost: $\frac52nd^2+2ndt$ operations in float64.
        """
        rows = as_tensor(features, "features").to(self.device)
        check_features(rows, self.dim or None)
        values = check_targets(targets, len(rows), self.target_dim or None).to(self.device)
        check_numbers(rows, values)
        if len(rows):
            batch = _sum_batch(rows.to(torch.float64), values.to(torch.float64))
            batch.device = self.device
            self.merge(batch)

    def merge(self, other: "RegressionMoments") -> "RegressionMoments":
        """Add the samples of other moments, and return these moments.

        Raises:
            InputError: If dimensions of features or targets differ.
        """
        other = copy.copy(other)  # under its lock; it may be these moments themselves
        if self.dim and other.dim and self._form() != other._form():
            raise InputError(
                expected=f"moments of {self._form()}",
                found=f"moments of {other._form()}",
                fix="measure one layer with one accumulator",
            )
        with self.lock:
            if not self.dim:
                self._allocate(other.dim, other.target_dim)
            if int(other.counts):  # without samples in both, the share below would be 0 / 0
                state = {name: getattr(other, name).to(self.device) for name in _STATE}
                theirs = other.counts.to(self.device)
                # The update of Chan, Golub and LeVeque: sums about two means add up, and the
                # distance of the means adds the product of both weights.
                share = theirs.to(torch.float64) / (self.counts + theirs)
                weight = (self.counts * share).sqrt()
                shift = state["means"] - self.means
                turn = state["target_means"] - self.target_means
                for name in _SUMS:
                    getattr(self, name).add_(state[name])
                self._add_products(weight * shift, weight * turn)
                self.means += share * shift
                self.target_means += share * turn
                self.counts += theirs
        return self

    def split_for_merge(self) -> MergeParts:
        """Return the statistics for a merge with those of other processes, not copied."""
        means = {"means": self.means, "target_means": self.target_means}
        sums = {name: getattr(self, name) for name in _SUMS}
        return MergeParts({"moments": self._form()}, self.counts, means, sums, self._refer)

    def full_scatter(self) -> Float[Tensor, "d d"]:
        r"""Return $\sum_i(h_i-\bar h)(h_i-\bar h)^\top$."""
        return mirror_upper(self.scatter)

    def full_directions(self) -> Float[Tensor, "d d"]:
        r"""Return $\sum_i\tilde h_i\tilde h_i^\top$, $\tilde h=h/\lVert h\rVert$ not centred."""
        return mirror_upper(self.directions)

    def _allocate(self, dim: int, target_dim: int) -> None:
        self.dim, self.target_dim = dim, target_dim
        self.means, self.target_means = self._zeros(1, dim), self._zeros(1, target_dim)
        # Of both symmetric matrices, the blocks above the diagonal alone.
        self.scatter, self.directions = self._zeros(dim, dim), self._zeros(dim, dim)
        self.cross = self._zeros(dim, target_dim)
        self.target_scatter = self._zeros(target_dim, target_dim)

    def _refer(self, rows: slice, shift: Mapping[str, Tensor]) -> None:
        """Refer the scatters to other means: see `MergeParts.refer`."""
        weight = self.counts.to(torch.float64).sqrt()
        self._add_products(weight * shift["means"], weight * shift["target_means"])

    def _add_products(self, rows: Float[Tensor, "n d"], targets: Float[Tensor, "n t"]) -> None:
        add_gram_(self.scatter, rows)
        self.cross.addmm_(rows.mT, targets)
        self.target_scatter.addmm_(targets.mT, targets)

    def _form(self) -> str:
        return f"features of dimension {self.dim} and targets of dimension {self.target_dim}"


def check_numbers(features: Shaped[Tensor, "n d"], targets: Shaped[Tensor, "n t"]) -> None:
    """Refuse features or targets that are not finite, or whose squares leave the range of float64.

    Raises:
        InputError: If one of the two does; the message says which.
    """
    for what, numbers in (("features", features), ("targets", targets)):
        refuse_nonfinite(numbers, what)
        if len(numbers):
            refuse_magnitude(exponent_of(numbers, STREAM_LIMIT), STREAM_LIMIT, what, scaled_by="")


def check_targets(targets: Any, samples: int, dim: int | None = None) -> Shaped[Tensor, "n t"]:
    """Return targets as an n x t matrix.

    Args:
        targets: n x t array-like, or n numbers; or a list of batches of these.
        samples: Number of samples n.
        dim: Required target dimension; None for any.

    Raises:
        InputError: If the shape does not fit, or the targets are not real.
    """
    batches = split_batches(targets, samples, "targets") or [targets]
    parts = [as_tensor(batch, "targets") for batch in batches]
    values = torch.cat(parts) if len(parts) > 1 else parts[0]
    values = values[:, None] if values.ndim == 1 else values
    shape = tuple(values.shape)
    if values.ndim != 2 or len(values) != samples or 0 in shape[1:] or dim not in (None, shape[1]):
        expected = f"targets of shape ({samples}, {'t' if dim is None else dim})"
        fix = "pass one row of targets for each row of features"
        raise InputError(expected=expected, found=f"shape {shape}", fix=fix)
    if values.is_complex() or values.dtype == torch.bool:
        found, fix = f"dtype {values.dtype}", "convert them first"
        raise InputError(expected="real targets", found=found, fix=fix)
    return values


def _sum_batch(rows: Float[Tensor, "n d"], targets: Float[Tensor, "n t"]) -> RegressionMoments:
    """Return the moments of one batch."""
    batch = RegressionMoments(device=rows.device)
    batch._allocate(rows.shape[1], targets.shape[1])
    batch.counts += len(rows)
    batch.means += rows.mean(0)
    batch.target_means += targets.mean(0)
    batch._add_products(rows - batch.means, targets - batch.target_means)
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    add_gram_(batch.directions, rows / torch.where(lengths > 0, lengths, 1.0))
    batch.zero_vectors += (lengths == 0).sum()
    return batch
