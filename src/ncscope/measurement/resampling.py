"""Chance level and standard errors of a layer's metrics, from samples that can be read again."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.powers import times_power
from ncscope.measurement.plans import LayerPlan
from ncscope.measurement.records import LayerRecord
from ncscope.memory import check_memory
from ncscope.metrics.evaluate import evaluate
from ncscope.metrics.information import DatasetInformation, dataset_information
from ncscope.metrics.intervals import WITHOUT_LABELS, Sample, Uncertainty, estimate_errors
from ncscope.metrics.ood import OodResult
from ncscope.metrics.reliability import no_better_than_chance
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import Decider, DecisionCounts, DecisionTally
from ncscope.stats.directions import Batches
from ncscope.stats.jackknife import GROUPS, Dealer, Replicate, leave_one_out, take_rows
from ncscope.stats.merging import merge_in_place
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS, Precision, Prior, Redraw
from ncscope.stats.processes import Processes
from ncscope.stats.statistics import ClassStatistics, finish, finish_unlabelled

AUTOMATIC = 10_000_000
"""Largest product of samples and dimension for which the chance level is computed unasked."""

_DRAWS, _QUICK = 9, 10**8
"""Permutations of a chance level, and the n d max(d, K) above which one is drawn."""

_ALIVE = GROUPS + 6
"""Moments that are alive at once: those of the groups, and the sums of halves."""


@dataclass(frozen=True)
class LayerSamples:
    """Samples of one layer that can be read again, and how the layer is measured.

    Attributes:
        plan: Layer, groups of metrics, and the head that reads it.
        batches: Features and labels of this process.
        counts: Number of samples of each class, in all processes.
        dim: Feature dimension.
        prior: Class prior.
        weight_decay: Weight decay on the head.
        means_of: Statistics whose class means the nearest-mean rule uses; None for the samples'
            own.
        exponent: Unit e of the features: they are $2^{-e}$ times the features given.
        information: True if the entropies are measured.
        decided: False if the decisions are left out, because they take long.
        precision: Precision of the moments.
        processes: Processes that measure their samples together; None if this process measures its
            samples alone, and must not wait for others.
        has_labels: False if the samples have no labels and are one class.
    """

    plan: LayerPlan
    batches: Batches
    counts: Int[Tensor, " k"]
    dim: int
    prior: Prior = "empirical"
    weight_decay: float = 0.0
    means_of: ClassStatistics | None = None
    exponent: int = 0
    information: bool = False
    decided: bool = True
    precision: Precision = "float64"
    processes: Processes | None = None
    has_labels: bool = True

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Run a step that must not communicate; if it fails in one process, all of them end."""
        if self.processes is None:
            yield
            return
        with self.processes.fail_together():
            yield

    def merge(self, moments: ClassMoments) -> ClassMoments:
        """Replace moments by those of all processes that measure together, and return them."""
        if self.processes is not None:
            merge_in_place(moments, self.processes)
        return moments

    def start_moments(self, counts: Int[Tensor, " k"]) -> ClassMoments:
        """Return moments without samples, for samples of these class counts."""
        return ClassMoments(
            len(counts),
            self.dim,
            statistics=ALL_STATISTICS.intersection(self.plan.needs),
            prior=self.prior,
            class_counts=counts if self.prior == "uniform" else None,
            precision=self.precision,
            device=counts.device,
        )

    def finish(self, moments: ClassMoments) -> ClassStatistics:
        """Return the statistics of moments, in the unit of the features given."""
        stats = finish(moments) if self.has_labels else finish_unlabelled(moments)
        return replace(stats, exponent=self.exponent)

    def measure_entropies(
        self, batches: Batches, stats: ClassStatistics
    ) -> DatasetInformation | None:
        """Compute the entropies of some of the samples, if they are measured."""
        if not self.information or self.plan.weight is None:
            return None
        counts = torch.zeros_like(self.counts)
        counts[stats.classes] = stats.counts
        if self.processes is not None and self.processes.several:
            batches = self.processes.gather_batches(batches, counts.device)
        weight = self.plan.weight.to(torch.float64)
        with self.fail_together():
            return dataset_information(batches, counts, weight, stats.global_mean)

    def count_decisions(self, batches: Batches, means_of: ClassStatistics) -> DecisionTally | None:
        """Count the decisions on some of the samples of this process, if decisions are measured.

        Args:
            batches: Features and labels.
            means_of: Statistics whose class means the nearest-mean rule uses.
        """
        if not (self.decided and self.plan.needs & {"decisions", "hits"}):
            return None
        unit, device = max(self.exponent, means_of.exponent), self.counts.device
        means = times_power(means_of.means.to(device), means_of.exponent - unit)
        classes, plan = means_of.classes.to(device), self.plan
        decide = Decider(
            classes, means, plan.weight, plan.bias, exponent=unit, num_classes=len(self.counts)
        )
        counts = decide.start_tally()
        for features, labels in batches:
            counts = counts + decide(in_unit(features, unit - self.exponent), labels)
        return counts

    def read_counts(self, tally: DecisionTally) -> DecisionCounts:
        """Return the counts of the samples that are measured together."""
        if self.processes is None:
            return tally.read()
        return tally.sum_over_processes(self.counts.device, self.processes)

    def evaluate_metrics(self, batches: Batches, stats: ClassStatistics) -> dict[str, float]:
        """Evaluate the metrics of some of the samples.

        Args:
            batches: Features and labels of this process.
            stats: Statistics of these samples, in all processes.
        """
        with self.fail_together():
            tally = self.count_decisions(batches, self.means_of or stats)
        decisions = None if tally is None else self.read_counts(tally)
        information = self.measure_entropies(batches, stats)
        with self.fail_together():
            return evaluate(self.make_sources(stats, information, decisions), self.plan.groups)[0]

    def make_sources(
        self,
        stats: ClassStatistics,
        information: DatasetInformation | None,
        decisions: DecisionCounts | None = None,
    ) -> Sources:
        """Return the sources of the layer's metrics."""
        return Sources(
            stats,
            self.plan.weight,
            self.plan.bias,
            decisions,
            information,
            self.weight_decay,
            hits=None if decisions is None else decisions.hits,
            one_logit=self.plan.one_logit,
        )


