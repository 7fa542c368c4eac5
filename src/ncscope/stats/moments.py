"""Class moments of a stream of features, in one pass, for any batches and any order of merging."""

import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.powers import GATHERED, exponent_of
from ncscope.math.symmetric import add_gram_, mirrored
from ncscope.stats.batch import (
    Workspace,
    as_tensor,
    check_features,
    check_labels,
    check_range,
    compact_labels,
    refuse_magnitude,
    refuse_nonfinite,
    square_norms,
)
from ncscope.stats.locking import Locked
from ncscope.stats.merging import Shares

Prior: TypeAlias = Literal["empirical", "uniform"]
Statistic: TypeAlias = Literal["scatter", "directions"]
ALL_STATISTICS: frozenset[Statistic] = frozenset({"scatter", "directions"})
_POOLED = frozenset({"scatter", "scatter_weights", "zero_vectors"})


class ClassMoments(Locked):
    r"""Counts, class means, class traces and, on request, scatter and directions of a stream.

    Each batch is centred by the class means of the batch and merged by the update of Chan, Golub
    and LeVeque (1983), so a large common offset or a nearly collapsed class costs few digits: the
    relative error of a trace is about the offset over the spread, times the rounding unit.
    Several threads may update and read the same moments.

    State (k classes, d dimensions):

    * ``counts`` (k), ``means`` (k x d), ``traces`` (k): $\sum_i\lVert h_i-\mu_c\rVert^2$
    * with ``"scatter"``: ``scatter`` (d x d): $\sum_cv_c\sum_i(h_i-\mu_c)(h_i-\mu_c)^\top$, where
      $v_c=1$ under the empirical prior and $1/n_c$ under the uniform one
    * with ``"directions"``: ``unit_means`` (k x d) and ``unit_traces`` (k), means and traces of
      $\hat h=h/\lVert h\rVert$, and ``zero_vectors``, the number of zero rows

    Args:
        num_classes: Number of classes k; labels are 0..k-1.
        dim: Feature dimension d.
        statistics: Statistics to accumulate besides counts, means and traces.
        prior: Class prior that the pooled scatter is weighted with.
        class_counts: Number of samples of each class, known beforehand. Needed for the uniform
            prior's scatter, whose weights depend on it.
        device: Device to accumulate on; features are moved to this device.
        dtype: Type of accumulation. float32 is for devices that are slow in float64; it is less
            accurate.

    Raises:
        InputError: If the uniform prior's scatter is asked for without class counts.

    Example:
        >>> moments = ClassMoments(num_classes=2, dim=1)
        >>> moments.update(torch.tensor([[1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1]))
        >>> moments.means.flatten().tolist(), moments.traces.tolist()
        ([2.0, 10.0], [2.0, 0.0])
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        statistics: Iterable[Statistic] = ALL_STATISTICS,
        prior: Prior = "empirical",
        class_counts: Int[Tensor, " k"] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.num_classes, self.dim = (
            checked_size("num_classes", num_classes),
            checked_size("dim", dim),
        )
        self.statistics = _checked_statistics(statistics)
        self.prior: Prior = checked_prior(prior)
        self.device, self.dtype = torch.device(device), _checked_dtype(dtype)
        self.counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self.means, self.traces = self._zeros(num_classes, dim), self._zeros(num_classes)
        self.class_counts = (
            None if class_counts is None else as_tensor(class_counts, "class_counts")
        )
        self._weights = self._scatter_weights()
        self.scatter = self._zeros(dim, dim) if "scatter" in self.statistics else None
        directed = "directions" in self.statistics
        self.unit_means = self._zeros(num_classes, dim) if directed else None
        self.unit_traces = self._zeros(num_classes) if directed else None
        self.zero_vectors = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, features: Any, labels: Any) -> None:
        r"""Add a batch of any size; a batch that is refused changes nothing.

        Args:
            features: n x d array-like, any real dtype, any device; gradients are not followed.
            labels: n integers in 0..k-1.

        Raises:
            InputError: If shapes or labels do not fit, a feature is NaN or infinite, or the largest
                magnitude is beyond $2^{\pm470}$ ($2^{\pm40}$ in float32): sums of squares could
                overflow or underflow.

        Cost: two reads of the batch, and with scatter 5/8 of $2nd^2$ operations in float64.
        """
        rows = as_tensor(features, "features")
        check_features(rows, self.dim)
        classes = check_labels(as_tensor(labels, "labels"), len(rows)).to(self.device)
        check_range(classes, self.num_classes)
        limit = GATHERED[self.dtype]
        refuse_magnitude(self.take_checked(rows, classes, limit), limit)

    def take_checked(
        self, features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"], limit: int
    ) -> int:
        r"""Add a checked batch, or return the exponent of its magnitude if that is out of range.

        Args:
            features: n x d features of a real dtype.
            labels: Classes in 0..k-1, int64, on the device of the moments.
            limit: Largest exponent of 2, of either sign, of the largest magnitude.

        Returns:
            0 if the batch was added. Otherwise the moments are unchanged, and the value is the
            exponent e of 2 of the largest magnitude: features divided by $2^e$ are in range.

        Raises:
            InputError: If a feature is NaN or infinite.
        """
        if not len(features):
            return 0
        present, counts, labels = compact_labels(labels, self.num_classes)
        # Outside the lock, so that threads wait for each other only while one of them merges.
        batch = self._batch_moments(features.to(self.device), labels, present, counts)
        exponent = _out_of_range(features, batch, limit)
        if not exponent:
            with self.lock:
                self._merge_rows(present, batch)
        return exponent

    def like(self) -> "ClassMoments":
        """Return moments of the same form without samples."""
        return ClassMoments(
            self.num_classes,
            self.dim,
            statistics=self.statistics,
            prior=self.prior,
            class_counts=self.class_counts,
            device=self.device,
            dtype=self.dtype,
        )

    def merge(self, other: "ClassMoments") -> None:
        """Add the samples of another accumulator.

        Args:
            other: Moments of the same classes, dimension, prior and statistics.

        Raises:
            InputError: If classes, dimension, prior, dtype, statistics or class counts differ.
        """
        mine, theirs = self._description(), other._description()
        if mine != theirs or not _same(self.class_counts, other.class_counts):
            raise InputError(
                expected=f"moments of {mine}", found=f"moments of {theirs}", fix="build both alike"
            )
        state = other.state_dict()
        present = torch.nonzero(state["counts"]).squeeze(1)
        rows = {name: value if name in _POOLED else value[present] for name, value in state.items()}
        moved = {name: value.to(self.device) for name, value in rows.items()}
        with self.lock:
            self._merge_rows(present.to(self.device), moved)

    def shares(self) -> Shares:
        """Return the statistics for a merge with those of other processes, not copied."""
        form = {"moments": self._description()}
        if self._weights is not None and self.class_counts is not None:
            form["class_counts"] = _checksum(self.class_counts)
        means, sums = {"means": self.means}, {"traces": self.traces}
        if self.scatter is not None:
            sums["scatter"] = self.scatter
        if self.unit_means is not None and self.unit_traces is not None:
            means["unit_means"] = self.unit_means
            sums |= {"unit_traces": self.unit_traces, "zero_vectors": self.zero_vectors}
        return Shares(form, self.counts, means, sums, self._refer)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the statistics as named tensors, to save, send or merge them."""
        names = ["counts", "means", "traces"]
        names += ["unit_means", "unit_traces", "zero_vectors"] * ("directions" in self.statistics)
        with self.lock:
            state = {name: getattr(self, name).clone() for name in names}
            if self.scatter is not None:
                state["scatter"] = mirrored(self.scatter)
        if self._weights is not None:
            state["scatter_weights"] = self._weights.clone()
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore statistics that `state_dict` returned.

        Raises:
            InputError: If names or shapes differ from this accumulator's.
        """
        expected = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        found = {name: tuple(value.shape) for name, value in state.items()}
        if expected != found:
            raise InputError(
                expected=f"a state of {expected}",
                found=f"{found}",
                fix="build the moments alike first",
            )
        self._check_weights(state)
        with self.lock:
            for name in state.keys() - {"scatter_weights"}:
                dtype = getattr(self, name).dtype
                loaded = state[name].to(self.device, dtype, copy=True)
                setattr(self, name, loaded.contiguous())  # merging sends it in parts

    def _batch_moments(
        self,
        features: Shaped[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        present: Int[Tensor, " p"],
        counts: Int[Tensor, " p"],
    ) -> dict[str, Tensor]:
        """Compute the statistics of one batch over its classes, which `labels` index."""
        # The means come first, in a read of their own: sums of squares less the squared mean would
        # cancel where the common offset is far larger than the spread.
        batch = {"counts": counts, **self._first_read(features, labels, counts)}
        batch["traces"] = self._zeros(len(present))
        if self.unit_means is not None:
            batch["unit_traces"] = self._zeros(len(present))
        if self.scatter is not None:
            batch["scatter"] = self._zeros(self.dim, self.dim)
        root = None if self._weights is None else self._weights[present].sqrt()
        space = Workspace(self.dim, self.dtype, self.device)
        for chunk, y in space.chunks(features, labels):
            spread = space.minus(chunk, batch["means"], y)
            batch["traces"].index_add_(0, y, square_norms(spread))
            if self.scatter is not None:
                add_gram_(batch["scatter"], spread if root is None else spread * root[y][:, None])
            if self.unit_means is not None:
                turned = space.minus(space.directions(chunk)[0], batch["unit_means"], y)
                batch["unit_traces"].index_add_(0, y, square_norms(turned))
        return batch

    def _first_read(
        self, features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"], counts: Int[Tensor, " p"]
    ) -> dict[str, Tensor]:
        """Compute the class means of a batch's features and of their directions."""
        first = {"means": self._zeros(len(counts), self.dim)}
        if self.unit_means is not None:
            first["unit_means"] = torch.zeros_like(first["means"])
            first["zero_vectors"] = torch.zeros_like(self.zero_vectors)
        space = Workspace(self.dim, self.dtype, self.device)
        for chunk, y in space.chunks(features, labels):
            first["means"].index_add_(0, y, chunk)
            if self.unit_means is not None:
                unit, length = space.directions(chunk)
                first["unit_means"].index_add_(0, y, unit)
                first["zero_vectors"] += (length == 0).sum()
        for name in ("means", "unit_means"):
            if name in first:
                first[name] /= counts[:, None]
        return first

    def _merge_rows(self, present: Int[Tensor, " p"], other: Mapping[str, Tensor]) -> None:
        """Merge statistics of the classes present by the update of Chan, Golub and LeVeque."""
        mine, theirs = self.counts[present], other["counts"]
        share = theirs.to(self.dtype) / (mine + theirs)
        shift = other["means"] - self.means[present]
        weight = mine * share
        self.traces.index_add_(0, present, other["traces"] + weight * shift.square().sum(1))
        self.means.index_add_(0, present, share[:, None] * shift)
        self.counts.index_add_(0, present, theirs)
        if self.scatter is not None:
            weight = weight if self._weights is None else weight * self._weights[present]
            self.scatter += other["scatter"]
            add_gram_(self.scatter, shift * weight.sqrt()[:, None])
        if self.unit_means is not None and self.unit_traces is not None:
            turn = other["unit_means"] - self.unit_means[present]
            spread = other["unit_traces"] + mine * share * turn.square().sum(1)
            self.unit_traces.index_add_(0, present, spread)
            self.unit_means.index_add_(0, present, share[:, None] * turn)
            self.zero_vectors += other["zero_vectors"]

    def _refer(self, rows: slice, shift: Mapping[str, Tensor]) -> None:
        """Refer traces and scatter to other means: see `Shares.refer`."""
        counts, moved = self.counts[rows].to(self.dtype), shift["means"]
        self.traces[rows] += counts * torch.linalg.vector_norm(moved, dim=1).square()
        if self.scatter is not None:
            weight = counts if self._weights is None else counts * self._weights[rows]
            add_gram_(self.scatter, moved.mul_(weight.sqrt()[:, None]))
        if self.unit_traces is not None:
            turned = torch.linalg.vector_norm(shift["unit_means"], dim=1).square()
            self.unit_traces[rows] += counts * turned

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=self.dtype, device=self.device)

    def _description(self) -> str:
        gathered = ", ".join(["means", *sorted(self.statistics)])
        known = "" if self._weights is None else f", class counts {_digest(self.class_counts)}"
        size = f"{self.num_classes} classes, dim {self.dim}"
        return f"{size}, {self.prior} prior, {self.dtype}, {gathered}{known}"

    def _check_weights(self, state: Mapping[str, Tensor]) -> None:
        """Refuse a scatter that was weighted for other class counts."""
        if self._weights is None:
            return
        if not torch.equal(state["scatter_weights"].to(self._weights), self._weights):
            fix = "build the moments with the class_counts of the state"
            found = "a scatter weighted with others"
            raise InputError(expected="the class_counts given", found=found, fix=fix)

    def _scatter_weights(self) -> Float[Tensor, " k"] | None:
        """Return the factor of each class's scatter; None stands for 1."""
        if self.prior == "empirical" or "scatter" not in self.statistics:
            return None
        if self.class_counts is None or len(self.class_counts) != self.num_classes:
            fix = "count the labels first: torch.bincount(labels, minlength=num_classes)"
            raise InputError(
                expected="class_counts for the uniform prior's scatter",
                found="none that fit",
                fix=fix,
            )
        return 1 / self.class_counts.to(self.device, self.dtype).clamp(min=1)


