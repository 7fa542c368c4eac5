"""Samples of the second pass: stored, drawn at random, or read again from the loader."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.errors import InputError
from ncscope.measurement.options import Options
from ncscope.stats.moments import ClassMoments
from ncscope.stats.reservoir import Reservoir
from ncscope.stats.store import FeatureStore

Batch: TypeAlias = tuple[dict[str, Tensor], Int[Tensor, " n"]]
"""Features of every layer by its name, and labels."""

_PROJECTIONS = 8

_SAME = {torch.float16: 2.0**-4, torch.bfloat16: 2.0**-4}
_SAME_IN_FLOAT32 = 2.0**-9
"""Largest relative change of a feature that other batches explain; random augmentation is larger.

A sample's features are rounded differently in a batch of another size, by about 1e-6 of their
length in float32 and 1e-3 if products run in TensorFloat-32; in 16 bits by about 1e-2.
"""


class Rerun:
    """Samples of the second pass that are computed again, by running the loader again.

    Every iteration runs the model over the loader once, and compares the samples with those of the
    first pass, class by class, in their number and the sum of their features. The order and the
    batches may differ. Random augmentation may not.

    Attributes:
        source: Function that yields the batches of one run; set once the model has been traced. A
            process without samples leaves it as it is.
    """

    def __init__(self) -> None:
        self.source: Callable[[], Iterator[Batch]] = lambda: iter(())
        self._first: Fingerprint | None = None

    def append(
        self, features: Mapping[str, Shaped[Tensor, "n _d"]], labels: Int[Tensor, " n"]
    ) -> None:
        """Keep nothing of a batch of the first pass."""

    def remember(self, moments: Mapping[str, ClassMoments]) -> None:
        """Keep counts and projected class sums of this process's first pass, to compare with."""
        self._first = Fingerprint.of(moments)

    def __iter__(self) -> Iterator[Batch]:
        """Run the loader again.

        Raises:
            InputError: At the end of the run, if the samples are not those of the first pass.
        """
        assert self._first is not None
        again = self._first.empty()
        for features, labels in self.source():
            again.update(features, labels)
            yield features, labels
        self._first.check(again)


class Fingerprint:
    r"""Counts, and class sums $P^\top\sum_{y_i=c}h_i$ for a random matrix $P$ of 8 columns.

    The sums themselves would take as much memory as the class means. The squared length of a
    projected vector is that of the vector on average.
    """

    def __init__(
        self,
        counts: Int[Tensor, " k"],
        projections: Mapping[str, Float[Tensor, "_d 8"]],
        sums: dict[str, Float[Tensor, "k 8"]],
        squares: Mapping[str, float],
    ) -> None:
        self.counts, self.sums = counts, sums
        self._projections, self._squares = projections, squares
        self._tolerance: dict[str, float] = {}

    @classmethod
    def of(cls, moments: Mapping[str, ClassMoments]) -> "Fingerprint":
        """Return the fingerprint of the samples that moments were gathered from."""
        # A seed of its own: the loop's random numbers stay as they were.
        generator = torch.Generator().manual_seed(0)
        projections, sums, squares = {}, {}, {}
        for name, each in moments.items():
            drawn = torch.randn(
                each.dim, _PROJECTIONS, generator=generator, dtype=torch.float64, device="cpu"
            )
            projections[name] = (drawn / _PROJECTIONS**0.5).to(each.device)
            sums[name] = (each.means @ projections[name]) * each.counts[:, None]
            lengths = torch.linalg.vector_norm(each.means, dim=1).square()
            squares[name] = float(each.traces.sum() + each.counts.to(lengths) @ lengths)
        return cls(next(iter(moments.values())).counts.clone(), projections, sums, squares)

    def empty(self) -> "Fingerprint":
        """Return the fingerprint of no samples, to be updated."""
        sums = {name: torch.zeros_like(values) for name, values in self.sums.items()}
        return Fingerprint(torch.zeros_like(self.counts), self._projections, sums, self._squares)

    def update(
        self, features: Mapping[str, Shaped[Tensor, "n _d"]], labels: Int[Tensor, " n"]
    ) -> None:
        """Add a batch."""
        labels = labels.to(self.counts.device)
        self.counts.add_(torch.bincount(labels, minlength=len(self.counts)))
        for name, sums in self.sums.items():
            projection = self._projections[name]
            sums.index_add_(0, labels, features[name].to(projection) @ projection)
            self._tolerance[name] = _SAME.get(features[name].dtype, _SAME_IN_FLOAT32)

    def check(self, again: "Fingerprint") -> None:
        r"""Refuse another pass over other samples.

        If every feature changes by an independent vector of a share $\delta$ of its length, the
        squared differences of the class sums add up to $\delta^2\sum_i\lVert h_i\rVert^2$.

        Args:
            again: Fingerprint of the other pass.

        Raises:
            InputError: If counts or sums differ by more than rounding.
        """
        expected = "a loader that yields the same samples each time, in any order"
        if not torch.equal(self.counts, again.counts):
            first, second = int(self.counts.sum()), int(again.counts.sum())
            found = f"{first:,} samples in the first pass and {second:,} in the second"
            if first == second:
                c = int(torch.nonzero(self.counts != again.counts)[0])
                both = f"{int(self.counts[c])} and {int(again.counts[c])}"
                found = f"{both} samples of class {c} in the two passes"
            fix = "pass a loader that can be read again, without drop_last beside shuffle"
            raise InputError(expected=expected, found=found, fix=fix)
        for name, sums in self.sums.items():
            change = float((sums - again.sums[name]).square().sum())
            tolerance = again._tolerance.get(name, 0.0)
            if not change <= tolerance**2 * self._squares[name]:  # NaN is no agreement
                share = (change / self._squares[name]) ** 0.5 if self._squares[name] else 1.0
                raise InputError(
                    expected=expected,
                    found=f"features of {name!r} that changed by {share:.2g} of their length",
                    fix="leave random augmentation out, or pass second_pass='store'",
                )


