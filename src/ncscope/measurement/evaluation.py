"""Evaluation of what a pass over a model has gathered: records of layers, and the geodesic."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from ncscope.measurement.by_batch import with_batch_estimate
from ncscope.measurement.gather import LayerGatherer, Looked
from ncscope.measurement.ood import OodPass, OodSource
from ncscope.measurement.plans import LayerPlan, ProbeOptions
from ncscope.measurement.records import GeodesicRecord, LayerRecord, ProbeRecord
from ncscope.measurement.resampling import LayerSamples, with_trust
from ncscope.measurement.samples import layer_record
from ncscope.measurement.sampling import with_sampling_errors
from ncscope.metrics.evaluate import LEFT_OUT
from ncscope.metrics.information import (
    DENSE_LIMIT,
    DatasetInformation,
    dataset_information,
    reads_often,
    takes_long,
)
from ncscope.metrics.layerwise import geodesic, relative_position, straightness
from ncscope.metrics.ood import OodResult, OodScorer
from ncscope.metrics.reliability import warn_of_missing_classes
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import Decider, Hits
from ncscope.stats.statistics import ClassStatistics

_NEEDS_STORE = (
    "mir, hdr and their parts are left out: they need every sample several times; pass "
    "second_pass='store'"
)

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
    correct: Int[Tensor, " k"] | None = None,
    outside: OodSource | None = None,
) -> Probed:
    """Compute the measurement from the statistics of all processes.

    Args:
        gatherer: Statistics of this process, and its samples of the second pass.
        plans: Layers in forward order; the last feeds the head.
        options: Options of the measurement.
        known: Statistics whose class means the nearest-mean rule uses, by layer; the layers that
            are absent use their own.
        correct: Number of samples of each class, in all processes, whose largest logit is that of
            their class; None to count the classifier's hits in the second pass.
        outside: Function that runs the model over the OOD samples of this process; None for none.
    """
    stats = gatherer.finish()
    by_logits, last, processes = correct is not None, plans[-1], gatherer.processes
    ood_pass = None if outside is None else _ood_pass(gatherer, last, outside, stats, known)
    scorer = None if ood_pass is None else ood_pass.scorer
    means_of = stats | dict(known)
    looked = _looked(gatherer, plans, means_of, by_logits=by_logits, scorer=scorer)
    compared = None
    if ood_pass is not None:
        with processes.ending_together():
            compared = ood_pass.result(None if looked is None else looked.scores)
    information, notes = _information(gatherer, last, stats, options)
    with processes.ending_together():
        sources = [_sources(plan, stats, looked, information, options, correct) for plan in plans]
        sources[-1] = replace(sources[-1], ood=compared)
        records = tuple(
            layer_record(plan.name, each, plan.groups, by_class=options.by_class)
            for plan, each in zip(plans, sources, strict=True)
        )
    records = tuple(
        replace(each, warnings=(*warn_of_missing_classes(stats[n], known[n]), *each.warnings))
        if (n := each.layer) in known and plan.needs.decisions
        else each
        for each, plan in zip(records, plans, strict=True)
    )
    records = _with_notes(records, looked, notes, by_logits=by_logits)
    batch_size = options.information_batch
    if batch_size is not None and last.weight is not None and last.needs.information:
        features = gatherer.stored(last.name)
        weight = last.weight.to(torch.float64)
        with processes.ending_together():
            estimated = with_batch_estimate(records[-1], features, weight, batch_size)
        records = (*records[:-1], estimated)
    if options.resamples:
        records = _trusted(
            records, gatherer, plans, options, stats, known, set(information), compared
        )
    record = ProbeRecord(
        layers=records,
        comparable=gatherer.comparable,
        relative_position=tuple(relative_position(gatherer.step_lengths)),
        geodesic=_geodesic_record(gatherer, stats, looked),
        straightness=(
            None if gatherer.pair is None else straightness(gatherer.step_lengths, gatherer.chord)
        ),
    )
    return Probed(record, stats)


def with_undecided(probed: Probed, count: int) -> Probed:
    """Note on the last layer how many samples have no single greatest logit.

    Args:
        probed: Measurement with the accuracy of the logits.
        count: Number of samples with several equal greatest logits, or NaN.
    """
    if not count:
        return probed
    total = probed.record.layers[-1].num_samples
    return with_notes(
        probed,
        [
            f"accuracy: {count:,} of {total:,} samples have several equal greatest logits, or NaN; "
            "of equal ones the first counts"
        ],
    )


def with_notes(probed: Probed, notes: Sequence[str], warnings: Sequence[str] = ()) -> Probed:
    """Return a measurement with further notes and warnings on its last layer.

    Args:
        probed: Measurement.
        notes: Sentences on what was measured.
        warnings: Sentences on values that may mislead.
    """
    *before, last = probed.record.layers
    last = replace(last, notes=(*notes, *last.notes), warnings=(*warnings, *last.warnings))
    layers = (*before, last)
    return replace(probed, record=replace(probed.record, layers=layers))


def _trusted(
    records: Sequence[LayerRecord],
    gatherer: LayerGatherer,
    plans: Sequence[LayerPlan],
    options: ProbeOptions,
    stats: Mapping[str, ClassStatistics],
    known: Mapping[str, ClassStatistics],
    with_entropies: Collection[str],
    compared: OodResult | None,
) -> tuple[LayerRecord, ...]:
    """Return the records with the chance level and the standard errors that are asked for."""
    return tuple(
        with_trust(
            record,
            _samples(
                gatherer,
                plan,
                record.dim,
                options,
                known.get(plan.name),
                information=plan.name in with_entropies,
            ),
            stats[plan.name],
            baseline=options.baseline,
            uncertainty=options.uncertainty,
            memory=options.memory,
            ood=compared if plan is plans[-1] else None,
        )
        for plan, record in zip(plans, records, strict=True)
    )


def _samples(
    gatherer: LayerGatherer,
    plan: LayerPlan,
    dim: int,
    options: ProbeOptions,
    means_of: ClassStatistics | None,
    *,
    information: bool,
) -> LayerSamples:
    """Return the stored samples of a layer, to be measured again."""
    return LayerSamples(
        plan=plan,
        batches=gatherer.stored_here(plan.name),
        counts=gatherer.counts[plan.name],
        dim=dim,
        prior=options.prior,
        weight_decay=options.weight_decay,
        means_of=means_of,
        information=information,
        precision=options.precision,
        processes=gatherer.processes,
    )


def _sources(
    plan: LayerPlan,
    stats: Mapping[str, ClassStatistics],
    looked: Looked | None,
    information: Mapping[str, DatasetInformation],
    options: ProbeOptions,
    correct: Int[Tensor, " k"] | None,
) -> Sources:
    decisions = None if looked is None else looked.decisions.get(plan.name)
    hits = None if decisions is None else decisions.hits
    if correct is not None and plan.weight is not None:
        hits = Hits(stats[plan.name].num_samples, int(correct.sum()), correct)
    return Sources(
        stats[plan.name],
        plan.weight,
        plan.bias,
        decisions if plan.needs.decisions else None,
        information.get(plan.name),
        options.weight_decay,
        hits=hits,
        one_logit=plan.one_logit,
    )


def _information(
    gatherer: LayerGatherer,
    last: LayerPlan,
    stats: Mapping[str, ClassStatistics],
    options: ProbeOptions,
) -> tuple[dict[str, DatasetInformation], tuple[str, ...]]:
    """Compute the entropies of the head's input against the head, or say why they are left out."""
    if last.weight is None or not last.needs.information:
        return {}, ()
    counts = gatherer.counts[last.name]
    size = int(counts.sum())
    if options.second_pass != "store":
        unasked = last.groups is None or gatherer.processes.several
        if options.second_pass != "recompute" or unasked or reads_often(size, last.weight):
            return {}, (_NEEDS_STORE,)
    elif last.groups is None and takes_long(size, last.weight):
        return {}, ()
    mean = stats[last.name].global_mean
    batches = gatherer.stored(last.name)
    if options.second_pass == "recompute" and size <= DENSE_LIMIT:
        batches = list(batches)  # so few are read twice, which needs one order
    weight = last.weight.to(torch.float64)
    with gatherer.processes.ending_together():
        return {last.name: dataset_information(batches, counts, weight, mean)}, ()


