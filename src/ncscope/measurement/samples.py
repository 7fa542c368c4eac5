"""Measurement of features that are given as one tensor, and the record of any one layer.

`layer_record` evaluates the metrics from statistics, however these were gathered: a model's layers
end there too.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.math.powers import COPY_LIMIT
from ncscope.measurement.class_table import (
    has_class_table,
    make_class_table,
    note_absent_table,
)
from ncscope.measurement.ood import check_groups, check_unit, compare_features
from ncscope.measurement.plans import LayerPlan
from ncscope.measurement.records import LayerRecord
from ncscope.measurement.resampling import LayerSamples, add_chance_and_errors, in_unit
from ncscope.memory import check_memory
from ncscope.metrics.class_means import cosines
from ncscope.metrics.evaluate import (
    evaluate,
    find_needs,
    refuse_class_metrics,
    spectra,
    wants_spectra,
)
from ncscope.metrics.information import takes_long
from ncscope.metrics.reliability import (
    note_another_loss,
    warn_of_missing_classes,
    warnings_on,
)
from ncscope.metrics.sources import Sources
from ncscope.stats.classes import BatchClasses
from ncscope.stats.moments import ClassMoments
from ncscope.stats.options import ALL_STATISTICS, Precision, Prior, Redraw
from ncscope.stats.statistics import ClassStatistics, finish

_READ_AND_COMPARED = 64  # operations on a score beside its product: it is read, and compared
_MOST = 2**41
"""Largest n x K x (d + 64) for which decisions are counted unasked: about two minutes of a core.

