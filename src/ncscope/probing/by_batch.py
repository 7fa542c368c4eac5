"""The batch estimate of MIR and HDR beside the exact values, from one pass."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.metrics.batch_information import batch_entropies, batch_estimate
from ncscope.probing.records import LayerRecord
from ncscope.stats.directions import Batches


def estimated_by_batch(
    features: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weight: Shaped[Tensor, "k _d2"],
    batch_size: int,
) -> dict[str, float]:
    """Mean and spread over batches of one fixed random order, as metrics.

    On the CPU: problems this small are slower on any other device.

    Args:
        features: One sample a row.
        labels: Class of each.
        weight: One head a row.
        batch_size: Samples a batch; what is left over is not used.
    """
    order = torch.Generator().manual_seed(0)
    parts = batch_entropies(features.cpu(), labels.cpu(), weight.cpu(), batch_size, order)
    found = batch_estimate(parts, batch_size)
    return {
        "mir_batch": found.mir,
        "mir_batch_spread": found.mir_spread,
        "hdr_batch": found.hdr,
        "hdr_batch_spread": found.hdr_spread,
    }


def with_batch_estimate(
    record: LayerRecord, batches: Batches, weight: Float[Tensor, "k d"], batch_size: int
) -> LayerRecord:
    """Add the batch estimate to the metrics of the last layer's record.

    Args:
        record: Record of the layer that feeds the head.
        batches: Its features and labels, all held in memory at once.
        weight: The head's.
        batch_size: Samples a batch.
    """
    features, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    found = estimated_by_batch(features, labels, weight, batch_size)
    return replace(record, metrics={**record.metrics, **found})
