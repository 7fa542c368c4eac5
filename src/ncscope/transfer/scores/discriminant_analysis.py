"""Linear discriminant analysis with a shrunk covariance, as SFDA, NCTI and the H-score use it."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import class_means

_LEAST_SHARE = 1e-10  # of the identity, as in the authors' code of SFDA and NCTI


def within_covariance(
    rows: Float[Tensor, "n d"], samples: DownstreamSamples
) -> Float[Tensor, "d d"]:
    """Compute the covariance within the classes, divided by n; exactly 0 for collapsed classes.

    Args:
        rows: Centred features, times any factor.
        samples: Samples that give the classes.
    """
    means, _ = class_means(rows, samples)
    apart = rows - means[samples.class_indices]
    eps = torch.finfo(rows.dtype).eps
    # The mean of equal rows is rounded. Inverted, this rounding would be a covariance like any
    # other, and would decide the score of features that do not vary within their classes.
    if apart.abs().max() <= 8 * eps * rows.abs().max():
        return rows.new_zeros(rows.shape[1], rows.shape[1])
    return apart.mT @ apart / len(rows)


def identity_share(exponent: Tensor, factor: float) -> float:
    r"""Compute the share of the identity in a shrunk covariance, $\max(e^{-s},10^{-10})$.

    Args:
        exponent: Variance $s$ of the features, times the square of the factor.
        factor: Power of two by which the features were multiplied.
    """
    # Divided twice, because the square of the factor may leave the range of float64. The variance
    # in the units of the user may overflow too, and the share is then the least.
    return max(math.exp(-float(exponent) / factor / factor), _LEAST_SHARE)


def shrink_covariance(matrix: Float[Tensor, "d d"], share: float) -> Float[Tensor, "d d"]:
    """Replace a share of a covariance by a multiple of the identity with the same trace.

    Args:
        matrix: Covariance.
        share: Share of the identity.
    """
    d = len(matrix)
    identity = torch.eye(d, device="cpu").to(matrix)
    return (1 - share) * matrix + share * matrix.trace() / d * identity


def solve_for_means(
    matrix: Float[Tensor, "d d"], means: Float[Tensor, "k d"], share: float
) -> Float[Tensor, "k d"]:
    """Multiply each mean by the inverse of a shrunk covariance.

    Args:
        matrix: Shrunk covariance.
        means: Means, one a row.
        share: Share of the identity; below the least, the matrix may be singular to rounding and is
            inverted on its range.
    """
    if share >= _LEAST_SHARE:
        factor, failure = torch.linalg.cholesky_ex(matrix)
        # At a share of 1e-10 rounding may still make a pivot negative, with eigenvalues far apart.
        if not failure:
            return torch.cholesky_solve(means.mT, factor).mT
    values, vectors = torch.linalg.eigh(matrix)
    cut = torch.finfo(matrix.dtype).eps * len(matrix) * values[-1:].clamp(min=0).sum()
    inverse = torch.where(values > cut, 1 / values, 0.0)
    return (means @ vectors * inverse) @ vectors.mT


def gaussian_log_posterior(
    rows: Float[Tensor, "n d"],
    samples: DownstreamSamples,
    covariance: Float[Tensor, "d d"],
    share: float,
) -> Float[Tensor, "n k"]:
    """Compute log probabilities of the classes as Gaussians with one covariance.

    Args:
        rows: Centred features, times any factor.
        samples: Samples that give the classes.
        covariance: Shrunk covariance of the rows within the classes.
        share: Share of the identity in the covariance.
    """
    means, shares = class_means(rows, samples)
    directions = solve_for_means(covariance, means, share)
    offsets = shares.log() - (means * directions).sum(1) / 2
    # Logarithms throughout: far from all means every density would be 0 in float64.
    return (rows @ directions.mT + offsets).log_softmax(1)
