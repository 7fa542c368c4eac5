"""Scores from linear discriminant analysis: SFDA, NCTI and the regularised H-score."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.transfer.inputs import LabelledSamples
from ncscope.transfer.reduction import centred, class_means, principal_scores
from ncscope.transfer.separability import AXES

_DECAY = 5.0
_LEAST_SHRINKAGE = 1e-10
_LEADING_AXES = 32
_SMALLEST = 1e-300


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
def sfda(samples: LabelledSamples) -> Float[Tensor, ""]:
    r"""Compute the mean log probability of the labels in a self-challenging Fisher space.

    $\frac1n\sum_i\log p'(y_i\mid h_i')$ of a linear discriminant analysis of the features
    $h_i'=p_ih_i+(1-p_i)\bar\mu_i$: each sample is moved towards the mean $\bar\mu_i$ of the
    *other* classes' means, the more, the smaller the probability $p_i=p(y_i\mid h_i)$ that a first
    analysis gives to its label. Both analyses use $(1-\lambda)S_W+\lambda I$ of their features,
    with $\lambda=\max(e^{-5\sigma},10^{-10})$ and $\sigma$ the largest eigenvalue of the first
    $S_W$. Source: Shao, Zhao, Ge, Zhang, Yang, Wang, Shan, Luo 2022, equations (1) to (7). Range
    $(-\infty,0]$. Invariant under rotation and shift.

    The constants are those of the authors' code: 5, the least $\lambda$, and $S_W$ divided by n.
    For the rest the code differs from the equations, which are followed here. It takes the softmax
    of the probabilities a second time for $p_i$, adds $\lambda\frac{\operatorname{Tr}S_W}dI$,
    leaves out the logarithm ("in case of instability"; here the logarithm of the softmax is
    computed directly), takes $\sigma$ from six steps of the power method, and overwrites the
    features that it is given. Known failures: **saturates for n < d**, where a discriminant
    analysis separates any labels: the mean probability is 1.0 and the score 0 for every
    checkpoint, and only its rounding is left to rank by. Depends on the scale of the features
    through $\lambda$: features ten times as large are regularised $e^{-500\sigma}$ instead of
    $e^{-5\sigma}$, and small ones are compared by distances alone.

    Args:
        samples: Downstream samples.

    Cost: two factorisations of a d x d matrix, and two products of 2nd² operations.
    """
    rows, factor = centred(samples.features)
    within = _within(rows, samples)
    shrinkage = _shrinkage(_DECAY * _largest_eigenvalue(within), factor)
    first = _regularised_log_posterior(rows, samples, shrinkage, factor).exp()
    sure = first.gather(1, samples.class_indices[:, None])
    means = class_means(rows, samples).means
    others = (means.sum(0) - means) / (len(means) - 1)
    mixed = sure * rows + (1 - sure) * others[samples.class_indices]
    second = _regularised_log_posterior(mixed, samples, shrinkage, factor)
    return second.gather(1, samples.class_indices[:, None]).mean()


@check_arguments
def ncti_parts(samples: LabelledSamples) -> NctiParts:
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

    Cost: as `principal_scores`, nd² operations for n > d, and a decomposition of n x (K - 1).
    """
    rows, factor = centred(samples.features)
    rows = principal_scores(rows, limit=AXES)
    n, axes = rows.shape
    variances = rows.square().sum(0) / max(n - 1, 1)
    within = _within(rows, samples) if axes else rows.new_zeros(0, 0)
    if float(within.trace()) == 0:
        return NctiParts(math.nan, math.nan, math.nan)
    shrinkage = _shrinkage(variances[:_LEADING_AXES].sum(), factor)
    posterior = _log_posterior(rows, samples, within, shrinkage).exp()
    right = posterior.gather(1, samples.class_indices[:, None]).mean()
    by_class = [posterior[samples.class_indices == c] for c in range(len(samples.classes))]
    variability = torch.stack([torch.linalg.matrix_norm(part, ord="nuc") for part in by_class])
    spread = torch.linalg.matrix_norm(
        rows @ _discriminant_directions(rows, samples, within, shrinkage), ord="nuc"
    )
    return NctiParts(float(spread), float(right), math.log(float(variability.sum())))


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
    table = torch.tensor(parts, dtype=torch.float64).view(len(parts), 3)
    if len(parts) < 2 or not bool(table.isfinite().all()):
        return [math.nan] * len(parts)
    lowest = table.amin(0)
    width = table.amax(0) - lowest
    scaled = torch.where(width > 0, (table - lowest) / width, 0.0)
    return (scaled @ torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)).tolist()


