"""The batch estimate of MIR and HDR beside the exact values, from one pass."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.measurement.records import LayerRecord
from ncscope.metrics.batch_information import batch_entropies, batch_estimate
from ncscope.stats.directions import Batches


def estimated_by_batch(
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


def with_batch_estimate(
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
    estimates = estimated_by_batch(features, labels, weight, batch_size)
    return replace(record, metrics={**record.metrics, **estimates})