With few classes for the dimension they are counted in any case: the scatter takes as long.
"""

_UNDECIDED = (
    "ncc_accuracy, nc4_disagreement and accuracy are left out: to compare every sample with every "
    "class mean takes minutes at this size; ask for the group 'nc4'"
)
"""Note where decisions are left out."""


def measure_samples(
    layer: str,
    features: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    num_classes: int,
    weight: Float[Tensor, "k d"] | None = None,
    bias: Float[Tensor, " k"] | None = None,
    one_logit: bool = False,
    *,
    prior: Prior = "empirical",
    groups: Collection[str] | None = None,
    weight_decay: float = 0.0,
    reference: ClassStatistics | None = None,
    baseline: bool | None = False,
    uncertainty: Redraw = False,
    precision: Precision = "float64",
    ood: Shaped[Tensor, "m d"] | None = None,
    by_class: bool = False,
) -> tuple[LayerRecord, ClassStatistics]:
    """Measure the collapse of features, and of the classifier on top of them.

    Args:
        layer: Name of the record.
        features: One sample a row.
        labels: Class of each sample.
        num_classes: K.
        weight: Classifier weight in float64.
        bias: Classifier bias in float64.
        one_logit: True if the classifier has one output for two classes; see `Sources`.
        prior: Weight of each class.
        groups: Groups of metrics; by default all that apply, except entropies that take long.
        weight_decay: Weight decay on the classifier, for the MSE decomposition.
        reference: Statistics whose class means the nearest-mean rule uses; by default, the
            statistics of these features.
        baseline: True to compute the chance level; None to compute it for small samples.
        uncertainty: Estimate standard errors if not False.
        precision: Precision of the moments.
        ood: Features of samples from outside the distribution; None for none.
        by_class: Make the table of classes as `layer_record` does.

    Returns:
        The record, and the statistics from which it was computed. Features of extreme magnitude
        are copied and scaled by a power of two first.

    Raises:
        InputError: If a label is out of range, or the covariance does not fit into memory; if
            there are OOD samples that no metric uses, or that are bad.
    """
    needs = find_needs(groups, weight is not None)
    check_groups(needs, groups, given=ood is not None)
    classes = BatchClasses.from_labels(labels, num_classes, of_classifier=weight is not None)
    dim = features.shape[1]
    if "scatter" in needs and features.device.type == "cpu":
        fix = "ask for groups that need none: pfc"
        check_memory(8 * dim**2, f"the covariance of {dim:,} features", fix)
    moments = ClassMoments(
        num_classes,
        dim,
        statistics=ALL_STATISTICS.intersection(needs),
        prior=prior,
        class_counts=torch.bincount(labels, minlength=num_classes) if prior == "uniform" else None,
        precision=precision,
        device=features.device,
    )
    exponent = moments.take_checked(features, classes, COPY_LIMIT)
    if exponent:
        # Nothing was added: the sums of squares would leave float64, so they are taken in a unit.
        features = in_unit(features, exponent)
        moments.take_checked(features, classes, COPY_LIMIT)
    stats = replace(finish(moments), exponent=exponent)
    if ("decisions" in needs or ood is not None) and reference is not None:
        check_unit(reference.exponent - exponent, "a reference of features")
    asked = groups is not None or weight is None or not takes_long(len(labels), weight)
    scored = len(labels) * stats.k * (dim + _READ_AND_COMPARED)
    decided = groups is not None or scored <= _MOST or stats.k <= 4 * dim
    samples = LayerSamples(
        plan=LayerPlan(layer, layer, groups, weight, bias, one_logit),
        batches=[(features, labels)],
        counts=moments.counts,
        dim=dim,
        prior=prior,
        weight_decay=weight_decay,
        means_of=reference,
        exponent=exponent,
        precision=precision,
        information="information" in needs and weight is not None and asked,
        decided=decided,
    )
    tally = samples.count_decisions(samples.batches, reference or stats)
    decisions = None if tally is None else samples.read_counts(tally)
    information = samples.measure_entropies(samples.batches, stats)
    compared = None if ood is None else compare_features(samples, features, ood, stats)
    sources = replace(samples.make_sources(stats, information, decisions), ood=compared)
    record = layer_record(layer, sources, groups, by_class=by_class)
    if not decided:
        record = replace(record, notes=(*record.notes, _UNDECIDED))
    if decided and "decisions" in needs and reference is not None:
        missing = warn_of_missing_classes(stats, reference)
        record = replace(record, warnings=(*missing, *record.warnings))
    trusted = add_chance_and_errors(
        record, samples, stats, baseline=baseline, uncertainty=uncertainty, ood=compared
    )
    return trusted, stats


_LARGEST_PICTURE = 256


def layer_record(
    layer: str,
    sources: Sources,
    groups: Collection[str] | None = None,
    *,
    by_class: bool = False,
) -> LayerRecord:
    """Evaluate the metrics of one layer.

    Args:
        layer: Name of the layer.
        sources: Statistics of the layer, and the classifier that reads it, if any.
        groups: Groups of metrics; by default all whose statistics are there.
        by_class: Make the table of classes also where no groups ask for it, if True and the classes
            are not too many.
    """
    # A copy, because what the metrics keep for each other must not outlive them in a report.
    stats = replace(sources.stats)
    sources = replace(sources, stats=stats)
    values, notes = evaluate(sources, groups)
    pictures = wants_spectra(groups) and stats.scatter is not None
    drawn = {n: v.tolist() for n, v in spectra(sources).items()} if pictures else {}
    if any(math.isnan(value) for line in drawn.values() for value in line):
        notes.append("spectra: eigenvalues beyond the range of float64 are NaN")
    notes += note_another_loss(sources, values)
    notes += note_absent_table(sources, groups, by_class)
    small = stats.k <= _LARGEST_PICTURE
    return LayerRecord(
        layer=layer,
        metrics=values,
        notes=tuple(notes),
        num_classes=stats.num_classes,
        num_samples=stats.num_samples,
        dim=stats.dim,
        spectra=drawn,
        gram=_without_nan(cosines(stats.frame))
        if pictures and small and stats.has_labels
        else None,
        warnings=warnings_on(sources, values),
        per_class=make_class_table(sources) if has_class_table(sources, groups, by_class) else None,
        num_present=stats.k if stats.has_labels and stats.k < stats.num_classes else 0,
    )


def _without_nan(matrix: torch.Tensor) -> list[list[float]] | None:
    """Return a matrix as lists; None if a zero vector left NaN in it."""
    rows: list[list[float]] = matrix.tolist()
    return rows if all(math.isfinite(value) for row in rows for value in row) else None


GROUPS = ("spectra",)
"""Groups of metrics that need no labels."""


def measure_unlabelled(
    layer: str,
    features: Shaped[Tensor, "n d"],
    *,
    groups: Collection[str] | None = None,
    uncertainty: Redraw = False,
    precision: Precision = "float64",
) -> tuple[LayerRecord, ClassStatistics]:
    """Measure the spectra of features.

    Args:
        layer: Name of the record.
        features: One sample a row, at least one.
        groups: Groups of metrics; by default all that need no labels.
        uncertainty: Estimate standard errors if not False.
        precision: Precision of the moments.

    Returns:
        The record, and the statistics from which it was computed.

    Raises:
        InputError: If a group needs labels, or the covariance does not fit into memory.
    """
    refuse_class_metrics(GROUPS if groups is None else groups)
    n, dim = features.shape
    if features.device.type == "cpu":
        fix = "measure fewer features, for example pooled ones"
        check_memory(8 * dim**2, f"the covariance of {dim:,} features", fix)
    labels = torch.zeros(n, dtype=torch.int64, device=features.device)
    samples = LayerSamples(
        plan=LayerPlan(layer, layer, GROUPS if groups is None else groups),
        batches=[(features, labels)],
        counts=torch.tensor([n], device=features.device),
        dim=dim,
        precision=precision,
        has_labels=False,
    )
    classes, moments = BatchClasses.from_labels(labels, 1), samples.start_moments(samples.counts)
    exponent = moments.take_checked(features, classes, COPY_LIMIT)
    if exponent:
        features = in_unit(features, exponent)
        moments.take_checked(features, classes, COPY_LIMIT)
        samples = replace(samples, batches=[(features, labels)], exponent=exponent)
    stats = samples.finish(moments)
    record = spectra_record(layer, stats, groups)
    return add_chance_and_errors(record, samples, stats, uncertainty=uncertainty), stats


def spectra_record(
    layer: str, stats: ClassStatistics, groups: Collection[str] | None = None
) -> LayerRecord:
    """Evaluate the metrics of samples without labels.

    Args:
        layer: Name of the record.
        stats: Statistics of unlabelled samples.
        groups: Groups of metrics; by default all that need no labels.

    Raises:
        InputError: If a group needs labels.
    """
    refuse_class_metrics(GROUPS if groups is None else groups)
    return layer_record(layer, Sources(stats), groups)
