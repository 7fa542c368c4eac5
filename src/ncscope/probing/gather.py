"""Statistics of every tapped layer, batch by batch, in one pass."""

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.stats.decisions import Decider, DecisionCounts
from ncscope.stats.directions import Batches
from ncscope.stats.merging import merge_in_place
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments, nearest_hits_on_line, step_length
from ncscope.stats.processes import ALL, Processes
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope.stats.store import FeatureStore


class LayerGatherer:
    """Moments of each layer, path lengths between layers, and features kept for the second pass.

    Args:
        moments: One accumulator for each layer, in forward order.
        store: Store of features for the second pass; None if no second pass is needed.
        processes: Processes that measure together.
    """

    def __init__(
        self,
        moments: Mapping[str, ClassMoments],
        store: FeatureStore | None,
        processes: Processes = ALL,
    ) -> None:
        self.moments, self.store, self.processes = dict(moments), store, processes
        self.comparable = _comparable(moments)
        self.step_lengths = [0.0] * (len(self.comparable) - 1)
        last = self.moments[self.comparable[-1]]
        self.counts: dict[str, Int[Tensor, " k"]] = {}
        self.device = last.device
        several = len(self.comparable) > 1
        self.pair = CrossMoments(last.num_classes, last.dim, last.device) if several else None

    def update(
        self, features: Mapping[str, Float[Tensor, "b _d"]], labels: Int[Tensor, " b"]
    ) -> None:
        """Add one batch of features of all layers."""
        for name, moments in self.moments.items():
            moments.update(features[name], labels)
        for index, (earlier, later) in enumerate(pairwise(self.comparable)):
            self.step_lengths[index] += step_length(features[earlier], features[later])
        if self.pair is not None:
            first, last = self.comparable[0], self.comparable[-1]
            self.pair.update(features[first], features[last], labels)
        if self.store is not None:
            self.store.append({name: features[name] for name in self.moments}, labels)

    def finish(self) -> dict[str, ClassStatistics]:
        """Return each layer's statistics of the samples of all processes.

        Stored features stay in their process; the second passes below sum over all processes. Only
        the counts of the moments are kept: with many classes the moments are most of the memory.
        """
        stats = {}
        for name in list(self.moments):
            moments = self.moments.pop(name)
            merge_in_place(moments, self.processes)
            stats[name], self.counts[name] = finish(moments), moments.counts
        lengths = torch.tensor(self.step_lengths, dtype=torch.float64, device=self.device)
        self.step_lengths = self.processes.sum(lengths).tolist()
        if self.pair is not None:
            merge_in_place(self.pair, self.processes)
        return stats

    def stored(self, name: str) -> Batches:
        """Return one layer's stored batches of all processes; they can be iterated repeatedly."""
        local = self.stored_here(name)
        several = self.processes.several
        return self.processes.batches(local, self.device) if several else local

    def stored_here(self, name: str) -> Batches:
        """Return one layer's stored batches of this process; they can be iterated repeatedly."""
        assert self.store is not None
        return _Stored(self.store, name)

    def decisions(self, deciders: Mapping[str, Decider]) -> dict[str, DecisionCounts]:
        """Count each layer's decisions over the stored features of every process."""
        assert self.store is not None
        counts = {name: decide.none() for name, decide in deciders.items()}
        with self.processes.ending_together():
            for features, labels in self.store:
                for name, decide in deciders.items():
                    counts[name] = counts[name] + decide(features[name], labels)
        return {
            name: local.over_all_processes(self.device, self.processes)
            for name, local in counts.items()
        }

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
        with self.processes.ending_together():
            for features, labels in self.store:
                h0, h1 = features[first].to(device), features[last].to(device)
                hits += nearest_hits_on_line(h0, h1, labels, self.pair, positions)
        total = self.processes.sum(hits).to(torch.float64)
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
