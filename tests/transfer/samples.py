"""Labelled samples that overlap."""

import torch
from torch import Tensor


def blobs(count: int, dim: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal clouds around random means, in float64; each class about as often."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    means = torch.randn(classes, dim, generator=draws, dtype=torch.float64)
    noise = torch.randn(count, dim, generator=draws, dtype=torch.float64)
    return means[labels] + noise, labels
