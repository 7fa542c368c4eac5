"""Evaluation of what a pass over a model has gathered: records of layers, and the geodesic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ncscope.metrics.information import DatasetInformation, dataset_information, takes_long
from ncscope.metrics.layerwise import geodesic, relative_position
from ncscope.metrics.sources import Sources
from ncscope.probing.by_batch import with_batch_estimate
from ncscope.probing.gather import LayerGatherer
from ncscope.probing.plans import LayerPlan, ProbeOptions
from ncscope.probing.records import GeodesicRecord, LayerRecord, ProbeRecord
from ncscope.probing.resampling import LayerSamples, with_trust
from ncscope.probing.samples import layer_record
from ncscope.stats.decisions import Decider, DecisionCounts
from ncscope.stats.distributed import ending_together
from ncscope.stats.statistics import ClassStatistics

LINE = torch.linspace(0, 1, 21, dtype=torch.float64)


@dataclass(frozen=True)
class Probed:
    """A model's measurement: the plain record, and the statistics it was computed from.

    Attributes:
        record: Metrics of every layer.
        statistics: Layer name to class statistics, in forward order.
    """

    record: ProbeRecord
    statistics: Mapping[str, ClassStatistics]


def measured(
    gatherer: LayerGatherer,
    plans: Sequence[LayerPlan],
    options: ProbeOptions,
    known: Mapping[str, ClassStatistics],
) -> Probed:
    """Compute the measurement from the statistics of all processes.

    Args:
        gatherer: Statistics and stored features of this process.
        plans: Layers in forward order; the last feeds the head.
        options: Options of the measurement.
        known: Statistics whose class means the nearest-mean rule uses, by layer; the layers that
            are absent use their own.
    """
    stats = gatherer.finish()
    decisions = _decisions(gatherer, plans, stats | dict(known))
    looked = _information(gatherer, plans[-1], stats)
    with ending_together():
        records = tuple(
            layer_record(plan.name, _sources(plan, stats, decisions, looked, options), plan.groups)
            for plan in plans
        )
    last, batch_size = plans[-1], options.information_batch
    if batch_size is not None and last.weight is not None and last.needs.information:
        features = gatherer.stored(last.name)
        weight = last.weight.to(torch.float64)
        with ending_together():
            estimated = with_batch_estimate(records[-1], features, weight, batch_size)
        records = (*records[:-1], estimated)
    if options.uncertainty or options.baseline is not False:
        records = tuple(
            with_trust(
                record,
                _samples(gatherer, plan, record, options, known.get(plan.name)),
                stats[plan.name],
                baseline=options.baseline,
                uncertainty=options.uncertainty,
                memory=options.memory,
            )
            for plan, record in zip(plans, records, strict=True)
        )
    record = ProbeRecord(
        layers=records,
        comparable=gatherer.comparable,
        relative_position=tuple(relative_position(gatherer.step_lengths)),
        geodesic=_geodesic_record(gatherer, stats),
    )
    return Probed(record, stats)


def _samples(
    gatherer: LayerGatherer,
    plan: LayerPlan,
    record: LayerRecord,
    options: ProbeOptions,
    means_of: ClassStatistics | None,
) -> LayerSamples:
    """Return the stored samples of a layer, to be measured again."""
    return LayerSamples(
        plan=plan,
        batches=gatherer.stored_here(plan.name),
        counts=gatherer.counts[plan.name],
        dim=record.dim,
        prior=options.prior,
        weight_decay=options.weight_decay,
        means_of=means_of,
        information="entropy_features" in record.metrics,
        precision=options.precision,
        shared=True,
    )


def _sources(
    plan: LayerPlan,
    stats: Mapping[str, ClassStatistics],
    decisions: Mapping[str, DecisionCounts],
    looked: Mapping[str, DatasetInformation],
    options: ProbeOptions,
) -> Sources:
    return Sources(
        stats[plan.name],
        plan.weight,
        plan.bias,
        decisions.get(plan.name),
        looked.get(plan.name),
        options.weight_decay,
    )


def _information(
    gatherer: LayerGatherer, last: LayerPlan, stats: Mapping[str, ClassStatistics]
) -> dict[str, DatasetInformation]:
    """Compute the entropies of the head's input against the head."""
    if last.weight is None or not last.needs.information:
        return {}
    counts = gatherer.counts[last.name]
    if last.groups is None and takes_long(int(counts.sum()), last.weight):
        return {}
    mean = stats[last.name].global_mean
    batches = gatherer.stored(last.name)
    weight = last.weight.to(torch.float64)
    with ending_together():
        return {last.name: dataset_information(batches, counts, weight, mean)}


def _decisions(
    gatherer: LayerGatherer, plans: Sequence[LayerPlan], means_of: Mapping[str, ClassStatistics]
) -> dict[str, DecisionCounts]:
    """Count decisions by the class means: those of the reference for layers that it has."""
    if gatherer.store is None:
        return {}
    deciders = {
        plan.name: _decider(plan, means_of[plan.name], gatherer.device)
        for plan in plans
        if plan.needs.decisions
    }
    return gatherer.decisions(deciders)


def _decider(plan: LayerPlan, means_of: ClassStatistics, device: torch.device) -> Decider:
    classes, means = means_of.classes.to(device), means_of.means.to(device)
    return Decider(classes, means, plan.weight, plan.bias)


def _geodesic_record(
    gatherer: LayerGatherer, stats: Mapping[str, ClassStatistics]
) -> GeodesicRecord | None:
    if gatherer.pair is None or gatherer.store is None:
        return None
    ends = stats[gatherer.comparable[0]], stats[gatherer.comparable[-1]]
    accuracies = gatherer.accuracy_on_line(LINE)
    positions: list[float] = LINE.tolist()
    with ending_together():
        line = geodesic(*ends, gatherer.pair)
        return GeodesicRecord(
            t=positions,
            pfc1=[float(line.pfc1(t)) for t in positions],
            pfc2=[float(line.pfc2(t)) for t in positions],
            pfc3=accuracies,
            alignment=float(line.alignment()),
            transport_cost=float(line.transport_cost()),
        )