def _looked(
    gatherer: LayerGatherer,
    plans: Sequence[LayerPlan],
    means_of: Mapping[str, ClassStatistics],
    *,
    by_logits: bool,
    scorer: OodScorer | None = None,
) -> Looked | None:
    """Run the second pass, if one is needed.

    Args:
        gatherer: Samples of the second pass.
        plans: Layers to measure.
        means_of: Statistics whose class means decide, by layer.
        by_logits: True if the classifier's hits have been counted from the logits.
        scorer: Scores of the last layer's samples to compare with OOD samples, if there are any.
    """
    if gatherer.store is None:
        return None
    deciders = {
        plan.name: _decider(plan, means_of[plan.name], gatherer)
        for plan in plans
        if plan.needs.decisions or (plan.needs.hits and not by_logits)
    }
    positions = None if gatherer.pair is None else LINE
    if not deciders and positions is None and scorer is None:
        return None
    return gatherer.looked(deciders, positions, scorer)


def _ood_pass(
    gatherer: LayerGatherer,
    last: LayerPlan,
    source: OodSource,
    stats: Mapping[str, ClassStatistics],
    known: Mapping[str, ClassStatistics],
) -> OodPass:
    """Run the model over the OOD samples of this process."""
    with gatherer.processes.ending_together():
        found = OodPass(
            last,
            known.get(last.name, stats[last.name]),
            on_own=last.name not in known,
            processes=gatherer.processes,
            device=gatherer.device,
        )
        found.run(source)
    return found


