"""Measurement of features that are given as one tensor."""

import math
from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.powers import UNSCALED, times_power
from ncscope.memory import check_memory
from ncscope.metrics.class_means import cosines
from ncscope.metrics.evaluate import evaluate, needs_of, spectra, wants_spectra
from ncscope.metrics.information import dataset_information, takes_long
from ncscope.metrics.sources import Sources
from ncscope.probing.records import LayerRecord
from ncscope.stats.batch import check_range
from ncscope.stats.decisions import Decider
from ncscope.stats.moments import ClassMoments, Prior
from ncscope.stats.statistics import ClassStatistics, finish

_FARTHEST = 1000


def measure_samples(
    layer: str,
    features: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    num_classes: int,
    weight: Float[Tensor, "k d"] | None = None,
    bias: Float[Tensor, " k"] | None = None,
    *,
    prior: Prior = "empirical",
    groups: Collection[str] | None = None,
    weight_decay: float = 0.0,
    reference: ClassStatistics | None = None,
) -> tuple[LayerRecord, ClassStatistics]:
    """Measure the collapse of features, and of the classifier on top of them.

    Args:
        layer: Name of the record.
        features: One sample a row.
        labels: Class of each sample.
        num_classes: K.
        weight: Classifier weight in float64.
        bias: Classifier bias in float64.
        prior: Weight of each class.
        groups: Groups of metrics; by default all that apply, except entropies that take long.
        weight_decay: Weight decay on the classifier, for the MSE decomposition.
        reference: Statistics whose class means the nearest-mean rule uses; by default, the
            statistics of these features.

    Returns:
        The record, and the statistics from which it was computed. Features of extreme magnitude
        are copied and scaled by a power of two first.

    Raises:
        InputError: If a label is out of range, or the covariance does not fit into memory.
    """
    needs = needs_of(groups, weight is not None)
    counts = None
    check_range(labels, num_classes, of_classifier=weight is not None)
    if prior == "uniform":
        counts = torch.bincount(labels, minlength=num_classes)
    dim = features.shape[1]
    if "scatter" in needs.statistics and features.device.type == "cpu":
        fix = "ask for groups that need none: pfc"
        check_memory(8 * dim**2, f"the covariance of {dim:,} features", fix)
    moments = ClassMoments(
        num_classes,
        dim,
        statistics=needs.statistics,
        prior=prior,
        class_counts=counts,
        device=features.device,
    )
    exponent = moments.take_checked(features, labels, UNSCALED)
    if exponent:
        features = _in_unit(features, exponent)
        moments.take_checked(features, labels, UNSCALED)
    stats = replace(finish(moments), exponent=exponent)
    decisions = information = None
    if needs.decisions:
        means_of = reference or stats
        _check_unit(means_of.exponent - exponent)
        unit, device = max(exponent, means_of.exponent), features.device
        classes, means = means_of.classes.to(device), means_of.means.to(device)
        means = times_power(means, means_of.exponent - unit)
        decide = Decider(classes, means, weight, bias, exponent=unit)
        decisions = decide(_in_unit(features, unit - exponent), labels)
    asked = groups is not None or weight is None or not takes_long(len(labels), weight)
    if needs.information and weight is not None and asked:
        batches = [(features, labels)]
        information = dataset_information(batches, moments.counts, weight, stats.global_mean)
    sources = Sources(stats, weight, bias, decisions, information, weight_decay)
    return layer_record(layer, sources, groups), stats


def _check_unit(change: int) -> None:
    """Refuse a reference of a magnitude that float64 cannot compare with the features'.

    Args:
        change: Exponent of 2 of the ratio of magnitudes, reference over features.

    Raises:
        InputError: If one of the two would underflow to zero in the unit of the other.
    """
    if abs(change) > _FARTHEST:
        raise InputError(
            expected="a reference of features of about the same magnitude",
            found=f"one of 2^{change} times the features'",
            fix="measure the same layer of the same model on the training set",
        )


def _in_unit(features: Shaped[Tensor, "n d"], exponent: int) -> Shaped[Tensor, "n d"]:
    """Divide features by a power of two."""
    return times_power(features.to(torch.float64), -exponent) if exponent else features


_LARGEST_PICTURE = 256


def layer_record(
    layer: str, sources: Sources, groups: Collection[str] | None = None
) -> LayerRecord:
    """Evaluate the metrics of one layer.

    Args:
        layer: Name of the layer.
        sources: Statistics of the layer, and the classifier that reads it, if any.
        groups: Groups of metrics; by default all whose statistics are there.
    """
    stats = sources.stats
    values, notes = evaluate(sources, groups)
    pictures = wants_spectra(groups) and stats.within is not None
    drawn = {n: v.tolist() for n, v in spectra(sources).items()} if pictures else {}
    if any(math.isnan(value) for line in drawn.values() for value in line):
        notes.append("spectra: eigenvalues beyond the range of float64 are NaN")
    small = stats.k <= _LARGEST_PICTURE
    return LayerRecord(
        layer=layer,
        metrics=values,
        notes=tuple(notes),
        num_classes=stats.num_classes,
        num_samples=stats.num_samples,
        dim=stats.dim,
        spectra=drawn,
        gram=_without_nan(cosines(stats.frame)) if pictures and small else None,
    )


def _without_nan(matrix: torch.Tensor) -> list[list[float]] | None:
    """Return a matrix as lists; None if a zero vector left NaN in it."""
    rows: list[list[float]] = matrix.tolist()
    return rows if all(math.isfinite(value) for row in rows for value in row) else None
