"""Statistics of every tapped layer, batch by batch, in one pass."""

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.devices import moved, reading_waits
from ncscope.math.powers import GATHERED
from ncscope.stats.batch import refuse_magnitude
from ncscope.stats.classes import BatchClasses
from ncscope.stats.decisions import Decider, DecisionCounts, decide_layers
from ncscope.stats.directions import Batches
from ncscope.stats.distributed import (
    batches_of_all_processes,
    ending_together,
    merge_across_processes,
    several_processes,
    sum_across_processes,
)
from ncscope.stats.faults import BatchFaults, naming_batch, refuse_faults
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments, nearest_hits_on_line, step_length
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope.stats.store import FeatureStore


class LayerGatherer:
    """Moments of each layer, path lengths between layers, and features kept for the second pass.

    Args:
        moments: One accumulator for each layer, in forward order.
        store: Store of features for the second pass; None if no second pass is needed.
    """

    def __init__(self, moments: Mapping[str, ClassMoments], store: FeatureStore | None) -> None:
        self.moments, self.store = dict(moments), store
        self.comparable = _comparable(moments)
        self.step_lengths: list[float] = []
        last = self.moments[self.comparable[-1]]
        self.counts: dict[str, Int[Tensor, " k"]] = {}
        self.device = last.device
        self.faults = {name: BatchFaults(each.device) for name, each in moments.items()}
        self._batches = 0
        steps = len(self.comparable) - 1
        self._lengths = torch.zeros(steps, dtype=torch.float64, device=self.device)
        several = len(self.comparable) > 1
        self.pair = CrossMoments(last.num_classes, last.dim, last.device) if several else None

    def update(self, features: Mapping[str, Float[Tensor, "b _d"]], classes: BatchClasses) -> None:
        """Add one batch of features of all layers.

        Raises:
            InputError: If a feature on the CPU is NaN, infinite or out of range. On an accelerator,
                `finish` raises this error, because reading it here would wait for the device.
        """
        if not len(classes):
            return
        self._batches += 1
        here = classes.to(self.device)  # moved once for all layers on the device
        for name, moments in self.moments.items():
            self._take(name, moments, features[name], here)
        steps = [step_length(features[a], features[b]) for a, b in pairwise(self.comparable)]
        if self.pair is not None:
            self._lengths += torch.stack(steps).to(self.device)
            self.pair.take(features[self.comparable[0]], features[self.comparable[-1]], here)
        if self.store is not None:
            self.store.append({name: features[name] for name in self.moments}, classes.labels)

    def _take(
        self, name: str, moments: ClassMoments, features: Float[Tensor, "b d"], here: BatchClasses
    ) -> None:
        if reading_waits(moments.device):
            self.faults[name].note(moments.take_unread(features, here, GATHERED), GATHERED)
            return
        with naming_batch(name, self._batches):
            refuse_magnitude(moments.take_checked(features, here, GATHERED), GATHERED)

    def finish(self) -> dict[str, ClassStatistics]:
        """Return each layer's statistics of the samples of all processes.

        Stored features stay in their process; the second passes below sum over all processes. Only
        the counts of the moments are kept: with many classes the moments are most of the memory.
        """
        with ending_together():
            refuse_faults(self.faults, GATHERED)
        stats = {}
        for name in list(self.moments):
            moments = merge_across_processes(self.moments.pop(name))
            stats[name], self.counts[name] = finish(moments), moments.counts
        self.step_lengths = sum_across_processes(self._lengths).tolist()
        if self.pair is not None:
            self.pair = merge_across_processes(self.pair)
        return stats

    def stored(self, name: str) -> Batches:
        """Return one layer's stored batches of all processes; they can be iterated repeatedly."""
        local = self.stored_here(name)
        return batches_of_all_processes(local, self.device) if several_processes() else local

    def stored_here(self, name: str) -> Batches:
        """Return one layer's stored batches of this process; they can be iterated repeatedly."""
        assert self.store is not None
        return _Stored(self.store, name)

    def decisions(self, deciders: Mapping[str, Decider]) -> dict[str, DecisionCounts]:
        """Count each layer's decisions over the stored features of every process."""
        assert self.store is not None
        tallies = {name: decide.none() for name, decide in deciders.items()}
        with ending_together():
            for features, labels in self.store:
                decided = decide_layers(deciders, features, labels)
                tallies = {name: tallies[name] + each for name, each in decided.items()}
        return {name: local.over_all_processes(self.device) for name, local in tallies.items()}

    def accuracy_on_line(self, positions: Float[Tensor, " t"]) -> list[float]:
        """Compute the nearest-mean accuracy on the line from the first to the last of `comparable`.

        Args:
            positions: Positions on the line, 0 (first layer) to 1 (last layer).
        """
        assert self.store is not None
        assert self.pair is not None
        first, last = self.comparable[0], self.comparable[-1]
        device = self.pair.counts.device
        hits = torch.zeros(len(positions), dtype=torch.int64, device=device)
        with ending_together():
            ends = self.pair.ends()
            for features, labels in self.store:
                h0, h1, y = (
                    moved(each, device) for each in (features[first], features[last], labels)
                )
                hits += nearest_hits_on_line(h0, h1, y, ends, positions)
        total = sum_across_processes(hits).to(torch.float64)
        accuracies: list[float] = (total / self.pair.counts.sum()).tolist()
        return accuracies


class _Stored:
    """Features and labels of one layer of a store."""

    def __init__(self, store: FeatureStore, name: str) -> None:
        self.store, self.name = store, name

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((features[self.name], labels) for features, labels in self.store)


def _comparable(moments: Mapping[str, ClassMoments]) -> tuple[str, ...]:
    """Return the last run of at least two layers of one dimension; without one, the last layer."""
    by_dim = groupby(moments, key=lambda name: moments[name].dim)
    runs = [tuple(names) for _, names in by_dim]
    return next((run for run in reversed(runs) if len(run) > 1), runs[-1])
