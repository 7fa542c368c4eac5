"""Evaluation of what a pass over a model has gathered: records of layers, and the geodesic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.measurement.layer_gatherer import LayerGatherer, SecondPassResult
from ncscope.measurement.ood import OodPass, OodSource
from ncscope.measurement.options import Options
from ncscope.measurement.plans import LayerPlan
from ncscope.measurement.records import GeodesicRecord, LayerRecord, ModelRecord
from ncscope.measurement.resampling import LayerSamples, add_chance_and_errors
from ncscope.measurement.samples import layer_record
from ncscope.metrics.batch_information import batch_entropies, batch_estimate
from ncscope.metrics.evaluate import LEFT_OUT
from ncscope.metrics.information import (
    DENSE_LIMIT,
    DatasetInformation,
    dataset_information,
    reads_often,
    takes_long,
)
from ncscope.metrics.layerwise import geodesic, relative_position, straightness
from ncscope.metrics.ood import OodScorer
from ncscope.metrics.reliability import warn_of_missing_classes
from ncscope.metrics.sources import Sources
from ncscope.stats.decisions import Decider, Hits
from ncscope.stats.directions import Batches
from ncscope.stats.shares import FEWEST, ShareEstimate
from ncscope.stats.statistics import ClassStatistics

_NEEDS_STORE = (
    "mir, hdr and their parts are left out: they need every sample several times; pass "
    "second_pass='store'"
)

LINE = torch.linspace(0, 1, 21, dtype=torch.float64, device="cpu")


@dataclass(frozen=True)
class ModelResult:
    """A model's measurement: the plain record, and the statistics it was computed from.

    Attributes:
        record: Metrics of every layer.
        statistics: Layer name to class statistics, in forward order.
        class_names: Names of the classes, in the order of the head's rows; empty if unknown.
    """

    record: ModelRecord
    statistics: Mapping[str, ClassStatistics]
    class_names: tuple[str, ...] = ()


def evaluate_layers(
    gatherer: LayerGatherer,
    plans: Sequence[LayerPlan],
    options: Options,
    known: Mapping[str, ClassStatistics],
    correct: Int[Tensor, " k"] | None = None,
    outside: OodSource | None = None,
) -> ModelResult:
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
    last, processes = plans[-1], gatherer.processes
    ood_pass = None
    if outside is not None:
        with processes.fail_together():
            ood_pass = OodPass(
                last,
                known.get(last.name, stats[last.name]),
                on_own=last.name not in known,
                processes=processes,
                device=gatherer.device,
            )
            ood_pass.run(outside)
    scorer = None if ood_pass is None else ood_pass.scorer
    second = _run_second_pass(
        gatherer, plans, stats | dict(known), counts_hits=correct is None, scorer=scorer
    )
    ood = None
    if ood_pass is not None:
        with processes.fail_together():
            inside, seen = ([], 0) if second is None else (second.scores, second.seen)
            ood = ood_pass.compare(inside, seen)
    information, notes = _information(gatherer, last, stats, options)
    records = []
    # One error for all layers: processes must not wait for one another between them.
    with processes.fail_together():
        for plan in plans:
            decisions = None if second is None else second.decisions.get(plan.name)
            hits = None if decisions is None else decisions.hits
            if correct is not None and plan.weight is not None:
                hits = Hits(stats[plan.name].num_samples, int(correct.sum()), correct)
            sources = Sources(
                stats[plan.name],
                plan.weight,
                plan.bias,
                decisions if "decisions" in plan.needs else None,
                information.get(plan.name),
                options.weight_decay,
                hits=hits,
                one_logit=plan.one_logit,
                ood=ood if plan is last else None,
            )
            record = layer_record(plan.name, sources, plan.groups, by_class=bool(options.by_class))
            if plan.name in known and "decisions" in plan.needs:
                missing = warn_of_missing_classes(stats[plan.name], known[plan.name])
                record = replace(record, warnings=(*missing, *record.warnings))
            records.append(record)
    if notes:
        others = tuple(note for note in records[-1].notes if note != LEFT_OUT)
        records[-1] = replace(records[-1], notes=(*others, *notes))
    if second is not None:
        # The accuracy of the logits is that of all samples, and has no error of drawing them.
        left_out = () if correct is None else ("head_hits",)
        for index, record in enumerate(records):
            shares = second.standard_errors.get(record.layer, {})
            shares = {name: share for name, share in shares.items() if name not in left_out}
            records[index] = add_sampling_errors(record, shares, second.samples)
    batch_size = options.information_batch
    if batch_size is not None and last.weight is not None and "information" in last.needs:
        features = gatherer.batches_of(last.name)
        weight = last.weight.to(torch.float64)
        with processes.fail_together():
            records[-1] = add_batch_estimate(records[-1], features, weight, batch_size)
    if options.resamples:
        for index, plan in enumerate(plans):
            samples = LayerSamples(
                plan=plan,
                batches=gatherer.local_batches(plan.name),
                counts=gatherer.counts[plan.name],
                dim=records[index].dim,
                prior=options.prior,
                weight_decay=options.weight_decay,
                means_of=known.get(plan.name),
                information=plan.name in information,
                precision=options.precision,
                processes=processes,
            )
            records[index] = add_chance_and_errors(
                records[index],
                samples,
                stats[plan.name],
                baseline=options.baseline,
                uncertainty=options.uncertainty,
                memory=options.memory,
                ood=ood if plan is last else None,
            )
    of_model = ModelRecord(
        layers=tuple(records),
        comparable=gatherer.comparable,
        relative_position=tuple(relative_position(gatherer.step_lengths)),
        geodesic=_geodesic_record(gatherer, stats, second),
        straightness=(
            None if gatherer.pair is None else straightness(gatherer.step_lengths, gatherer.chord)
        ),
    )
    return ModelResult(of_model, stats)


def _run_second_pass(
    gatherer: LayerGatherer,
    plans: Sequence[LayerPlan],
    means_of: Mapping[str, ClassStatistics],
    *,
    counts_hits: bool,
    scorer: OodScorer | None,
) -> SecondPassResult | None:
    """Run the second pass, if one is needed.

    Args:
        gatherer: Samples of the second pass.
        plans: Layers to measure.
        means_of: Statistics whose class means decide, by layer.
        counts_hits: True to count the classifier's hits, which the logits have not shown.
        scorer: Scores of the last layer's samples to compare with OOD samples, if there are any.
    """
    if gatherer.store is None:
        return None
    deciders, device = {}, gatherer.device
    for plan in plans:
        if "decisions" in plan.needs or ("hits" in plan.needs and counts_hits):
            stats, num_classes = means_of[plan.name], len(gatherer.counts[plan.name])
            classes, means = stats.classes.to(device), stats.means.to(device)
            deciders[plan.name] = Decider(
                classes, means, plan.weight, plan.bias, num_classes=num_classes
            )
    positions = None if gatherer.pair is None else LINE
    if not deciders and positions is None and scorer is None:
        return None
    return gatherer.run_second_pass(deciders, positions, scorer)


def add_note_on_ties(result: ModelResult, count: int) -> ModelResult:
    """Note on the last layer how many samples have no single greatest logit.

    Args:
        result: Measurement with the accuracy of the logits.
        count: Number of samples with several equal greatest logits, or NaN.
    """
    if not count:
        return result
    total = result.record.last.num_samples
    return add_notes(
        result,
        [
            f"accuracy: {count:,} of {total:,} samples have several equal greatest logits, or NaN; "
            "of equal ones the first counts"
        ],
    )


def add_notes(
    result: ModelResult, notes: Sequence[str], warnings: Sequence[str] = ()
) -> ModelResult:
    """Return a measurement with further notes and warnings on its last layer.

    Args:
        result: Measurement.
        notes: Sentences on what was measured.
        warnings: Sentences on values that may mislead.
    """
    last = result.record.last
    record = result.record.with_last(
        notes=(*notes, *last.notes), warnings=(*warnings, *last.warnings)
    )
    return replace(result, record=record)


def _information(
    gatherer: LayerGatherer,
    last: LayerPlan,
    stats: Mapping[str, ClassStatistics],
    options: Options,
) -> tuple[dict[str, DatasetInformation], tuple[str, ...]]:
    """Compute the entropies of the head's input against the head, or say why they are left out."""
    if last.weight is None or "information" not in last.needs:
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
    batches = gatherer.batches_of(last.name)
    if options.second_pass == "recompute" and size <= DENSE_LIMIT:
        batches = list(batches)  # so few are read twice, which needs one order
    weight = last.weight.to(torch.float64)
    with gatherer.processes.fail_together():
        return {last.name: dataset_information(batches, counts, weight, mean)}, ()