def _decider(plan: LayerPlan, means_of: ClassStatistics, gatherer: LayerGatherer) -> Decider:
    device, num_classes = gatherer.device, len(gatherer.counts[plan.name])
    classes, means = means_of.classes.to(device), means_of.means.to(device)
    return Decider(classes, means, plan.weight, plan.bias, num_classes=num_classes)


def _with_notes(
    records: tuple[LayerRecord, ...],
    looked: Looked | None,
    notes: tuple[str, ...],
    *,
    by_logits: bool,
) -> tuple[LayerRecord, ...]:
    """Add notes to the last layer, and standard errors to shares of a drawn sample.

    The accuracy has no such error if it was counted from the logits of all samples.
    """
    if notes:
        last = records[-1]
        kept = tuple(note for note in last.notes if note != LEFT_OUT)
        records = (*records[:-1], replace(last, notes=(*kept, *notes)))
    if looked is None or not looked.standard_errors:
        return records
    counted = {"head_hits"} if by_logits else set()
    errors = {
        layer: {name: share for name, share in shares.items() if name not in counted}
        for layer, shares in looked.standard_errors.items()
    }
    return tuple(
        with_sampling_errors(record, errors.get(record.layer, {}), looked.samples)
        for record in records
    )


def _geodesic_record(
    gatherer: LayerGatherer, stats: Mapping[str, ClassStatistics], looked: Looked | None
) -> GeodesicRecord | None:
    if gatherer.pair is None or looked is None:
        return None
    ends = stats[gatherer.comparable[0]], stats[gatherer.comparable[-1]]
    positions: list[float] = LINE.tolist()
    with gatherer.processes.ending_together():
        line = geodesic(*ends, gatherer.pair)
        return GeodesicRecord(
            t=positions,
            pfc1=[float(line.pfc1(t)) for t in positions],
            pfc2=[float(line.pfc2(t)) for t in positions],
            pfc3=looked.line,
            alignment=float(line.alignment()),
            transport_cost=float(line.transport_cost()),
        )