def measure_chance_level(samples: LayerSamples) -> dict[str, float]:
    """Measure the same features with permuted labels: the median over nine permutations.

    With few classes in few dimensions, the values of one permutation differ from those of the next
    by factors. Where a measurement takes long, more than $10^8$ of n d max(d, K) or with
    entropies, it is one permutation: many dimensions or classes average the values already.
    """
    n, d, k = int(samples.counts.sum()), samples.dim, len(samples.counts)
    draws = 1 if samples.information or n * d * max(d, k) > _QUICK else _DRAWS
    before = _count_samples_before(samples)
    every = [_measure_permuted(samples, before, seed) for seed in range(draws)]
    keys = [key for key in every[0] if all(key in values for values in every)]
    return {key: float(np.median([values[key] for values in every])) for key in keys}


def _measure_permuted(
    samples: LayerSamples, before: Int[Tensor, " k"], seed: int
) -> dict[str, float]:
    """Measure the same features with labels that are permuted once.

    The labels are drawn without replacement from the class counts of all processes, so the sizes
    of the classes are kept, however the samples are sorted.
    """
    with samples.fail_together():
        everyone = torch.arange(len(samples.counts), device="cpu").repeat_interleave(
            samples.counts.cpu()
        )
        order = torch.randperm(
            len(everyone), generator=torch.Generator().manual_seed(seed), device="cpu"
        )
        permuted = _Permutation(samples.batches, everyone[order[int(before.sum()) :]])
        moments = samples.start_moments(samples.counts)
        for features, labels in permuted:
            moments.update(features, labels)
    values = samples.evaluate_metrics(permuted, samples.finish(samples.merge(moments)))
    return {key: value for key, value in values.items() if key not in WITHOUT_LABELS}


def in_unit(features: Shaped[Tensor, "n d"], exponent: int) -> Shaped[Tensor, "n d"]:
    """Divide features by a power of two."""
    return times_power(features.to(torch.float64), -exponent) if exponent else features


class _Permutation:
    """Batches with other labels, in the order of the samples."""

    def __init__(self, batches: Batches, labels: Int[Tensor, " n"]) -> None:
        self.batches, self.labels = batches, labels

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        start = 0
        for features, _ in self.batches:
            yield features, self.labels[start : start + len(features)]
            start += len(features)


def _count_samples_before(samples: LayerSamples) -> Int[Tensor, " k"]:
    """Count the samples of each class in the processes of lower rank."""
    mine = torch.zeros(len(samples.counts), dtype=torch.int64, device="cpu")
    processes = samples.processes
    if processes is None or not processes.several:
        return mine
    with samples.fail_together():
        for _, labels in samples.batches:
            mine += torch.bincount(labels.cpu(), minlength=len(mine))
    lower = processes.gather(mine.tolist())[: processes.index]
    return torch.tensor(lower, dtype=torch.int64, device="cpu").reshape(-1, len(mine)).sum(0)