def _geodesic_record(
    gatherer: LayerGatherer, stats: Mapping[str, ClassStatistics], second: SecondPassResult | None
) -> GeodesicRecord | None:
    if gatherer.pair is None or second is None:
        return None
    ends = stats[gatherer.comparable[0]], stats[gatherer.comparable[-1]]
    positions: list[float] = LINE.tolist()
    with gatherer.processes.fail_together():
        line = geodesic(*ends, gatherer.pair)
        return GeodesicRecord(
            t=positions,
            pfc1=[float(line.pfc1(t)) for t in positions],
            pfc2=[float(line.pfc2(t)) for t in positions],
            pfc3=second.line,
            alignment=float(line.alignment()),
            transport_cost=float(line.transport_cost()),
        )


_METRICS = {
    "nearest_hits": ("ncc_accuracy", "pfc3"),
    "head_hits": ("accuracy",),
    "disagreements": ("nc4_disagreement",),
}
"""Metrics that divide a count by the number of samples."""


def add_sampling_errors(
    record: LayerRecord, shares: Mapping[str, ShareEstimate], drawn: int
) -> LayerRecord:
    """Return a record with the standard errors of its shares, and a note on the sample.

    Args:
        record: Measurement of a layer.
        shares: Estimated shares, by the names of the counts.
        drawn: Number of samples that were drawn.
    """
    metrics = record.metrics
    by_key = {
        key: share for name, share in shares.items() for key in _METRICS[name] if key in metrics
    }
    if not by_key:
        return record
    known = {key: s.standard_error for key, s in by_key.items() if s.standard_error is not None}
    unknown = [key for key in by_key if key not in known]
    notes = [
        f"{', '.join(by_key)}: of a random sample of {drawn:,} of the {record.num_samples:,} "
        "samples; the standard errors are those of drawing it"
    ]
    if unknown:
        why = f"fewer than {FEWEST} samples are decided otherwise"
        notes.append(f"no standard error of {', '.join(unknown)}: {why}")
    return replace(
        record,
        standard_errors={**record.standard_errors, **known},
        bias_corrected={**record.bias_corrected, **{key: metrics[key] for key in known}},
        notes=(*record.notes, *notes),
    )


