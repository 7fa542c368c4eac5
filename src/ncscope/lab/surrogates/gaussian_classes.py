"""Gaussian data for the models whose features are tied to data."""

import torch
from jaxtyping import Float
from torch import Tensor


def gaussian_classes(
    num_classes: int, per_class: int, dim: int, generator: torch.Generator
) -> Float[Tensor, "d n"]:
    r"""Draw standard normal data around means $\mu_k$ uniform on the unit sphere (PFC IV-B).

    Args:
        num_classes: K.
        per_class: n.
        dim: d.
        generator: Generator of the means and of the noise.

    Returns:
        Matrix with one sample per column, ordered by class.
    """
    means = torch.randn(num_classes, dim, dtype=torch.float64, generator=generator)
    means = means / torch.linalg.vector_norm(means, dim=1, keepdim=True)
    noise = torch.randn(dim, num_classes * per_class, dtype=torch.float64, generator=generator)
    return means.repeat_interleave(per_class, 0).mT + noise
