"""MIR and HDR batch by batch, the estimate that INFO's figures show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.metrics.information import Entropies, pair_entropies


def batch_entropies(
    features: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    weight: Shaped[Tensor, "k _d2"],
    batch_size: int,
    generator: torch.Generator,
) -> list[Entropies]:
    """Entropies of each whole batch of a random order: the estimate INFO's figures show.

    The value depends on the batch size, and is not the data set's: see `dataset_entropies`.

    Args:
        features: One sample a row.
        labels: Class of each; or its number, to pair it with a vector of its own.
        weight: $W$, a row for every class; or a vector for every sample.
        batch_size: Samples a batch; what is left over is not used.
        generator: Generator of the order.
    """
    order = torch.randperm(len(labels), generator=generator).to(features.device)
    whole = len(order) // batch_size * batch_size
    parts = order[:whole].split(batch_size) if whole else ()
    return [pair_entropies(features[part], weight[labels[part]]) for part in parts]


@dataclass(frozen=True)
class BatchInformation:
    """MIR and HDR estimated batch by batch, as INFO's figures show them.

    Attributes:
        mir: Mean over batches of the batch's MIR.
        mir_spread: Standard deviation over batches.
        hdr: Mean over batches of the batch's HDR.
        hdr_spread: Standard deviation over batches.
        batch_size: Samples a batch.
        batches: Number of whole batches.
    """

    mir: float
    mir_spread: float
    hdr: float
    hdr_spread: float
    batch_size: int
    batches: int


def batch_estimate(found: Sequence[Entropies], batch_size: int) -> BatchInformation:
    """Mean and spread over batches; means of none and spreads of one are NaN.

    Args:
        found: Entropies that `batch_entropies` returned.
        batch_size: For which size.
    """
    mir, hdr = (
        torch.tensor([getattr(entropies, name) for entropies in found], dtype=torch.float64)
        for name in ("mir", "hdr")
    )
    spread = [float(ratio.std()) if len(found) > 1 else math.nan for ratio in (mir, hdr)]
    means = float(mir.mean()), float(hdr.mean())
    return BatchInformation(means[0], spread[0], means[1], spread[1], batch_size, len(found))
