"""Class moments of a stream of features, in one pass, for any batches and any order of merging."""

import copy
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.arguments import Size, check_arguments
from ncscope.array_checks import as_tensor, check_features, name_columns, refuse_magnitude
from ncscope.devices import move_to
from ncscope.errors import InputError
from ncscope.labels import IgnoreIndex, check_names, check_pairing, list_marks, read_labels
from ncscope.math.powers import STREAM_LIMIT, goes_beyond
from ncscope.math.symmetric import Gram, mirror_upper, without_zeros
from ncscope.memory import check_memory
from ncscope.stats.batch_moments import (
    approximate_magnitude,
    batch_moments,
    choose_pilot,
    common_pilot,
    exponent_out_of_range,
)
from ncscope.stats.classes import BatchClasses
from ncscope.stats.locking import Moments
from ncscope.stats.merging import MergeParts
from ncscope.stats.options import (
    ALL_STATISTICS,
    Precision,
    Prior,
    Statistic,
)
from ncscope.stats.scatter import ScatterSum

_LARGE = 2**30  # bytes below which nobody asks the system for its free memory
_MOST_NAMES_SHOWN = 8
_CLASSLESS = frozenset({"pilot", "zero_vectors", "left_out"})  # without an entry for each class


@check_arguments
class ClassMoments(Moments):
    r"""Counts, class means, class traces and, on request, scatter and directions of a stream.

    Each batch is centred by the class means of the batch and merged by the update of Chan, Golub
    and LeVeque (1983), so a large common offset or a nearly collapsed class costs few digits: the
    relative error of a trace is about the offset over the spread, times the rounding unit.
    Several threads may update and read the same moments, which can be pickled. ``merge`` and ``+``
    add the samples of two streams, and `sum` adds a list.

    State (k classes, d dimensions):

    * ``counts`` (k), ``traces`` (k): $\sum_i\lVert h_i-\mu_c\rVert^2$
    * ``pilot`` p (d), ``offsets`` (k x d): $\mu_c-p$; a common offset would take the digits of
      ``means``, which are the sum of both
    * with ``"scatter"``: ``scatter`` (d x d): $\sum_cv_c\sum_i(h_i-\mu_c)(h_i-\mu_c)^\top$, where
      $v_c=1$ under the empirical prior and $1/n_c$ under the uniform one
    * with ``"directions"``: ``unit_means`` (k x d) and ``unit_traces`` (k), means and traces of
      $\hat h=h/\lVert h\rVert$, and ``zero_vectors``, the number of zero rows
    * with ``ignore_index``: ``left_out``, the number of samples left out

    Args:
        num_classes: Number of classes k; labels are 0..k-1. None lets k grow with the largest label
            seen, which copies the state each time; or takes the number of ``class_names``.
        dim: Feature dimension d; None takes the dimension of the first batch. Until then d is 0.
        statistics: Statistics to accumulate besides counts, means and traces.
        prior: Class prior that the pooled scatter is weighted with.
        class_counts: Number of samples of each class, known beforehand. Needed for the uniform
            prior's scatter, whose weights depend on it.
        device: Device to accumulate on, in float64; features are moved to this device.
        precision: ``"float64"``, or ``"blocked"`` for accelerators that are slow in float64. With
            ``"blocked"`` the products of centred rows, which are most of the work, run in float32
            by blocks, with totals in float64. The scatter's entry $ij$ is then within
            $6.2\cdot10^{-5}\sqrt{S_{ii}S_{jj}}$, whatever the offset and the units; counts, means
            and traces do not change. Where torch is set to reduce float32 products (TF32), the
            products run in float64.
        ignore_index: Label of samples to leave out, or several, such as -1 or 255.
        class_names: Names of the classes, in the order of the indices. With them, labels may be
            names.

    Attributes:
        columns: Names of the features, if they were the columns of data frames; else empty.

    Raises:
        InputError: If the uniform prior's scatter is asked for without class counts, the device
            has no float64, or the names are not as many as the classes.

    Example:
        >>> moments = ClassMoments(num_classes=2, dim=1)
        >>> moments.update(torch.tensor([[1.0], [3.0], [10.0]]), torch.tensor([0, 0, 1]))
        >>> moments.means.flatten().tolist(), moments.traces.tolist()
        ([2.0, 10.0], [2.0, 0.0])
        >>> more = ClassMoments().merge(moments)
        >>> sum([moments, more]).counts.tolist()
        [4, 2]
    """

    def __init__(
        self,
        num_classes: Size | None = None,
        dim: Size | None = None,
        *,
        statistics: Iterable[Statistic] = ALL_STATISTICS,
        prior: Prior = "empirical",
        class_counts: Any = None,
        device: torch.device | str = "cpu",
        precision: Precision = "float64",
        ignore_index: IgnoreIndex = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(device)
        self.class_names, self.ignore_index = check_names(class_names), ignore_index
        if self.class_names and num_classes not in (None, len(self.class_names)):
            raise InputError(
                expected=f"class_names of num_classes={num_classes} classes",
                found=f"{len(self.class_names)} names",
                fix="name every class, or leave num_classes out",
            )
        num_classes = num_classes or len(self.class_names) or None
        self._grows = num_classes is None
        self.columns: tuple[Any, ...] = ()
        k = self.num_classes = num_classes or 0
        d = self.dim = dim or 0
        self.statistics = frozenset(statistics)
        self.prior: Prior = prior
        self.precision: Precision = precision
        self._check_memory(k, d)
        self.counts = torch.zeros(k, dtype=torch.int64, device=device)
        self.offsets, self.traces, self.pilot = self._zeros(k, d), self._zeros(k), self._zeros(d)
        self._has_pilot = False
        self.class_counts = (
            None if class_counts is None else as_tensor(class_counts, "class_counts")
        )
        self._weights = self._find_scatter_weights()
        self._scatter = self._start_scatter()
        directions = "directions" in self.statistics
        self.unit_means = self._zeros(k, d) if directions else None
        self.unit_traces = self._zeros(k) if directions else None
        self.zero_vectors = torch.zeros((), dtype=torch.int64, device=device)
        self.left_out = torch.zeros((), dtype=torch.int64, device=device)

    def update(self, features: Any, labels: Any) -> None:
        r"""Add a batch of any size; a batch that is refused changes nothing.

        Args:
            features: n x d array-like, any real dtype, any device; gradients are not followed.
            labels: n integers in 0..k-1; or names, if the moments have ``class_names``.

        Raises:
            InputError: If shapes or labels do not fit, a feature is NaN or infinite, or the largest
                magnitude is beyond $2^{\pm470}$: sums of squares could overflow or underflow.

        Cost: two reads of the batch, one if it gives means and traces alone; with scatter 5/8 of
        $2nd^2$ operations in float64.
        """
        check_pairing(features, labels)
        columns = name_columns(features)
        self._check_columns(columns)
        rows = as_tensor(features, "features")
        check_features(rows, self.dim or None)
        read = read_labels(
            labels,
            len(rows),
            ignore_index=self.ignore_index,
            class_names=self.class_names,
            of_part=True,
        )
        left_out = len(rows) - len(read.labels)
        rows, indices = read.select(rows), read.labels
        k, d = self.num_classes, rows.shape[1]
        if self._grows and len(indices):
            k = max(k, int(indices.max()) + 1, 1)
            fix = "number the classes from 0, or pass num_classes"
            check_memory(8 * k * d, f"the means of {k:,} classes of dimension {d:,}", fix)
        if (k, d) != (self.num_classes, self.dim):
            # Not in place: a batch that is refused must not change the size.
            batch = self._empty(k or None, d)
            batch.update(rows, indices)
            batch._grows = self._grows  # else the merged number of classes would be fixed
            self.merge(batch)
        else:
            classes = BatchClasses.from_labels(indices, k, has_ignore_index=True)
            refuse_magnitude(self.take_checked(rows, classes, STREAM_LIMIT), STREAM_LIMIT)
        with self.lock:
            self.left_out += left_out
            self.columns = self.columns or columns

    def _check_columns(self, columns: tuple[Any, ...]) -> None:
        """Refuse a data frame with other columns, or in another order, than the first."""
        if columns and self.columns and columns != self.columns:
            raise InputError(
                expected=f"the columns of the first data frame, {[*self.columns[:5]]}, in order",
                found=f"{[*columns[:5]]}",
                fix="choose the same columns of all: frame[columns]",
            )

    def take_checked(
        self, features: Shaped[Tensor, "n d"], classes: BatchClasses, limit: int
    ) -> int:
        r"""Add a checked batch, or return the exponent of its magnitude if that is out of range.

        Args:
            features: n x d features of a real dtype.
            classes: Classes of the rows.
            limit: Largest exponent of 2, of either sign, of the largest magnitude.

        Returns:
            0 if the batch was added. Otherwise the moments are unchanged, and the value is the
            exponent e of 2 of the largest magnitude: features divided by $2^e$ are in range.

        Raises:
            InputError: If a feature is NaN or infinite.
        """
        if not len(features):
            return 0
        classes, scatter = classes.to(self.device), self._start_scatter()
        # Outside the lock, so that threads wait for each other only while one of them merges.
        features = move_to(features, self.device)
        pilot = self._pilot_for(features)
        batch = self._measure_batch(features, classes, scatter, pilot)
        exponent = exponent_out_of_range(features, batch, limit, pilot)
        if not exponent:
            with self.lock:
                self._merge_rows(classes.present, batch, scatter, pilot)
        return exponent

    def take_unread(
        self, features: Shaped[Tensor, "n d"], classes: BatchClasses, limit: int
    ) -> Float[Tensor, ""]:
        """Add a checked batch of samples without waiting for an accelerator.

        Args:
            features: n x d features of a real dtype, n at least 1.
            classes: Classes of the rows.
            limit: Largest exponent of 2, of either sign, that the caller allows.

        Returns:
            A magnitude of the batch, float64: NaN or infinite if a feature is. If it is beyond the
            limit, the moments are spoiled, and the caller must refuse them.
        """
        classes, features = classes.to(self.device), move_to(features, self.device)
        scatter, pilot = self._start_scatter(), self._pilot_for(features)
        batch = self._measure_batch(features, classes, scatter, pilot)
        with self.lock:
            self._merge_rows(classes.present, batch, scatter, pilot)
        size = approximate_magnitude(batch, pilot)
        if goes_beyond(features, limit):
            size = torch.linalg.vector_norm(features, ord=math.inf).to(torch.float64)
        return size

    @property
    def means(self) -> Float[Tensor, "k d"]:
        """Class means; 0 for classes without samples."""
        # In place: of many classes, each further copy is gigabytes.
        means = self.pilot + self.offsets
        means[self.counts == 0] = 0.0
        return means

    @property
    def scatter(self) -> Float[Tensor, "d d"] | None:
        """The pooled scatter as a matrix, not copied; only its upper blocks count."""
        return None if self._scatter is None else self._scatter.total

    @scatter.setter
    def scatter(self, matrix: Float[Tensor, "d d"]) -> None:
        self._scatter = ScatterSum(len(matrix), self.device, self.precision)
        self._scatter.total = matrix

    def copy_scatter(self) -> Float[Tensor, "d d"] | Gram | None:
        """Copy the pooled scatter, as its rows if they are few; the caller holds the lock."""
        if self._scatter is None:
            return None
        return self._scatter.gram() if self._scatter.few else mirror_upper(self._scatter.total)

    def _start_scatter(self) -> ScatterSum | None:
        """Start a scatter without rows; None if it is not accumulated."""
        if "scatter" not in self.statistics:
            return None
        return ScatterSum(self.dim, self.device, self.precision)

    def like(self) -> "ClassMoments":
        """Return moments of the same form without samples."""
        return self._empty(None if self._grows else self.num_classes, self.dim or None)

    def _empty(self, num_classes: int | None, dim: int | None) -> "ClassMoments":
        return ClassMoments(
            num_classes,
            dim,
            statistics=self.statistics,
            prior=self.prior,
            class_counts=self.class_counts,
            device=self.device,
            precision=self.precision,
            ignore_index=self.ignore_index,
            class_names=self.class_names,
        )

    def merge(self, other: "ClassMoments") -> "ClassMoments":
        """Add the samples of another accumulator, and return these moments.

        Args:
            other: Moments of the same classes, dimension, prior and statistics. A number of classes
                that grows fits a larger one; the merged number grows only if both do.

        Raises:
            InputError: If classes, dimension, prior, statistics or class counts differ.
        """
        fits = self._fits(other) and other._fits(self) and self._form() == other._form()
        mine, theirs = self.class_counts, other.class_counts
        if mine is None or theirs is None:
            fits &= mine is theirs
        else:
            fits &= torch.equal(mine.cpu(), theirs.cpu())
        if not fits:
            raise InputError(
                expected=f"moments of {self._size()}, {self._form()}",
                found=f"moments of {other._size()}, {other._form()}",
                fix="build both alike",
            )
        self._check_columns(other.columns)
        with other.lock:
            state, scatter = other._state(), copy.deepcopy(other._scatter)
        present = torch.nonzero(state["counts"]).squeeze(1)
        rows = {}
        for name, value in state.items():
            part = value if name in _CLASSLESS else value[present]
            rows[name] = part.to(self.device)
        with self.lock:
            self._grows &= other._grows
            self.columns = self.columns or other.columns
            self.class_names = self.class_names or other.class_names
            self._grow(*state["offsets"].shape)
            if "left_out" in rows:
                self.left_out += rows["left_out"]
            if len(present):
                self._merge_rows(present.to(self.device), rows, scatter, rows["pilot"])
        return self

    def split_for_merge(self) -> MergeParts:
        """Return the statistics for a merge with those of other processes, not copied."""
        form = {"moments": f"{self._size()}, {self._form()}"}
        if self._weights is not None and self.class_counts is not None:
            values = self.class_counts.to("cpu", torch.int64).numpy().tobytes()
            # Other processes' counts are compared by this text, which shows the first eight only.
            form["class_counts"] = (
                f"{_describe(self.class_counts)}, checksum {zlib.crc32(values):08x}"
            )
        means, sums = {"offsets": self.offsets}, {"traces": self.traces}
        if self.scatter is not None:
            sums["scatter"] = self.scatter
        if self.unit_means is not None and self.unit_traces is not None:
            means["unit_means"] = self.unit_means
            sums |= {"unit_traces": self.unit_traces, "zero_vectors": self.zero_vectors}
        if list_marks(self.ignore_index):
            sums["left_out"] = self.left_out
        pilot = torch.stack([self.pilot, -self.pilot])
        if not self._has_pilot:
            pilot.fill_(-math.inf)
        return MergeParts(form, self.counts, means, sums, self._refer, pilot, self._move_pilot)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the statistics as named tensors, to save, send or merge them."""
        with self.lock:
            state = self._state()
            if self.scatter is not None:
                state["scatter"] = mirror_upper(self.scatter)
        if self._weights is not None:
            state["scatter_weights"] = self._weights.clone()
        return state

    def _state(self) -> dict[str, Tensor]:
        """Copy the statistics but the scatter."""
        shapes = self._shapes(self.num_classes, self.dim)
        return {name: getattr(self, name).clone() for name in shapes if name != "scatter"}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore statistics that `state_dict` returned.

        Raises:
            InputError: If names or shapes differ from this accumulator's.
        """
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        k, d = self.num_classes, self.dim
        size = shapes.get("offsets", ())
        if len(size) == 2:  # what these moments leave open, the state decides
            k, d = size[0] if self._grows else k, d or size[1]
        expected = self._shapes(k, d)
        if self._weights is not None:
            expected["scatter_weights"] = (k,)
        if expected != shapes:
            raise InputError(
                expected=f"a state of {expected}",
                found=f"{shapes}",
                fix="build the moments alike first",
            )
        if bool((state["counts"] < 0).any()) or not bool(torch.isfinite(state["pilot"]).all()):
            fix = "save the state again; this one is damaged"
            damage = "negative counts, or a pilot that is not finite"
            raise InputError(expected="the state of class moments", found=damage, fix=fix)
        # The scatter is a sum over the classes, which cannot be weighted again.
        weights = self._weights
        if weights is not None and not torch.equal(state["scatter_weights"].to(weights), weights):
            fix = "build the moments with the class_counts of the state"
            found = "a scatter weighted with others"
            raise InputError(expected="the class_counts given", found=found, fix=fix)
        with self.lock:
            for name in state.keys() - {"scatter_weights"}:
                dtype = getattr(self, name).dtype
                loaded = state[name].to(self.device, dtype, copy=True)
                setattr(self, name, loaded.contiguous())  # merging sends it in parts
            self.num_classes, self.dim = k, d
            self._has_pilot = bool(self.counts.any())

    def _pilot_for(self, features: Shaped[Tensor, "n d"]) -> Float[Tensor, " d"] | None:
        """Return the pilot for a batch, which is not stored before the batch is; None for 0."""
        pilot = choose_pilot(features)
        with self.lock:
            if self._has_pilot:
                pilot = common_pilot(self.pilot, pilot)
        return pilot if _may_differ_from_zero(pilot) else None

    def _move_pilot(self, pilot: Float[Tensor, " d"]) -> None:
        """Refer the class means to another pilot."""
        if self._has_pilot and _may_differ_from_zero(self.pilot - pilot):
            self.offsets += self.pilot - pilot
        self.pilot, self._has_pilot = pilot.clone(), True

    def _measure_batch(
        self,
        features: Shaped[Tensor, "n d"],
        classes: BatchClasses,
        scatter: ScatterSum | None,
        pilot: Float[Tensor, " d"] | None,
    ) -> dict[str, Tensor]:
        return batch_moments(
            features,
            classes,
            directions=self.unit_means is not None,
            scatter=scatter,
            weights=self._weights,
            pilot=pilot,
        )

    def _merge_rows(
        self,
        present: Int[Tensor, " p"],
        other: Mapping[str, Tensor],
        scatter: ScatterSum | None,
        pilot: Float[Tensor, " d"] | None,
    ) -> None:
        """Merge statistics of the classes present by the update of Chan, Golub and LeVeque."""
        theirs_about = torch.zeros_like(self.pilot) if pilot is None else pilot
        self._move_pilot(
            common_pilot(self.pilot, theirs_about) if self._has_pilot else theirs_about
        )
        offsets = other["offsets"]
        if _may_differ_from_zero(theirs_about - self.pilot):
            offsets = offsets + (theirs_about - self.pilot)
        mine, theirs = self.counts[present], other["counts"]
        share = theirs.to(torch.float64) / (mine + theirs)
        shift = offsets - self.offsets[present]
        weight = mine * share
        self.traces.index_add_(0, present, other["traces"] + weight * shift.square().sum(1))
        self.offsets.index_add_(0, present, share[:, None] * shift)
        self.counts.index_add_(0, present, theirs)
        if self._scatter is not None and scatter is not None:
            weight = weight if self._weights is None else weight * self._weights[present]
            self._scatter.take_over(scatter)
            # The shift of a class without samples before this batch has the weight 0.
            rows, sizes = (without_zeros(part, weight == 0) for part in (shift, weight))
            self._scatter.add(rows * sizes.sqrt()[:, None])
        if self.unit_means is not None and self.unit_traces is not None:
            turn = other["unit_means"] - self.unit_means[present]
            spread = other["unit_traces"] + mine * share * turn.square().sum(1)
            self.unit_traces.index_add_(0, present, spread)
            self.unit_means.index_add_(0, present, share[:, None] * turn)
            self.zero_vectors += other["zero_vectors"]

    def _refer(self, rows: slice, shift: Mapping[str, Tensor]) -> None:
        """Refer traces and scatter to other means: see `MergeParts.refer`."""
        counts, offsets = self.counts[rows].to(torch.float64), shift["offsets"]
        self.traces[rows] += counts * torch.linalg.vector_norm(offsets, dim=1).square()
        if self._scatter is not None:
            weight = counts if self._weights is None else counts * self._weights[rows]
            self._scatter.add(offsets.mul_(weight.sqrt()[:, None]))
        if self.unit_traces is not None:
            turn = torch.linalg.vector_norm(shift["unit_means"], dim=1)
            self.unit_traces[rows] += counts * turn.square()

    def _shapes(self, k: int, d: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each statistic of k classes in d dimensions."""
        shapes: dict[str, tuple[int, ...]] = {"counts": (k,), "pilot": (d,), "offsets": (k, d)}
        shapes["traces"] = (k,)
        if "directions" in self.statistics:
            shapes |= {"unit_means": (k, d), "unit_traces": (k,), "zero_vectors": ()}
        if list_marks(self.ignore_index):
            shapes["left_out"] = ()
        return shapes | ({"scatter": (d, d)} if "scatter" in self.statistics else {})

    def _check_memory(self, k: int, d: int) -> None:
        """Refuse a state of k classes in d dimensions that does not fit into memory."""
        shapes = {name: shape for name, shape in self._shapes(k, d).items() if name != "scatter"}
        needed = 8 * sum(map(math.prod, shapes.values()))
        if needed > _LARGE and self.device.type == "cpu":
            fix = "check num_classes and dim; a label may be an identifier and no class"
            check_memory(needed, f"the moments of {k:,} classes in {d:,} dimensions", fix)

    def _grow(self, k: int, d: int) -> None:
        """Enlarge the state to k classes in d dimensions; new entries are zero."""
        k, d = max(k, self.num_classes), max(d, self.dim)
        self._check_memory(k, d)
        for name, shape in self._shapes(k, d).items():
            if name == "scatter":
                continue
            old = getattr(self, name)
            if tuple(old.shape) != shape:
                new = old.new_zeros(shape)
                new[tuple(map(slice, old.shape))] = old
                setattr(self, name, new)
        old_dim, self.num_classes, self.dim = self.dim, k, d
        if d != old_dim:  # there were no samples yet
            self._scatter = self._start_scatter()

    def _fits(self, other: "ClassMoments") -> bool:
        """Return whether these moments can take in the classes and the dimension of others."""
        fewer = other._grows and other.num_classes < self.num_classes
        classes = self._grows or fewer or other.num_classes == self.num_classes
        names = {each.class_names for each in (self, other) if each.class_names}
        fits = len(names) <= 1 and (0 in (self.dim, other.dim) or self.dim == other.dim)
        return classes and fits

    def _size(self) -> str:
        least = "at least " if self._grows else ""
        names = ", ".join(self.class_names)
        if len(self.class_names) > _MOST_NAMES_SHOWN:
            checksum = zlib.crc32(names.encode(errors="replace"))
            names = f"{', '.join(self.class_names[:_MOST_NAMES_SHOWN])}, ..., {checksum:08x}"
        named = f" named {names}" if names else ""
        return f"{least}{self.num_classes} classes{named}, dim {self.dim or 'of the first batch'}"

    def _form(self) -> str:
        names = ", ".join(["means", *sorted(self.statistics)])
        counts = "" if self._weights is None else f", class counts {_describe(self.class_counts)}"
        marks = list_marks(self.ignore_index)
        ignored = f", ignore_index {marks}" if marks else ""
        return f"{self.prior} prior, {names}{counts}{ignored}"

    def _find_scatter_weights(self) -> Float[Tensor, " k"] | None:
        """Find the factor of each class's scatter; None stands for 1."""
        if self.prior == "empirical" or "scatter" not in self.statistics:
            return None
        counts = self.class_counts
        if counts is None or counts.shape != (self.num_classes,) or counts.is_complex():
            fix = "count the labels first: torch.bincount(labels, minlength=num_classes)"
            raise InputError(
                expected="class_counts for the uniform prior's scatter",
                found="none that fit",
                fix=fix,
            )
        return 1 / counts.to(self.device, torch.float64).clamp(min=1)


def _may_differ_from_zero(vector: Float[Tensor, " d"]) -> bool:
    """Return whether a vector is not 0; True on an accelerator, which is not waited for."""
    return vector.device.type != "cpu" or bool(vector.numpy().any())


def _describe(counts: Tensor | None) -> str:
    return "none" if counts is None else f"{counts.tolist()[:8]}, {int(counts.sum())} in all"
