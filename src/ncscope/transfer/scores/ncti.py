"""NCTI: an index of how near checkpoints are to neural collapse on the downstream samples."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import AXES, centre, class_means, principal_coordinates
from ncscope.transfer.scores.discriminant_analysis import (
    gaussian_log_posterior,
    identity_share,
    shrink_covariance,
    within_covariance,
)

_LEADING_AXES = 32


class NctiParts(NamedTuple):
    """Parts of the index NCTI for one checkpoint.

    Attributes:
        spread: Nuclear norm of the features in the discriminant space; the larger, the better.
        nearest_centre: Mean probability of the right class; the larger, the better.
        variability: Logarithm of the summed nuclear norms of the classes' predictions; the smaller,
            the better.
    """

    spread: float
    nearest_centre: float
    variability: float


@check_arguments
def ncti_parts(samples: DownstreamSamples) -> NctiParts:
    r"""Compute the three parts of the neural collapse transferability index.

    On at most 64 principal axes, with $S=(1-\lambda)S_W+\lambda\frac{\operatorname{Tr}S_W}dI$ and
    $\lambda=\max(e^{-s},10^{-10})$, $s$ the summed variance of the first 32 axes: the *spread* is
    $\lVert ZV\rVert_*$ of the centred features $Z$ and the directions $V$ in which the class means
    differ (at most $K-1$), which maximise the variance between classes at $V^\top SV=I$; *nearest
    centre* is $\frac1n\sum_ip(y_i\mid z_i)$ of the discriminant analysis with $S$; *variability* is
    $\log\sum_c\lVert P_c\rVert_*$ with the predicted probabilities $P_c$ of the samples of class
    $c$, one a row. They stand for the geometry of the means, the nearest class centre and the
    collapse of variability. Source: Wang, Luo, Zheng, Huang, Baktashmotlagh 2023; constants as in
    the authors' code.

    The authors' code stops if there are fewer than 64 features or samples. For
    $\lambda>10^{-10}$ its library shrinks the total covariance too, so that a multiple of the
    identity is added to the variance between classes and directions of little variance are
    preferred; here $V$ maximises the variance between classes alone. The parts are invariant under
    rotation and shift, not under scale, as $\lambda$ is not. NaN if no feature varies within a
    class. Known failures: `ncti`.

    Args:
        samples: Downstream samples.

    Cost: as `principal_coordinates`, nd² operations for n > d, and a decomposition of n x (K - 1).
    """
    rows, factor = centre(samples.features)
    rows = principal_coordinates(rows, limit=AXES)
    n, axes = rows.shape
    variances = rows.square().sum(0) / max(n - 1, 1)
    within = within_covariance(rows, samples) if axes else rows.new_zeros(0, 0)
    if float(within.trace()) == 0:
        return NctiParts(math.nan, math.nan, math.nan)
    share = identity_share(variances[:_LEADING_AXES].sum(), factor)
    covariance = shrink_covariance(within, share)
    posterior = gaussian_log_posterior(rows, samples, covariance, share).exp()
    right = posterior.gather(1, samples.class_indices[:, None]).mean()
    by_class = [posterior[samples.class_indices == c] for c in range(len(samples.classes))]
    variability = torch.stack([torch.linalg.matrix_norm(part, ord="nuc") for part in by_class])
    directions = _discriminant_directions(rows, samples, covariance)
    spread = torch.linalg.matrix_norm(rows @ directions, ord="nuc")
    return NctiParts(float(spread), float(right), math.log(float(variability.sum())))


def _discriminant_directions(
    rows: Float[Tensor, "n d"],
    samples: DownstreamSamples,
    covariance: Float[Tensor, "d d"],
) -> Float[Tensor, "d r"]:
    """Return directions in which the class means differ, of unit variance within the classes."""
    means, shares = class_means(rows, samples)
    values, vectors = torch.linalg.eigh(covariance)
    whitening = vectors / values.sqrt()
    between = shares.sqrt()[:, None] * (means @ whitening)
    _, lengths, right = torch.linalg.svd(between, full_matrices=False)
    # Whitening divides by the root of the least variance, and the largest feature is below 2. Any
    # shorter direction comes from the rounding of the features, and depends on the samples' order.
    rounding = 64 * torch.finfo(rows.dtype).eps * (len(values) / values[0]).sqrt()
    count = min(len(means) - 1, int((lengths > rounding).sum()))
    return whitening @ right[:count].mT


@check_arguments
def ncti(parts: Sequence[NctiParts]) -> list[float]:
    """Combine the parts of several checkpoints into one index for each.

    Each part is scaled to 0..1 over the checkpoints; the index is spread plus nearest centre minus
    variability, from -1 to 2. A part that is the same for all checkpoints counts 0. Source: Wang et
    al. 2023. Known failures: the index of a checkpoint changes with the others that are ranked, so
    that it cannot be compared between runs, and one outlier flattens a part for all others; with
    two checkpoints each part is 0 or 1. Variability is as small for predictions that never change
    as for collapsed classes, so that the worst of several noisy checkpoints can pass a better one.
    For n < d nearest centre is 1 for every checkpoint.

    Args:
        parts: Parts of each checkpoint on the same samples.

    Returns:
        Index of each checkpoint; NaN for all if there are fewer than two, or a part is not finite.

    Example:
        >>> ncti([NctiParts(2.0, 0.5, 1.0), NctiParts(4.0, 0.9, 0.0), NctiParts(3.0, 0.5, 2.0)])
        [-0.5, 2.0, -0.5]
    """
    table = torch.tensor(parts, dtype=torch.float64, device="cpu").view(len(parts), 3)
    if len(parts) < 2 or not bool(table.isfinite().all()):
        return [math.nan] * len(parts)
    lowest = table.amin(0)
    width = table.amax(0) - lowest
    scaled = torch.where(width > 0, (table - lowest) / width, 0.0)
    return (scaled @ torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64, device="cpu")).tolist()