def estimate_by_batch(
    features: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weight: Shaped[Tensor, "k _d2"],
    batch_size: int,
) -> dict[str, float]:
    """Return mean and spread of MIR and HDR over batches of one fixed random order, as metrics.

    The computation runs on the CPU, because such small problems are slower on other devices.

    Args:
        features: One sample a row.
        labels: Class of each sample.
        weight: Weight of the head, one class a row.
        batch_size: Samples in a batch; an incomplete last batch is not used.
    """
    order = torch.Generator().manual_seed(0)
    parts = batch_entropies(features.cpu(), labels.cpu(), weight.cpu(), batch_size, order)
    estimate = batch_estimate(parts, batch_size)
    return {
        "mir_batch": estimate.mir,
        "mir_batch_spread": estimate.mir_spread,
        "hdr_batch": estimate.hdr,
        "hdr_batch_spread": estimate.hdr_spread,
    }


def add_batch_estimate(
    record: LayerRecord, batches: Batches, weight: Float[Tensor, "k d"], batch_size: int
) -> LayerRecord:
    """Add the batch estimate to the metrics of the last layer's record.

    Args:
        record: Record of the layer that feeds the head.
        batches: Features and labels of this layer, all held in memory at once.
        weight: Weight of the head.
        batch_size: Samples in a batch.
    """
    features, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    estimates = estimate_by_batch(features, labels, weight, batch_size)
    return replace(record, metrics={**record.metrics, **estimates})
