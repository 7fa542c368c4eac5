"""LogME: the log evidence of labels or targets under a linear model of the features."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.array_checks import as_tensor, check_features, refuse_nonfinite
from ncscope.errors import InputError
from ncscope.stats.regression_moments import check_targets
from ncscope.stats.statistics import ClassStatistics
from ncscope.transfer.uneven_scales import check_scale, uneven_eigen, unit_scale

_GRID = 0.5  # grid spacing of the logarithm of the ratio of precisions
_GOLDEN = (5**0.5 - 1) / 2
_SECTIONS = 40


@check_arguments
def log_me(stats: ClassStatistics) -> Float[Tensor, ""]:
    r"""Compute the log evidence of the labels given the features, per sample and class.

    The value is the mean over the classes. For each class $c$ with $y\in\{0,1\}^n$ and the
    uncentred features $F$:
    $\frac1n\max_{\alpha,\beta}\log p(y\mid F)$ of the model $y=Fw+\beta^{-1/2}\varepsilon$,
    $w=\alpha^{-1/2}\eta$ with standard normal $\varepsilon$ and $\eta$. With
    $\rho=\alpha/\beta$, the eigenvalues $\sigma_j$ of $F^\top F$ and $u_j$ the left singular
    vectors of $F$, that is
    $-\frac12(1+\log2\pi)-\frac12\min_\rho[\log s(\rho)+\frac1n\sum_j\log(1+\frac{\sigma_j}\rho)]$,
    $s(\rho)=\frac1n(\lVert y\rVert^2-\sum_j\frac{\sigma_j}{\rho+\sigma_j}\langle u_j,y\rangle^2)$.
    Source: You, Liu, Wang, Long 2021, section 4. Their fixed point in $\alpha$ and $\beta$ is a
    stationary point of this evidence; for $n\le d$ their iteration may reach no such point,
    although the maximum is finite. If the labels are exactly a linear function of fewer than n
    features, there is no maximum; the part of $\lVert y\rVert^2$ that the features do not explain
    then counts as $\epsilon\lVert y\rVert^2$, the rounding of float64. The larger, the better.
    Invariant under rotation and uniform scaling, but not under a shift, as there is no intercept.

    Args:
        stats: Statistics of the downstream samples, under the empirical prior, with the pooled
            scatter.

    Raises:
        InputError: If the squares of the features leave the range of float64.

    Cost: one eigen-decomposition, $9d^3$ operations, about nine times as much if the ratio of the
    features' sizes exceeds $2^{16}$; the features are not read again.
    """
    assert stats.within is not None
    check_scale(stats)
    scale = unit_scale(stats.means.abs().max())
    means, counts = stats.means * scale, stats.counts.to(stats.means)
    second = counts.sum() * (scale**2 * stats.within) + means.mT @ (counts[:, None] * means)
    # Of the labels of a class, which are 0 and 1, the sum of squares is the count.
    return _mean_evidence(second, counts[:, None] * means, counts, int(counts.sum()))


@check_arguments
def log_me_targets(features: Any, targets: Any) -> Float[Tensor, ""]:
    r"""Compute the log evidence of numbers to predict, or of several labels a sample.

    The form of `log_me` for regression: $y$ is each column of the targets in turn, and the value is
    the mean over columns of $\frac1n\max_{\alpha,\beta}\log p(y\mid F)$. Columns of 0 and 1 are the
    classes of a multi-label set; the one-hot columns of one label a sample give the value of
    `log_me`. Source: You, Liu, Wang, Long 2021, section 4. There is no intercept: centre targets
    (and features) whose mean says nothing. Doubling a column takes $\log2$ from its evidence, so
    only checkpoints on the same targets compare.

    Args:
        features: n x d array-like.
        targets: n x m array-like of numbers, or n numbers.

    Raises:
        InputError: If shapes do not fit, a number is NaN or infinite, or a column of the targets is
            zero for all samples.

    Cost: one product of $nd^2$ operations, and that of `log_me`.

    Example:
        >>> features = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> near, far = features[:, 0] + 0.1, features[:, 0].square()
        >>> bool(log_me_targets(features, near) > log_me_targets(features, far))
        True
    """
    rows = as_tensor(features, "features")
    check_features(rows)
    values = as_tensor(targets, "targets")
    values = values.to(torch.float64) if values.dtype == torch.bool else values
    values = check_targets(values, len(rows)).to(rows.device)
    if not len(rows):
        raise InputError(expected="at least one sample", found="none", fix="pass more samples")
    for what, numbers in (("features", rows), ("targets", values)):
        refuse_nonfinite(numbers, what)
    rows, values = rows.to(torch.float64), values.to(torch.float64)
    sizes = values.abs().amax(0)
    if bool((sizes == 0).any()):
        found = f"zeros in column {int(sizes.argmin())}"
        fix = "leave out columns that are zero for all samples: they can be predicted exactly"
        raise InputError(expected="targets that are not all zero", found=found, fix=fix)
    # Scaled so that squares stay in range. No power of two of the features changes the evidence,
    # and that of a column adds its logarithm.
    rows = rows * unit_scale(rows.abs().max())
    shifts = values.new_tensor([unit_scale(size) for size in sizes])
    values = values * shifts
    second, cross = rows.mT @ rows, values.mT @ rows
    evidence = _mean_evidence(second, cross, values.square().sum(0), len(rows))
    return evidence + torch.log(shifts).mean()


def _mean_evidence(
    second: Float[Tensor, "d d"],
    cross: Float[Tensor, "k d"],
    squares: Float[Tensor, " k"],
    n: int,
) -> Float[Tensor, ""]:
    r"""Compute the evidence of each target, and average.

    Args:
        second: $F^\top F$.
        cross: $y^\top F$, a row for each target.
        squares: $\lVert y\rVert^2$ of each target, above 0.
        n: Number of samples.
    """
    values, vectors = uneven_eigen(second, limit=min(n, len(second)))
    explained = (cross @ vectors).square() / values
    # By rounding the part that is not explained can be negative or 0, and its logarithm is taken.
    rounding = torch.finfo(explained.dtype).eps * squares
    unexplained = torch.maximum(squares - explained.sum(1), rounding)
    values = values / values[:1]  # in units of the largest eigenvalue, as are the ratios below

    def profile(log_ratio: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        r"""Compute $\log s(\rho)+\frac1n\sum_j\log(1+\sigma_j/\rho)$ at a ratio for each class."""
        ratio = log_ratio.exp()[:, None]
        left = unexplained + (explained * (ratio / (ratio + values))).sum(1)
        return torch.log(left / n) + torch.log1p(values / ratio).sum(1) / n

    if not len(values):  # all features are 0: the profile does not depend on the ratio
        least = torch.log(unexplained / n)
    else:
        eps = torch.finfo(values.dtype).eps
        # If only rounding is unexplained, the minimum lies at about r/n of this share of an
        # eigenvalue, which is at least the lower end of the grid.
        ends = math.log(eps * float(values[-1] / n)) - _GRID, -math.log(eps)
        grid = torch.arange(ends[0], ends[1] + _GRID, _GRID, device="cpu").to(values)
        # A grid first: with eigenvalues orders of magnitude apart the profile has several local
        # minima. Golden sections then narrow the best point down.
        best = torch.stack([profile(point.expand(len(explained))) for point in grid]).argmin(0)
        low, high = grid[best] - _GRID, grid[best] + _GRID
        for _ in range(_SECTIONS):
            inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            left = profile(inner) < profile(outer)
            low, high = torch.where(left, low, inner), torch.where(left, outer, high)
        least = profile((low + high) / 2)
    return -(1 + math.log(2 * math.pi) + least).mean() / 2