def checked_size(name: str, size: int) -> int:
    """Check that a size is a positive integer, and return it.

    Raises:
        InputError: If the size is not a positive integer.
    """
    if not isinstance(size, int | np.integer) or size < 1:
        raise InputError(expected=f"{name} of at least 1", found=repr(size), fix=f"correct {name}")
    return int(size)


def checked_prior(prior: Prior) -> Prior:
    """Check that the prior is one of the two, and return it.

    Raises:
        InputError: If the prior is neither ``"empirical"`` nor ``"uniform"``.
    """
    if prior not in ("empirical", "uniform"):
        raise InputError(
            expected="prior 'empirical' or 'uniform'",
            found=repr(prior),
            fix="choose one of the two",
        )
    return prior


def _checked_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype not in GATHERED:
        fix = "leave it out, or pass torch.float32"
        raise InputError(expected="dtype float64 or float32", found=str(dtype), fix=fix)
    return dtype


def _out_of_range(features: Shaped[Tensor, "n d"], batch: Mapping[str, Tensor], limit: int) -> int:
    """Return the exponent of the largest magnitude if it is out of range, else 0.

    The class means and traces give the magnitude up to a factor of the square root of nd. The
    features are therefore read again only if means and traces are extreme, or all zero.

    Raises:
        InputError: If a feature is NaN or infinite.
    """
    spread = batch["traces"].max().sqrt()
    size = float(torch.linalg.vector_norm(batch["means"], ord=math.inf).maximum(spread))
    if 2.0**-limit <= size <= 2.0**limit:  # False for NaN too, so that NaN is refused below
        return 0
    refuse_nonfinite(features)
    return exponent_of(features, limit)


def _checked_statistics(names: Iterable[Statistic]) -> frozenset[Statistic]:
    names = frozenset(names)
    if not names <= ALL_STATISTICS:
        found = str(sorted(names - ALL_STATISTICS))
        raise InputError(
            expected=f"statistics among {sorted(ALL_STATISTICS)}",
            found=found,
            fix="drop the others",
        )
    return names


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    """Return whether two sets of class counts, either of which may be unknown, are equal."""
    if one is None or other is None:
        return one is other
    return torch.equal(one.cpu(), other.cpu())


def _digest(counts: Tensor | None) -> str:
    return "none" if counts is None else f"{counts.tolist()[:8]}, {int(counts.sum())} in all"


def _checksum(counts: Tensor) -> str:
    """Return a short text that differs between class counts."""
    written = counts.to("cpu", torch.int64).numpy().tobytes()
    return f"{_digest(counts)}, checksum {zlib.crc32(written):08x}"
