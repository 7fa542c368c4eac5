"""Features as transfer scores read them: scaled into range, centred, on principal axes."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.symmetric import symmetric_eigen
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.uneven_scales import unit_scale

AXES = 64
"""Largest number of principal axes that GBC and NCTI read."""


def centre(features: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], float]:
    """Subtract the mean of the features, after scaling by a power of two into range.

    Args:
        features: Features of any size that float64 holds.

    Returns:
        Centred features times the factor, whose squares stay in the range of float64; and the
        factor.
    """
    factor = unit_scale(torch.linalg.vector_norm(features, ord=torch.inf))
    scaled = features * factor
    # The mean of a constant column is rounded, and rounding is no variance.
    constant = (scaled == scaled[:1]).all(0)
    return torch.where(constant, 0.0, scaled - scaled.mean(0)), factor


def unit_power(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Centre features and divide them by the root of their mean squared norm.

    Args:
        features: Features of any scale. Constant features become 0.
    """
    rows, _ = centre(features)
    power = rows.square().sum(1).mean()
    return rows / power.sqrt() if power > 0 else rows


def principal_coordinates(
    rows: Float[Tensor, "n d"], *, limit: int | None = None, share: float = 1.0
) -> Float[Tensor, "n r"]:
    """Return the coordinates of centred features on their principal axes.

    Args:
        rows: Centred features.
        limit: Largest number of axes.
        share: Share of the variance that the axes must explain; the fewest axes that do so are
            taken. Axes without variance are never taken.

    Cost: for n > d, a product of nd² operations and an eigen-decomposition of d x d; otherwise a
    singular value decomposition, of the order of dn².
    """

    def count_axes(variances: Float[Tensor, " r"]) -> int:
        count = len(variances)
        if share < 1 and count:
            explained = variances.cumsum(0) / variances.sum()
            count = min(count, int((explained < share).sum()) + 1)
        return count if limit is None else min(count, limit)

    n, d = rows.shape
    if n > d:
        eigen = symmetric_eigen(rows.mT @ rows)
        return rows @ eigen.vectors[:, : count_axes(eigen.values)]
    left, lengths, _ = torch.linalg.svd(rows, full_matrices=False)
    # Centring leaves fewer than n directions. The others have lengths of rounding size, which
    # scores that divide by the variance of an axis would blow up to directions like any other.
    cut = torch.finfo(rows.dtype).eps * d * lengths[:1].sum()
    lengths = lengths[lengths > cut]
    count = count_axes(lengths.square())
    return left[:, :count] * lengths[:count]


def class_means(
    rows: Float[Tensor, "n d"], samples: DownstreamSamples
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Compute the mean of each class, and its share of the samples.

    Args:
        rows: Features, one row for each sample.
        samples: Samples that give the classes.
    """
    counts = torch.bincount(samples.class_indices).to(rows)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, samples.class_indices, rows)
    return sums / counts[:, None], counts / counts.sum()