SampleStore: TypeAlias = FeatureStore | Reservoir | Rerun
"""Samples of the second pass."""


def open_store(
    options: Options, *, batches: int | None = None, can_rerun: bool = True
) -> AbstractContextManager[SampleStore]:
    """Return a context in which the samples of the second pass are kept as the options say.

    Args:
        options: Options of the measurement.
        batches: Number of batches of the loader, if it is known.
        can_rerun: True if a second pass could also run the loader again; only for the message.
    """
    if options.second_pass == "recompute":
        return nullcontext(Rerun())
    if options.second_pass != "store":
        # Each process draws from its own samples, and needs random numbers of its own.
        seed = options.sample_seed + options.processes.index
        return nullcontext(Reservoir(options.second_pass, seed=seed))
    again = "second_pass='recompute' to run the loader again, " if can_rerun else ""
    otherwise = f"pass {again}second_pass=100_000 for a sample of so many, or a larger disk"
    return FeatureStore(options.memory, disk=options.disk, expected=batches, otherwise=otherwise)


def check_second_pass(options: Options, loader: object = None) -> None:
    """Refuse a second pass that does not exist, or that cannot be had.

    Args:
        options: Options of the measurement.
        loader: Loader of batches; None if a loop of the user runs the model.

    Raises:
        InputError: If the second pass is none of the three, samples are to be computed again that
            cannot be, samples are to be resampled that are not stored, or memory or disk is no
            number of bytes.
    """
    second = options.second_pass
    if second == "recompute":
        found = None
        if loader is None:
            found = "passes that your own loop runs"
        elif isinstance(loader, Iterator):
            found = "a generator, which can be read only once"
        if found:
            fix = "pass second_pass='store' or a number of samples"
            expected = "a loader that can be read again for second_pass='recompute'"
            raise InputError(expected=expected, found=found, fix=fix)
    asked = {
        "baseline=True": options.baseline is True,
        "uncertainty=True": options.uncertainty,
        "information_batch": options.information_batch is not None,
    }
    if second != "store" and any(asked.values()):
        raise InputError(
            expected=f"second_pass='store' for {next(name for name in asked if asked[name])}",
            found=f"second_pass={second!r}",
            fix="leave one of the two out",
        )


def count_batches(loader: Iterable[Any]) -> int | None:
    """Return the length of a loader, or None if it has none."""
    if not isinstance(loader, Sized):
        return None
    try:
        return len(loader)
    except TypeError:  # a DataLoader of an iterable data set has `__len__`, which raises
        return None