@check_arguments
def regularised_h_score(samples: LabelledSamples) -> Float[Tensor, ""]:
    r"""Compute the H-score with a shrunk covariance of the features.

    $\operatorname{Tr}[\Sigma_\alpha^{-1}(1-\alpha)\Sigma_B]$ with
    $\Sigma_\alpha=(1-\alpha)\Sigma_T+\alpha\frac{\operatorname{Tr}\Sigma_T}dI$ and the share
    $\alpha$ of Ledoit and Wolf 2004. Source: Ibrahim, Ponomareva, Mazumder 2021, equation (6).
    Range $[0,\min(d,K-1)]$, never above the H-score. Invariant under rotation, shift and scale.

    The popular library divides $\Sigma_B$ by $n-1$ and $\Sigma_\alpha$ by $n$; here both are
    divided by $n$, a factor of $(n-1)/n$ below. Known failures: $\alpha$ is the best for the
    covariance as a whole, not for its inverse, and shrinks small directions that separate the
    classes; 0 if one sample outweighs all others and $\alpha=1$.

    Args:
        samples: Downstream samples.

    Cost: one product of nd² operations and one factorisation of a d x d matrix.
    """
    rows = centred(samples.features).features
    total = rows.mT @ rows / len(rows)
    share = ledoit_wolf_share(rows, total)
    means, shares = class_means(rows, samples)
    shrunk = _shrunk(total, share)
    return (1 - share) * (shares[:, None] * means * _solved(shrunk, means, share)).sum()


def ledoit_wolf_share(rows: Float[Tensor, "n d"], total: Float[Tensor, "d d"]) -> float:
    r"""Compute the share $\alpha$ of the identity in the covariance of Ledoit and Wolf 2004.

    $\alpha=\min(1,b^2/\delta^2)$ with $\delta^2=\lVert S-\mu I\rVert_F^2$,
    $\mu=\frac1d\operatorname{Tr}S$ and $b^2=\frac1{n^2}\sum_i\lVert x_ix_i^\top-S\rVert_F^2$. 0 if
    the covariance is a multiple of the identity.

    Args:
        rows: Centred features $x_i$.
        total: Covariance $S$, divided by n.
    """
    n, d = rows.shape
    size = total.square().sum()
    apart = size - total.trace().square() / d
    noise = (rows.square().sum(1).square().sum() / n - size) / n
    # Both are differences of squares, which rounding can make negative.
    rounding = torch.finfo(total.dtype).eps * d * size
    return 0.0 if apart <= rounding else float((noise / apart).clamp(0, 1))


def _within(rows: Float[Tensor, "n d"], samples: LabelledSamples) -> Float[Tensor, "d d"]:
    apart = rows - class_means(rows, samples).means[samples.class_indices]
    eps = torch.finfo(rows.dtype).eps
    if apart.abs().max() <= 8 * eps * rows.abs().max():  # classes of equal rows, rounded
        return rows.new_zeros(rows.shape[1], rows.shape[1])
    return apart.mT @ apart / len(rows)


def _largest_eigenvalue(matrix: Float[Tensor, "d d"]) -> Tensor:
    return torch.linalg.eigvalsh(matrix)[-1].clamp(min=0)


def _shrinkage(exponent: Tensor, factor: float) -> float:
    """Return the share of the identity; the exponent is a variance of features times the factor."""
    # The variance in the units of the user may overflow, and the share is then the least.
    return max(math.exp(-float(exponent) / factor / factor), _LEAST_SHRINKAGE)


