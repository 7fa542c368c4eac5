"""Merging of accumulators of several processes by reduction, with the same result in each."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.stats.batch_moments import pilot_between
from ncscope.stats.processes import Processes, delay_interrupts

_BLOCK_BYTES = 64 * 2**20
"""Bytes that travel at once. A block per tensor of means is the memory that merging takes."""


@dataclass(frozen=True)
class MergeParts:
    """Statistics of one process, by how those of several processes add up.

    The tensors are the accumulator's tensors themselves: merging changes them in place.

    Attributes:
        form: Form of the accumulator, of the types that JSON has, which all processes must share.
        counts: Number of samples of each class, which add up.
        means: Class means by name, one a row; the merged ones are their averages, weighted by the
            counts.
        sums: Statistics about these class means, which add up as soon as all processes have them
            about the same means; contiguous.
        refer: Function that refers the sums of this process to other class means. It takes the
            classes as a slice, and by name the differences of the means of these classes, old less
            new, which it may overwrite.
        pilot: Vector that the means are given about, and its negative; both negative infinity in a
            process without samples. None for 0.
        move_pilot: Function that refers the means of this process to another pilot.
    """

    form: dict[str, Any]
    counts: Int[Tensor, " k"]
    means: Mapping[str, Float[Tensor, "k _d"]]
    sums: Mapping[str, Tensor]
    refer: Callable[[slice, Mapping[str, Tensor]], None]
    pilot: Float[Tensor, "2 _d"] | None = None
    move_pilot: Callable[[Tensor], None] | None = None


@runtime_checkable
class Mergeable(Protocol):
    """An accumulator of class statistics that several processes can merge."""

    def split_for_merge(self) -> MergeParts:
        """Return the accumulator's statistics, not copied."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)


def merge_across_processes(moments: Accumulator, group: Any = None) -> Accumulator:
    """Return the moments that one process would have accumulated from the samples of all.

    Args:
        moments: Class moments, or another accumulator, of this process; not changed.
        group: Process group; None for the default group.

    Returns:
        The merged moments, equal on every process to the last bit: see `merge_in_place`. In a
        single process, a copy.

    Raises:
        InputError: If the moments of the processes differ in form, or another process fails.

    Example:
        >>> from ncscope.stats.moments import ClassMoments
        >>> alone = merge_across_processes(ClassMoments(2, 3))
        >>> int(alone.counts.sum())
        0
    """
    processes = Processes(group)
    with processes.fail_together():
        merged = copy.deepcopy(moments)
        merge_in_place(merged, processes)
    return merged


def merge_in_place(moments: Mergeable, processes: Processes) -> None:
    r"""Replace an accumulator's statistics by those of the samples of all processes.

    With $n_c^r$ samples of class c in process r, of mean $\mu_c^r$,
    $\mu_c=\sum_r\frac{n_c^r}{n_c}\mu_c^r$. Each process then refers its sums of squares and
    products to these means, which adds $n_c^r\lVert\mu_c^r-\mu_c\rVert^2$ and the like, and the
    sums add up. An error $\epsilon$ of the means enters the sums as $n_c\epsilon^2$ only.

    Args:
        moments: Accumulator of this process; after an error its statistics are undefined.
        processes: Processes that merge their accumulators.

    Raises:
        InputError: If the accumulators differ in form, or another process fails.

    Cost: one all-reduce of the state in blocks, and the memory of a block for each tensor of means.
    """
    if not processes.several:
        return
    with processes.fail_together():
        parts = moments.split_for_merge()
        reduction = _Reduction(parts, processes)
        with delay_interrupts():
            # The last communication that reports a process which has failed before.
            processes.agree_on(parts.form)
            reduction.merge()
        if reduction.error is not None:
            raise reduction.error


