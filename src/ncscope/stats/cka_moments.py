"""Moments of several sets of features of the same samples, from which CKA is computed exactly."""

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_magnitude, refuse_nonfinite
from ncscope.devices import chunk_bytes
from ncscope.errors import InputError
from ncscope.math.hsic import LEAST_SAMPLES, estimate_hsic, kernel_alignment, rounding_of_hsic
from ncscope.math.powers import COPY_LIMIT, exponent_beyond, magnitude_of
from ncscope.memory import check_memory
from ncscope.stats.locking import Moments
from ncscope.stats.merging import MergeParts

Pair = tuple[int, int]

_SMALL_STATE = 64 * 2**20
"""Bytes up to which the memory that is left is not asked for."""


@check_arguments
class CkaMoments(Moments):
    r"""Sums of several sets of features, batch by batch, that determine CKA exactly.

    Let $x_i$ and $y_i$ be rows of two sets about a reference point near their mean,
    $p_i=\lVert x_i\rVert^2$ and $q_i=\lVert y_i\rVert^2$. The state of the pair is
    $C=\sum_ix_iy_i^\top$, $u=\sum_ip_iy_i$, $v=\sum_iq_ix_i$ and $F=\sum_ip_iq_i$. The state of a
    set is $P=\sum_ip_i$ and $s=\sum_ix_i$; those of the other set are $Q$ and $r$. The sums of the
    unbiased HSIC (`ncscope.math.hsic`) are
    $\operatorname{tr}\tilde K\tilde L=\lVert C\rVert_F^2-F$,
    $\mathbf 1^\top\tilde K\mathbf 1=\lVert s\rVert^2-P$ and
    $\mathbf 1^\top\tilde K\tilde L\mathbf 1=F+s^\top Cr-s^\top v-r^\top u$.

    When the mean drifts from the reference, the sums are referred to the new mean by exact
    identities. So batches of any size give the value of all samples at once, no n x n matrix is
    formed, and a large offset costs few digits.

    ``merge`` and ``+`` add the samples of two streams, `sum` adds a list, and
    `ncscope.stats.merging.merge_across_processes` those of several processes. All can be pickled.

    Args:
        pairs: Pairs (i, j) of sets to compare, by index; by default all pairs.
        device: Device to accumulate on, in float64; features are moved to this device.

    Attributes:
        dims: Dimension of each set of features; empty before the first batch.
        means: Reference points of all sets side by side, 1 x the sum of the dimensions.
        pairs: Pairs whose sums are kept, with i <= j, and every set with itself; empty before the
            first batch.

    Example:
        >>> moments = CkaMoments()
        >>> features = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> for batch in features.split(30):
        ...     moments.update(batch, 2 * batch + 1)
        >>> round(moments.cka()[0, 1].item(), 12)
        1.0
    """

    def __init__(
        self, pairs: Iterable[Pair] | None = None, *, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(device)
        self._choice = None if pairs is None else frozenset((min(p), max(p)) for p in pairs)
        self.dims: tuple[int, ...] = ()
        self.pairs: tuple[Pair, ...] = ()
        self.counts = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.means: Tensor
        self._allocate(())

    def update(self, *features: Any) -> None:
        r"""Add a batch; a batch that is refused changes nothing.

        Args:
            features: Sets of features, n x d array-likes with the same samples in the same order;
                the dimensions may differ.

        Raises:
            InputError: If there are fewer than two sets, the numbers of samples or a dimension
                differ, a feature is NaN or infinite, or the largest magnitude is beyond
                $2^{\pm150}$.

        Cost: $2n\,d_id_j$ operations in float64 for each pair.
        """
        sets = []
        for index, value in enumerate(features):
            rows = as_tensor(value, "features").to(self.device)
            check_features(rows, self.dims[index] if index < len(self.dims) else None)
            sets.append(rows)
        dims = tuple(rows.shape[1] for rows in sets)
        self._check_sizes([len(rows) for rows in sets], dims)
        step = max(256, chunk_bytes(self.device) // (8 * sum(dims)))
        with self.lock:
            # The count and all magnitudes are read together: one wait for an accelerator.
            numbers = [self.counts.to(torch.float64)]
            if len(sets[0]):
                numbers += [magnitude_of(rows).to(torch.float64)[None] for rows in sets]
            before, *magnitudes = torch.cat(numbers).tolist()
            for rows, magnitude in zip(sets, magnitudes, strict=False):
                if not math.isfinite(magnitude):
                    refuse_nonfinite(rows)
                refuse_magnitude(
                    exponent_beyond(magnitude, COPY_LIMIT), COPY_LIMIT, scaled_by="cka"
                )
            if not self.dims:
                self._allocate(dims)
            for start in range(0, len(sets[0]), step):
                chunk = [rows[start : start + step].to(torch.float64) for rows in sets]
                self._add(chunk, int(before) + start)

    def merge(self, other: "CkaMoments") -> "CkaMoments":
        """Add the samples of other moments of the same sets, and return these moments.

        Raises:
            InputError: If the dimensions or the pairs differ.
        """
        other = copy.copy(other)
        fits = not self.dims or not other.dims or self._form() == other._form()
        if not fits or self._choice != other._choice:
            raise InputError(
                expected=f"moments of {self._form()}",
                found=f"moments of {other._form()}",
                fix="build both alike",
            )
        with self.lock:
            if other.dims and not self.dims:
                self._allocate(other.dims)
            if int(other.counts):
                mine, theirs = self.counts, other.counts.to(self.device)
                old, new = self.means, other.means.to(self.device)
                self.means = old + theirs.to(torch.float64) / (mine + theirs) * (new - old)
                self._refer(old - self.means)
                other._refer((new - self.means).to(other.device))
                for total, part in zip(self._sums(), other._sums(), strict=True):
                    total += part.to(self.device)
                self.counts += theirs
        return self

    def split_for_merge(self) -> MergeParts:
        """Return the statistics for a merge with those of other processes, not copied."""
        names = [f"products {i} {j}" for i, j in self.pairs] + ["rests", "thirds", "fourths"]
        sums = dict(zip(names, self._sums(), strict=True))
        form = {"moments": self._form()}
        means = {"means": self.means}  # of the whole sample: there are no rows by class to refer
        return MergeParts(
            form, self.counts, means, sums, lambda rows, shift: self._refer(shift["means"])
        )

    def hsic(self) -> Float[Tensor, "s s"]:
        r"""Return the unbiased HSIC of every pair, in the squared units of both; NaN if not kept.

        A set's HSIC with itself is 0 if it cannot be told from rounding error.

        Raises:
            InputError: If there are fewer than 4 samples.
        """
        with self.lock:
            count = int(self.counts)
            if count < LEAST_SAMPLES:
                fix = "pass more samples"
                raise InputError(
                    expected="at least 4 samples for the unbiased HSIC", found=f"{count}", fix=fix
                )
            result = self.means.new_full((len(self.dims),) * 2, torch.nan)
            rests, traces = self._split(self._rests[0]), self._traces()
            for i, j in self.pairs:
                cross, fourth = self._products[i, j], self._fourths[i, j]
                first, second = rests[i], rests[j]
                third = self._split(self._thirds[j])[i], self._split(self._thirds[i])[j]
                products = torch.linalg.matrix_norm(cross).square()
                totals = (first @ first - traces[i]) * (second @ second - traces[j])
                rows = fourth + first @ cross @ second
                rows -= first @ third[0] + second @ third[1]
                value = estimate_hsic(products - fourth, totals, rows, count)
                if i == j:
                    # Of a constant set the value is rounding error, and CKA would be any number.
                    least = rounding_of_hsic(products + fourth, totals, rows, count)
                    value = torch.where(value > least, value, 0.0)
                result[i, j] = result[j, i] = value
        return result

    def cka(self) -> Float[Tensor, "s s"]:
        r"""Return the CKA of every pair, in $[-1,1]$; NaN for pairs not kept and constant sets.

        Raises:
            InputError: If there are fewer than 4 samples.
        """
        hsic = self.hsic()
        itself = hsic.diagonal()
        return kernel_alignment(hsic, itself[:, None].expand_as(hsic), itself.expand_as(hsic))

    def _check_sizes(self, lengths: Sequence[int], dims: tuple[int, ...]) -> None:
        if len(dims) < 2 or (self.dims and len(dims) != len(self.dims)):
            expected = f"{len(self.dims) or 'at least two'} sets of features"
            fix = "pass the features of the same samples, moments.update(first, second)"
            raise InputError(expected=expected, found=f"{len(dims)}", fix=fix)
        if len(set(lengths)) > 1:
            found = f"{', '.join(map(str, lengths))} rows"
            fix = "pass the features of the same samples, in the same order"
            raise InputError(expected="as many rows in every set", found=found, fix=fix)
        outside = [pair for pair in self._choice or () if not 0 <= pair[0] <= pair[1] < len(dims)]
        if outside:
            fix = f"number the sets from 0 to {len(dims) - 1}"
            raise InputError(expected="pairs of these sets", found=f"{outside[0]}", fix=fix)

    def _allocate(self, dims: tuple[int, ...]) -> None:
        """Make the sums of no samples of sets of these dimensions."""
        itself = {(i, i) for i in range(len(dims))}
        every = {(i, j) for i in range(len(dims)) for j in range(i, len(dims))}
        pairs = tuple(sorted(every if self._choice is None else itself | self._choice & every))
        needed = 8 * (sum(dims[i] * dims[j] for i, j in pairs) + (len(dims) + 2) * sum(dims))
        if self.device.type == "cpu" and needed > _SMALL_STATE:
            widest = f"{len(pairs)} pairs of sets of up to {max(dims):,} features"
            fix = "average feature maps (pool=True), or compare fewer layers"
            check_memory(needed, f"the products of {widest}", fix)
        self.dims, self.pairs = dims, pairs
        self.means = self._zeros(1, sum(dims))
        self._rests = self._zeros(1, sum(dims))
        self._products = {(i, j): self._zeros(dims[i], dims[j]) for i, j in self.pairs}
        self._thirds = self._zeros(len(dims), sum(dims))
        self._fourths = self._zeros(len(dims), len(dims))

    def _sums(self) -> list[Tensor]:
        return [*self._products.values(), self._rests, self._thirds, self._fourths]

    def _split(self, stacked: Float[Tensor, "... total"]) -> tuple[Tensor, ...]:
        """Split the last axis into the sets."""
        return stacked.split(self.dims, dim=-1)

    def _traces(self) -> list[Tensor]:
        return [self._products[i, i].diagonal().sum() for i in range(len(self.dims))]

    def _add(self, sets: Sequence[Float[Tensor, "n _d"]], before: int) -> None:
        """Add rows about the reference means, after moving these if the mean has drifted.

        Args:
            sets: Rows to be added.
            before: Number of samples that were added before.
        """
        batch = torch.cat([rows.mean(0) for rows in sets])[None]
        count = len(sets[0])
        mean = self.means + self._rests / max(before, 1)
        new = mean + count / (before + count) * (batch - mean)
        # About a point far from the rows, the fourth-order sums would be dominated by powers of the
        # distance, and the differences in which they cancel would lose their digits.
        if not before or self._has_drifted(sets, before, batch, mean, new):
            self._refer(self.means - new)
            self.means = new
        self.counts += count
        both = zip(sets, self._split(self.means[0]), strict=True)
        stacked = torch.cat([rows - part for rows, part in both], dim=1)
        parts = self._split(stacked)
        squares = torch.stack([part.square().sum(1) for part in parts])
        for (i, j), total in self._products.items():
            total.addmm_(parts[i].mT, parts[j])
        self._rests += stacked.sum(0)
        self._thirds.addmm_(squares, stacked)
        self._fourths.addmm_(squares, squares.mT)

    def _has_drifted(
        self,
        sets: Sequence[Float[Tensor, "n _d"]],
        before: int,
        batch: Float[Tensor, "1 total"],
        mean: Float[Tensor, "1 total"],
        new: Float[Tensor, "1 total"],
    ) -> bool:
        """Return whether the mean of a set would be half a standard deviation from its reference.

        Moving the reference reads all sums. It need not be the mean: the sums are exact about any
        point, and a point among the rows costs no digits.

        Args:
            sets: Rows to be added.
            before: Number of samples that were added before, at least 1.
            batch: Means of these rows.
            mean: Means of the rows that were added before.
            new: Means of both.
        """
        count, traces = len(sets[0]), self._traces()
        vectors = (self.means[0], batch[0], mean[0], new[0], self._rests[0])
        parts = zip(sets, traces, *map(self._split, vectors), strict=True)
        excesses = []
        for rows, trace, reference, batch_mean, old_mean, new_mean, rest in parts:
            # Total squared distance from the mean of all, by the update of Chan, Golub and LeVeque:
            # of the samples before, of the batch, and between both means.
            spread = trace - rest @ rest / before + (rows - batch_mean).square().sum()
            between = (batch_mean - old_mean).square().sum()
            spread = spread + before * count / (before + count) * between
            drift = (before + count) * (new_mean - reference).square().sum()
            excesses.append(drift - spread / 4)
        return bool(torch.stack(excesses).max() > 0)

    def _refer(self, shift: Float[Tensor, "1 total"]) -> None:
        r"""Refer the sums to other means, by expanding every product of rows $x_i+m$.

        With $m$ and $l$ the shifts of both sets, $\lVert x_i+m\rVert^2=p_i+2m^\top x_i+\lVert
        m\rVert^2$, and the new $F$, $u$, $v$ and $C$ are sums of products of such terms. Sums of
        higher order are referred first, because each uses the old sums of lower order.

        Args:
            shift: Old means less new means, $m$ of all sets side by side.
        """
        count = self.counts[0].to(torch.float64)
        moves, rests, traces = self._split(shift[0]), self._split(self._rests[0]), self._traces()
        thirds = [self._split(row) for row in self._thirds]
        # Change of the sum of squared lengths, but for the part that is common to all rows.
        lengths = [move.square().sum() for move in moves]
        drifts = [2 * move @ rest for move, rest in zip(moves, rests, strict=True)]
        images = {}  # of each shift under the products of its set with another
        for (i, j), cross in self._products.items():
            images[i, j], images[j, i] = moves[i] @ cross, cross @ moves[j]
            added = 2 * thirds[i][j] @ moves[j] + 2 * thirds[j][i] @ moves[i]
            added += 4 * images[i, j] @ moves[j] + count * lengths[i] * lengths[j]
            added += lengths[j] * (traces[i] + drifts[i]) + lengths[i] * (traces[j] + drifts[j])
            self._fourths[i, j] += added
            self._fourths[j, i] = self._fourths[i, j]
        # In both orders: the third-order sums of a pair are not symmetric.
        for i, j in images:
            along = traces[i] + drifts[i] + count * lengths[i]
            thirds[i][j].add_(along * moves[j] + 2 * images[i, j] + lengths[i] * rests[j])
        for (i, j), cross in self._products.items():
            cross.addr_(moves[i], rests[j] + count * moves[j]).addr_(rests[i], moves[j])
        self._rests += count * shift

    def _form(self) -> str:
        pairs = "all pairs" if self._choice is None else f"the pairs {sorted(self._choice)}"
        return f"sets of dimensions {list(self.dims)}, {pairs}"
