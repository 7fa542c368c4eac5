"""Features as transfer scores read them: scaled into range, centred, on principal axes."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.symmetric import symmetric_eigen
from ncscope.transfer.graded import power_of_two
from ncscope.transfer.inputs import LabelledSamples


class Scaled(NamedTuple):
    """Features whose squares stay in the range of float64.

    Attributes:
        features: Centred features, times the factor.
        factor: Power of two, so that the product is exact.
    """

    features: Float[Tensor, "n d"]
    factor: float


class ClassMeans(NamedTuple):
    """Means and shares of the classes.

    Attributes:
        means: Mean of each class, by index of the class.
        shares: Share of the samples in each class.
    """

    means: Float[Tensor, "k d"]
    shares: Float[Tensor, " k"]


def centred(features: Float[Tensor, "n d"]) -> Scaled:
    """Subtract the mean of the features, after scaling by a power of two.

    Args:
        features: Features of any size that float64 holds.
    """
    factor = power_of_two(torch.linalg.vector_norm(features, ord=torch.inf))
    scaled = features * factor
    # The mean of a constant column is rounded, and rounding is no variance.
    constant = (scaled == scaled[:1]).all(0)
    return Scaled(torch.where(constant, 0.0, scaled - scaled.mean(0)), factor)


def unit_power(features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Centre features and divide them by the root of their mean squared norm.

    Args:
        features: Features of any scale. Constant features become 0.
    """
    rows = centred(features).features
    power = rows.square().sum(1).mean()
    return rows / power.sqrt() if power > 0 else rows


def principal_scores(
    rows: Float[Tensor, "n d"], *, limit: int | None = None, share: float = 1.0
) -> Float[Tensor, "n r"]:
    """Return the coordinates of centred features on their principal axes.

    Args:
        rows: Centred features.
        limit: Largest number of axes.
        share: Share of the variance that the axes must explain; the fewest axes that do so are
            kept. Axes without variance are never kept.

    Cost: for n > d, a product of nd² operations and an eigen-decomposition of d x d; otherwise a
    singular value decomposition, of the order of dn².
    """
    n, d = rows.shape
    if n > d:
        eigen = symmetric_eigen(rows.mT @ rows)
        kept = _kept(eigen.values, limit, share)
        return rows @ eigen.vectors[:, :kept]
    left, lengths, _ = torch.linalg.svd(rows, full_matrices=False)
    cut = torch.finfo(rows.dtype).eps * d * lengths[:1].sum()
    lengths = lengths[lengths > cut]
    kept = _kept(lengths.square(), limit, share)
    return left[:, :kept] * lengths[:kept]


def _kept(variances: Float[Tensor, " r"], limit: int | None, share: float) -> int:
    """Return the number of axes that explain a share of the variance, up to a limit."""
    kept = len(variances)
    if share < 1 and kept:
        explained = variances.cumsum(0) / variances.sum()
        kept = min(kept, int((explained < share).sum()) + 1)
    return kept if limit is None else min(kept, limit)


def class_means(rows: Float[Tensor, "n d"], samples: LabelledSamples) -> ClassMeans:
    """Compute the mean and the share of each class.

    Args:
        rows: Features, one row for each sample.
        samples: Samples that give the classes.
    """
    counts = torch.bincount(samples.class_indices).to(rows)
    sums = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, samples.class_indices, rows)
    return ClassMeans(sums / counts[:, None], counts / counts.sum())
