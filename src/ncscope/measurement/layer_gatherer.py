"""Moments of every tapped layer, batch by batch, and the second pass that decides the samples.

`LayerGatherer` reads the samples once for the moments, and, where metrics need decisions, once more
from its store. Both passes end with sums over all processes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.array_checks import refuse_magnitude
from ncscope.devices import is_asynchronous, move_to
from ncscope.math.powers import STREAM_LIMIT
from ncscope.measurement.sample_stores import Rerun, SampleStore
from ncscope.stats.classes import BatchClasses
from ncscope.stats.decisions import Decider, DecisionCounts, DecisionTally, decide_layers
from ncscope.stats.directions import Batches
from ncscope.stats.faults import BatchFaults, name_batch, refuse_faults
from ncscope.stats.merging import merge_in_place
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments, nearest_hits_on_line, step_length
from ncscope.stats.processes import ALL, Processes
from ncscope.stats.reservoir import Reservoir
from ncscope.stats.shares import ShareEstimate, Stratum, estimate_share
from ncscope.stats.statistics import ClassStatistics, finish


@dataclass(frozen=True)
class SecondPassResult:
    """Results of the second pass over the samples of all processes.

    Attributes:
        decisions: Counts of each layer that has a decider; estimates if the samples are drawn.
        standard_errors: Standard errors of the estimated shares of each layer, by the names of the
            counts; absent if all samples were decided.
        line: Nearest-mean accuracy at each position of the line between two layers.
        samples: Number of samples that were decided.
        scores: Scores of each batch of this process; empty if no scores are measured.
        seen: Number of this process's samples, for which the scores stand: more than are scored if
            the samples were drawn.
    """

    decisions: Mapping[str, DecisionCounts]
    standard_errors: Mapping[str, Mapping[str, ShareEstimate]]
    line: list[float]
    samples: int
    scores: list[Tensor]
    seen: int


class LayerGatherer:
    """Moments of each layer, path lengths between layers, and samples of the second pass.

    Args:
        moments: One accumulator for each layer, in forward order.
        store: Samples of the second pass; None if no second pass is needed.
        processes: Processes that measure together.
    """

    def __init__(
        self,
        moments: Mapping[str, ClassMoments],
        store: SampleStore | None,
        processes: Processes = ALL,
    ) -> None:
        self.moments, self.store, self.processes = dict(moments), store, processes
        runs = [tuple(names) for _, names in groupby(moments, key=lambda name: moments[name].dim)]
        # The last run of at least two layers of one dimension; without one, the last layer.
        self.comparable = next((run for run in reversed(runs) if len(run) > 1), runs[-1])
        self.step_lengths: list[float] = []
        self.chord = 0.0
        last = self.moments[self.comparable[-1]]
        self.counts: dict[str, Int[Tensor, " k"]] = {}
        self.device = last.device
        self.faults = {name: BatchFaults(each.device) for name, each in moments.items()}
        self._batches = 0
        # One entry for each step, and one for the distance from the first layer to the last.
        self._lengths = torch.zeros(len(self.comparable), dtype=torch.float64, device=self.device)
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
        here = classes.to(self.device)  # move_to once for all layers on the device
        for name, moments in self.moments.items():
            self._take(name, moments, features[name], here)
        if self.pair is not None:
            ends = features[self.comparable[0]], features[self.comparable[-1]]
            steps = [step_length(features[a], features[b]) for a, b in pairwise(self.comparable)]
            lengths = [each.to(self.device) for each in (*steps, step_length(*ends))]
            self._lengths += torch.stack(lengths)
            self.pair.take(*ends, here)
        if self.store is not None:
            self.store.append({name: features[name] for name in self.moments}, classes.labels)

    def _take(
        self, name: str, moments: ClassMoments, features: Float[Tensor, "b d"], here: BatchClasses
    ) -> None:
        if is_asynchronous(moments.device):
            self.faults[name].note(moments.take_unread(features, here, STREAM_LIMIT), STREAM_LIMIT)
            return
        with name_batch(name, self._batches):
            refuse_magnitude(moments.take_checked(features, here, STREAM_LIMIT), STREAM_LIMIT)

    def finish(self) -> dict[str, ClassStatistics]:
        """Return each layer's statistics of the samples of all processes.

        Stored features stay in their process; the second passes below sum over all processes. Only
        the counts of the moments are kept: with many classes the moments are most of the memory.
        """
        with self.processes.fail_together():
            refuse_faults(self.faults, STREAM_LIMIT)
        if isinstance(self.store, Rerun):
            self.store.remember(self.moments)
        stats = {}
        for name in list(self.moments):
            moments = self.moments.pop(name)
            merge_in_place(moments, self.processes)
            # The moments are not used again, so that the statistics may share their memory.
            stats[name], self.counts[name] = finish(moments, copy=False), moments.counts
        *self.step_lengths, self.chord = self.processes.sum(self._lengths).tolist()
        if self.pair is not None:
            merge_in_place(self.pair, self.processes)
        return stats

    def batches_of(self, name: str) -> Batches:
        """Return one layer's stored batches of all processes; they can be iterated repeatedly."""
        local = self.local_batches(name)
        several = self.processes.several
        return self.processes.gather_batches(local, self.device) if several else local

    def local_batches(self, name: str) -> Batches:
        """Return one layer's stored batches of this process; they can be iterated repeatedly."""
        assert self.store is not None
        return _LayerBatches(self.store, name)

    def run_second_pass(
        self,
        deciders: Mapping[str, Decider],
        positions: Float[Tensor, " t"] | None,
        scorer: Callable[[Tensor], Tensor] | None = None,
    ) -> SecondPassResult:
        """Decide the samples of every process, reading them once.

        Args:
            deciders: Decider of each layer that has one.
            positions: Positions on the line from the first to the last of `comparable`, 0 to 1,
                where the nearest-mean accuracy is computed; None if it is not computed.
            scorer: Function that scores the features of the last layer; None for no scores.
        """
        assert self.store is not None
        tallies = {name: decide.start_tally() for name, decide in deciders.items()}
        points = 0 if positions is None else len(positions)
        hits = torch.zeros(points, dtype=torch.int64, device=self.device)
        samples, scores, last = 0, [], list(self.counts)[-1]
        with self.processes.fail_together():
            ends = None if positions is None or self.pair is None else self.pair.ends()
            for features, labels in self.store:
                samples += len(labels)
                decided = decide_layers(deciders, features, labels)
                tallies = {name: tallies[name] + each for name, each in decided.items()}
                if scorer is not None:
                    scores.append(scorer(move_to(features[last], self.device)))
                if ends is not None and positions is not None:
                    path = features[self.comparable[0]], features[self.comparable[-1]], labels
                    h0, h1, y = (move_to(each, self.device) for each in path)
                    hits += nearest_hits_on_line(h0, h1, y, ends, positions)
        line = self._average_hits(hits)
        if isinstance(self.store, Reservoir):
            # A process that kept all its samples estimates too where another did not: with sums of
            # its own choice it would wait for a step that the other never takes.
            sizes = self.processes.gather([self.store.seen, self.store.num_rows])
            if any(kept < seen for seen, kept in sizes):
                estimated = self._estimate(self.store, tallies, line)
                return replace(estimated, scores=scores)
        totals = {
            name: local.sum_over_processes(self.device, self.processes)
            for name, local in tallies.items()
        }
        everywhere = sum(self.processes.gather(samples))
        return SecondPassResult(totals, {}, line, everywhere, scores, samples)

    def _average_hits(self, hits: Int[Tensor, " t"]) -> list[float]:
        """Return the shares of hits at each position; a drawn sample stands for its process's."""
        if not len(hits):
            return []
        assert self.pair is not None
        weight = 1.0
        if isinstance(self.store, Reservoir):
            weight = self.store.seen / max(self.store.num_rows, 1)
        total = self.processes.sum(hits.to(torch.float64) * weight)
        accuracies: list[float] = (total / self.pair.counts.sum()).tolist()
        return accuracies

    def _estimate(
        self, store: Reservoir, tallies: Mapping[str, DecisionTally], line: list[float]
    ) -> SecondPassResult:
        """Estimate the counts of all samples from those that each process has drawn."""
        local = {name: _numbers(each.read()) for name, each in tallies.items()}
        everywhere = self.processes.gather([store.seen, store.num_rows, local])
        whole, drawn = (sum(each[part] for each in everywhere) for part in (0, 1))
        decisions, errors = {}, {}
        for name, each in local.items():
            shares = {
                key: estimate_share(
                    [Stratum(seen, kept, own[name][key]) for seen, kept, own in everywhere]
                )
                for key in each
            }
            numbers = {key: share.value * whole for key, share in shares.items()}
            decisions[name] = DecisionCounts(
                samples=whole,
                nearest_hits=numbers["nearest_hits"],
                head_hits=numbers.get("head_hits"),
                disagreements=numbers.get("disagreements"),
            )
            errors[name] = shares
        return SecondPassResult(decisions, errors, line, drawn, [], store.seen)


def _numbers(counts: DecisionCounts) -> dict[str, float]:
    """Return the counts that are there, by their names."""
    numbers = {
        "nearest_hits": counts.nearest_hits,
        "head_hits": counts.head_hits,
        "disagreements": counts.disagreements,
    }
    return {name: number for name, number in numbers.items() if number is not None}


class _LayerBatches:
    """Features and labels of one layer of the samples of the second pass."""

    def __init__(self, store: SampleStore, name: str) -> None:
        self.store, self.name = store, name

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return ((features[self.name], labels) for features, labels in self.store)
