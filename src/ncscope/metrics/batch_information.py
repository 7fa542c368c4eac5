"""Batch estimate of MIR and HDR, which INFO's figures show."""

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
    """Compute the entropies of each complete batch of a random order, as for INFO's figures.

    The values depend on the batch size and differ from those of the data set; see
    `dataset_entropies`.

    Args:
        features: One sample a row.
        labels: Class of each sample; or index of the sample, if ``weight`` has one row per sample.
        weight: $W$, a row for every class; or a vector for every sample.
        batch_size: Samples in a batch; an incomplete last batch is not used.
        generator: Generator of the random order.
    """
    order = torch.randperm(len(labels), generator=generator, device="cpu").to(features.device)
    whole = len(order) // batch_size * batch_size
    parts = order[:whole].split(batch_size) if whole else ()
    return [pair_entropies(features[part], weight[labels[part]]) for part in parts]


@dataclass(frozen=True)
class BatchInformation:
    """MIR and HDR estimated batch by batch, as INFO's figures show them.

    Attributes:
        mir: Mean of the batches' MIR.
        mir_spread: Standard deviation of the batches' MIR.
        hdr: Mean of the batches' HDR.
        hdr_spread: Standard deviation of the batches' HDR.
        batch_size: Samples in a batch.
        batches: Number of complete batches.
    """

    mir: float
    mir_spread: float
    hdr: float
    hdr_spread: float
    batch_size: int
    batches: int


def batch_estimate(batches: Sequence[Entropies], batch_size: int) -> BatchInformation:
    """Return mean and spread over batches; NaN for the mean of no batch and the spread of one.

    Args:
        batches: Entropies that `batch_entropies` returned.
        batch_size: Batch size of these entropies.
    """
    mir, hdr = (
        torch.tensor(
            [getattr(entropies, name) for entropies in batches], dtype=torch.float64, device="cpu"
        )
        for name in ("mir", "hdr")
    )
    spread = [float(ratio.std()) if len(batches) > 1 else math.nan for ratio in (mir, hdr)]
    means = float(mir.mean()), float(hdr.mean())
    return BatchInformation(means[0], spread[0], means[1], spread[1], batch_size, len(batches))
