"""From features at hand to one layer's plain record."""

from collections.abc import Collection

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.memory import check_memory
from ncscope.metrics.evaluate import needs_of
from ncscope.metrics.information import dataset_information, takes_long
from ncscope.metrics.sources import Sources
from ncscope.probing.compute import layer_record
from ncscope.probing.records import LayerRecord
from ncscope.stats.batch import check_range
from ncscope.stats.decisions import Decider
from ncscope.stats.moments import ClassMoments, Prior
from ncscope.stats.statistics import ClassStatistics, finish


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
        labels: Their classes.
        num_classes: K.
        weight: Classifier weight in float64.
        bias: Its bias.
        prior: Weight of each class.
        groups: Groups of metrics; by default all that apply, but for entropies that take long.
        weight_decay: Decay on the classifier, for the MSE decomposition.
        reference: Statistics whose class means the nearest-mean rule uses; by default their own.

    Returns:
        The record, and the statistics behind it.

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
    moments.update(features, labels)
    stats = finish(moments)
    decisions = information = None
    if needs.decisions:
        means_of = reference or stats
        device = features.device
        classes, means = means_of.classes.to(device), means_of.means.to(device)
        decisions = Decider(classes, means, weight, bias)(features, labels)
    asked = groups is not None or weight is None or not takes_long(len(labels), weight)
    if needs.information and weight is not None and asked:
        batches = [(features, labels)]
        information = dataset_information(batches, moments.counts, weight, stats.global_mean)
    sources = Sources(stats, weight, bias, decisions, information, weight_decay)
    return layer_record(layer, sources, groups), stats