class _Reduction:
    """Reduction of the statistics of several processes.

    No process may leave in between, because the others would wait. A process whose own step fails
    keeps the error, and goes on communicating numbers without meaning until the end.

    Args:
        parts: Statistics of this process.
        processes: Processes that merge.

    Attributes:
        error: First error of this process.
    """

    def __init__(self, parts: MergeParts, processes: Processes) -> None:
        self.parts, self.processes = parts, processes
        self.total = parts.counts.clone()
        # Space for the means of as many classes as may travel at once.
        widest = max(each.shape[1] * each.element_size() for each in parts.means.values())
        at_once = max(1, _BLOCK_BYTES // widest)
        self.space = {
            name: means.new_empty(min(len(means), at_once), means.shape[1])
            for name, means in parts.means.items()
        }
        self.origins = {
            name: means.new_full((2, means.shape[1]), -math.inf)
            for name, means in parts.means.items()
        }
        self.sums = [
            part
            for value in parts.sums.values()
            for part in value.view(-1).split(_BLOCK_BYTES // value.element_size())
        ]
        self.pilot = None if parts.pilot is None else parts.pilot.clone()
        self.error: BaseException | None = None

    def merge(self) -> None:
        """Merge counts, means and sums."""
        # The same order in every process, and each step needs the results of those before: weights
        # need the total counts, and sums add up about the same means only.
        self.processes.reduce_(self.total)
        if self.pilot is not None:
            # The largest of a value and of its negative give both ends of the processes' pilots.
            self.processes.reduce_(self.pilot, largest=True)
            self._locally(self._move_pilot)
        for name in self.space:
            self._locally(self._note_extremes, name)
            self.processes.reduce_(self.origins[name], largest=True)
            self._locally(self._choose_origin, name)
        for rows in self._blocks():
            for name in self.space:
                self._locally(self._weigh, name, rows)
                self.processes.reduce_(self._part(name, rows))
            self._locally(self._refer, rows)
        for part in self.sums:
            self.processes.reduce_(part)
        self._locally(self.parts.counts.copy_, self.total)

    def _locally(self, step: Callable[..., object], *arguments: Any) -> None:
        """Run a step that does not communicate, unless one has failed; keep its error."""
        if self.error is None:
            try:
                step(*arguments)
            except BaseException as error:  # even of an interrupt: the others would wait
                self.error = error

    def _blocks(self) -> Iterator[slice]:
        size, classes = min(len(rows) for rows in self.space.values()), len(self.total)
        return (slice(start, min(start + size, classes)) for start in range(0, classes, size))

    def _part(self, name: str, rows: slice) -> Float[Tensor, "b d"]:
        """Return the space for the means of some classes."""
        return self.space[name][: rows.stop - rows.start]

    def _move_pilot(self) -> None:
        """Refer the means to a pilot of all processes."""
        assert self.pilot is not None
        assert self.parts.move_pilot is not None
        high, low = self.pilot[0], -self.pilot[1]  # infinite, and so no pilot, without samples
        self.parts.move_pilot(pilot_between(low, high))

    def _note_extremes(self, name: str) -> None:
        """Note the largest and the negative smallest coordinates of the means of this process."""
        means, bounds = self.parts.means[name], self.origins[name]
        for rows in self._blocks():
            present = self.parts.counts[rows] > 0
            block = means[rows] if bool(present.all()) else means[rows][present]
            if len(block):
                least, largest = torch.aminmax(block, dim=0)
                bounds.copy_(bounds.maximum(torch.stack([largest, -least])))

    def _choose_origin(self, name: str) -> None:
        """Choose the point from which means travel: the common offset if there is a large one.

        Differences of numbers of one sign that are within a factor of two are exact (Sterbenz), so
        that a mean which one process alone has stays as it is, and a large offset costs no digits.
        In other coordinates the offset is no larger than the spread of the means.
        """
        largest, least = self.origins[name][0], -self.origins[name][1]
        above, below = (least > 0) & (largest <= 2 * least), (largest < 0) & (least >= 2 * largest)
        self.origins[name] = torch.where(above, least, torch.where(below, largest, 0.0))

    def _weigh(self, name: str, rows: slice) -> None:
        """Compute the part that this process has in the means of some classes."""
        # Means travel as weighted differences from an origin; their sum over the processes is the
        # merged mean less the origin. A class without samples anywhere would divide by 0.
        means, part = self.parts.means[name][rows], self._part(name, rows)
        total = self.total[rows].clamp(min=1).to(means.dtype)
        torch.sub(means, self.origins[name], out=part)
        part *= (self.parts.counts[rows].to(means.dtype) / total)[:, None]

    def _refer(self, rows: slice) -> None:
        """Refer the sums to the means of all processes, which have arrived, and store the means."""
        absent = (self.total[rows] == 0)[:, None]
        # Views of the accumulator's own means: the differences take their place for a moment, which
        # needs no further memory, and the merged means overwrite them at the end.
        shifts = {name: means[rows] for name, means in self.parts.means.items()}
        for name, shift in shifts.items():
            shift -= self._part(name, rows).add_(self.origins[name]).masked_fill_(absent, 0.0)
        self.parts.refer(rows, shifts)
        for name, shift in shifts.items():
            shift.copy_(self._part(name, rows))