def estimate_standard_errors(
    samples: LayerSamples,
    values: Mapping[str, float],
    stats: ClassStatistics,
    redraw: Redraw = True,
    memory: int | None = None,
    known: Mapping[str, float] | None = None,
) -> Uncertainty:
    """Estimate the standard errors of a layer's metrics by the group jackknife.

    Args:
        samples: Samples of the layer.
        values: Metrics of all the samples.
        stats: Statistics of all the samples.
        redraw: True to hold the sizes of the classes; ``"random_sizes"`` to let them vary.
        memory: Bytes that the statistics of the groups may take; None for the free memory.
        known: Standard errors of metrics of OOD samples.

    Raises:
        InputError: If the statistics of the groups take more.
    """
    sample = Sample.of(stats, own_means=samples.means_of is None)
    if sample.smallest < GROUPS:
        return estimate_errors(values, [], sample)
    before, random = _count_samples_before(samples), redraw == "random_sizes"

    def deal() -> Dealer:
        return Dealer(samples.counts, before, random_sizes=random)

    replicates = [Replicate(samples.batches, deal, group) for group in range(GROUPS)]
    if random and samples.prior == "uniform":
        # The scatter is weighted by class sizes that every replicate changes: nothing is left to
        # merge.
        moments: Iterator[ClassMoments] = (_gather_moments(samples, each) for each in replicates)
    else:
        _check_size(samples, memory)
        moments = _gather_moments_by_group(samples, deal, replicates)
    found = [
        samples.evaluate_metrics(replicate, samples.finish(each))
        for replicate, each in zip(replicates, moments, strict=True)
    ]
    return estimate_errors(values, found, sample, known, random_sizes=random)


def _gather_moments_by_group(
    samples: LayerSamples, deal: Callable[[], Dealer], replicates: list[Replicate]
) -> Iterator[ClassMoments]:
    """Yield the moments of each replicate, from those of the groups, which are all kept."""
    with samples.fail_together():
        parts = [samples.start_moments(samples.counts) for _ in replicates]
        dealer = deal()
        for features, labels in samples.batches:
            left_out, _ = dealer(labels)
            for group, part in enumerate(parts):
                rows = torch.nonzero(left_out == group).squeeze(1)
                part.update(*take_rows(features, labels, rows))
    for replicate, moments in zip(replicates, leave_one_out(parts), strict=True):
        with samples.fail_together():
            for features, labels in replicate.doubles():
                moments.update(features, labels)
        yield samples.merge(moments)


def _gather_moments(samples: LayerSamples, replicate: Replicate) -> ClassMoments:
    """Return the moments of a replicate, from its samples."""
    counts = torch.zeros_like(samples.counts)
    with samples.fail_together():
        for _, labels in replicate:
            counts += torch.bincount(labels.to(counts.device), minlength=len(counts))
    if samples.processes is not None:
        counts = samples.processes.sum(counts)
    with samples.fail_together():
        moments = samples.start_moments(counts)
        for features, labels in replicate:
            moments.update(features, labels)
    return samples.merge(moments)


def _check_size(samples: LayerSamples, memory: int | None) -> None:
    one = sum(value.nbytes for value in samples.start_moments(samples.counts).state_dict().values())
    needed, what = _ALIVE * one, f"the statistics of {GROUPS} groups of {samples.plan.name}"
    fix = "leave uncertainty out, ask for fewer groups of metrics, or pass a larger memory"
    if memory is None:
        check_memory(needed, what, fix)
    elif needed > memory:
        raise InputError(expected=f"{needed:,} bytes for {what}", found=f"{memory:,}", fix=fix)


def add_chance_and_errors(
    record: LayerRecord,
    samples: LayerSamples,
    stats: ClassStatistics,
    *,
    baseline: bool | None = False,
    uncertainty: Redraw = False,
    memory: int | None = None,
    ood: OodResult | None = None,
) -> LayerRecord:
    """Return a record with the chance level and the standard errors that are asked for.

    Args:
        record: Measurement of a layer.
        samples: Samples of the layer.
        stats: Statistics of the samples.
        baseline: True to compute the chance level; None to compute it up to `AUTOMATIC`.
        uncertainty: Estimate standard errors if not False.
        memory: Bytes that the statistics of the groups may take; None for the free memory.
        ood: Comparison with OOD samples, if there are any.
    """
    if baseline is None:
        baseline = record.num_samples * record.dim <= AUTOMATIC
    if baseline:
        chance = measure_chance_level(samples)
        said = no_better_than_chance(record.metrics, chance, record.k)
        record = replace(record, baseline=chance, warnings=(*said, *record.warnings))
    if not uncertainty:
        return record
    known = {} if ood is None else ood.standard_errors
    errors = estimate_standard_errors(samples, record.metrics, stats, uncertainty, memory, known)
    return replace(
        record,
        standard_errors=errors.standard_errors,
        bias_corrected=errors.bias_corrected,
        random_sizes=uncertainty == "random_sizes",
        warnings=(*record.warnings, *errors.warnings),
        notes=(*record.notes, *errors.reasons),
    )