def _shrunk(matrix: Float[Tensor, "d d"], share: float) -> Float[Tensor, "d d"]:
    d = len(matrix)
    identity = torch.eye(d).to(matrix)
    return (1 - share) * matrix + share * matrix.trace() / d * identity


def _solved(
    matrix: Float[Tensor, "d d"], means: Float[Tensor, "k d"], share: float
) -> Float[Tensor, "k d"]:
    """Solve for each mean.

    Args:
        matrix: Shrunk covariance.
        means: Right-hand sides, one a row.
        share: Share of the identity; below the least, the matrix may be singular to rounding and is
            inverted on its range.
    """
    if share >= _LEAST_SHRINKAGE:
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if not failed:
            return torch.cholesky_solve(means.mT, factor).mT
    values, vectors = torch.linalg.eigh(matrix)
    cut = torch.finfo(matrix.dtype).eps * len(matrix) * values[-1:].clamp(min=0).sum()
    inverse = torch.where(values > cut, 1 / values, 0.0)
    return (means @ vectors * inverse) @ vectors.mT


def _log_posterior(
    rows: Float[Tensor, "n d"],
    samples: LabelledSamples,
    within: Float[Tensor, "d d"],
    shrinkage: float,
) -> Float[Tensor, "n k"]:
    """Compute log probabilities of the classes under Gaussians with one shrunk covariance.

    Without variation within the classes the limit is taken: a sample belongs to the classes whose
    mean is nearest.
    """
    means, shares = class_means(rows, samples)
    if float(within.trace()) == 0:
        apart = torch.cdist(rows, means, compute_mode="donot_use_mm_for_euclid_dist")
        near = apart <= apart.amin(1, keepdim=True) + 1e-12 * rows.abs().max()
        return torch.where(near, shares.log(), -torch.inf).log_softmax(1)
    solved = _solved(_shrunk(within, shrinkage), means, shrinkage)
    return _gaussian_log_posterior(rows, means, solved, shares)


def _regularised_log_posterior(
    rows: Float[Tensor, "n d"], samples: LabelledSamples, shrinkage: float, factor: float
) -> Float[Tensor, "n k"]:
    """Compute log probabilities under the covariance of SFDA.

    Args:
        rows: Centred features times the factor.
        samples: Labels.
        shrinkage: Share of the identity, which has the units of the features as given.
        factor: Factor of the rows.
    """
    means, shares = class_means(rows, samples)
    # The square of the factor may leave the range of float64, for features of extreme scale.
    unit = min(max(shrinkage * factor * factor, _SMALLEST), 1 / _SMALLEST)
    covariance = (1 - shrinkage) * _within(rows, samples)
    covariance.diagonal().add_(unit)
    solved = _solved(covariance, means, shrinkage)
    return _gaussian_log_posterior(rows, means, solved, shares)


def _gaussian_log_posterior(
    rows: Float[Tensor, "n d"],
    means: Float[Tensor, "k d"],
    solved: Float[Tensor, "k d"],
    shares: Float[Tensor, " k"],
) -> Float[Tensor, "n k"]:
    """Compute log probabilities from means and the inverse covariance times the means."""
    offsets = shares.log() - (means * solved).sum(1) / 2
    return (rows @ solved.mT + offsets).log_softmax(1)


def _discriminant_directions(
    rows: Float[Tensor, "n d"],
    samples: LabelledSamples,
    within: Float[Tensor, "d d"],
    shrinkage: float,
) -> Float[Tensor, "d r"]:
    """Return directions in which the class means differ, of unit variance within."""
    means, shares = class_means(rows, samples)
    values, vectors = torch.linalg.eigh(_shrunk(within, shrinkage))
    whitening = vectors / values.sqrt()
    between = shares.sqrt()[:, None] * (means @ whitening)
    _, lengths, right = torch.linalg.svd(between, full_matrices=False)
    # Further directions would come from the rounding of the features, whose largest is at most 2.
    rounding = 64 * torch.finfo(rows.dtype).eps * (len(values) / values[0]).sqrt()
    kept = min(len(means) - 1, int((lengths > rounding).sum()))
    return whitening @ right[:kept].mT
