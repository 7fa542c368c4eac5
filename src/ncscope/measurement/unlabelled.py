"""Measurement of features without labels: the spectra alone."""

from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Shaped
from torch import Tensor

from ncscope.math.powers import COPY_LIMIT
from ncscope.measurement.plans import LayerPlan
from ncscope.measurement.records import LayerRecord
from ncscope.measurement.resampling import LayerSamples, in_unit, with_trust
from ncscope.measurement.samples import layer_record
from ncscope.memory import check_memory
from ncscope.metrics.evaluate import check_unlabelled
from ncscope.metrics.sources import Sources
from ncscope.stats.classes import BatchClasses
from ncscope.stats.options import Precision, Redraw
from ncscope.stats.statistics import ClassStatistics

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
    check_unlabelled(GROUPS if groups is None else groups)
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
        labelled=False,
    )
    classes, moments = BatchClasses.from_labels(labels, 1), samples.moments(samples.counts)
    exponent = moments.take_checked(features, classes, COPY_LIMIT)
    if exponent:
        features = in_unit(features, exponent)
        moments.take_checked(features, classes, COPY_LIMIT)
        samples = replace(samples, batches=[(features, labels)], exponent=exponent)
    stats = samples.finished(moments)
    record = unlabelled_record(layer, stats, groups)
    return with_trust(record, samples, stats, uncertainty=uncertainty), stats


def unlabelled_record(
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
    check_unlabelled(GROUPS if groups is None else groups)
    return layer_record(layer, Sources(stats), groups)
