"""LogME: the log evidence of the labels under a linear model of the features."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.stats.statistics import ClassStatistics
from ncscope.transfer.uneven_scales import check_scale, power_of_two, uneven_eigen

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
    scale = power_of_two(stats.means.abs().max())
    means, counts = stats.means * scale, stats.counts.to(stats.means)
    n = counts.sum()
    second = n * (scale**2 * stats.within) + means.mT @ (counts[:, None] * means)
    values, vectors = uneven_eigen(second, limit=min(int(n), stats.dim))
    along = counts[:, None] * (means @ vectors)
    profile = _Profile(values, along.square() / values, counts, n)
    return -(1 + math.log(2 * math.pi) + profile.least()).mean() / 2


class _Profile:
    r"""$\log s(\rho)+\frac1n\sum_j\log(1+\sigma_j/\rho)$ of each class, and its minimum."""

    def __init__(
        self,
        values: Float[Tensor, " r"],
        seen: Float[Tensor, "k r"],
        whole: Float[Tensor, " k"],
        n: Float[Tensor, ""],
    ) -> None:
        self.values = values / values[:1]  # in units of the largest eigenvalue
        self.seen, self.n = seen, n
        # The difference of whole and seen can be negative or 0 by rounding; its logarithm is taken.
        rounding = torch.finfo(seen.dtype).eps * whole
        self.unseen = torch.maximum(whole - seen.sum(1), rounding)

    def at(self, log_ratio: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """Return the profile of each class, each at the ratio given for the class."""
        ratio = log_ratio.exp()[:, None]
        left = self.unseen + (self.seen * (ratio / (ratio + self.values))).sum(1)
        return torch.log(left / self.n) + torch.log1p(self.values / ratio).sum(1) / self.n

    def least(self) -> Float[Tensor, " k"]:
        """Return the minimum, by a grid of ratios and golden sections around its best point."""
        if not len(self.values):  # all features are 0: the profile does not depend on the ratio
            return torch.log(self.unseen / self.n)
        eps = torch.finfo(self.values.dtype).eps
        # If only rounding is unexplained, the minimum lies at about r/n of this share of an
        # eigenvalue, which is at least the lower end of the grid.
        ends = math.log(eps * float(self.values[-1] / self.n)) - _GRID, -math.log(eps)
        grid = torch.arange(ends[0], ends[1] + _GRID, _GRID).to(self.values)
        best = torch.stack([self.at(point.expand(len(self.seen))) for point in grid]).argmin(0)
        low, high = grid[best] - _GRID, grid[best] + _GRID
        for _ in range(_SECTIONS):
            inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            left = self.at(inner) < self.at(outer)
            low, high = torch.where(left, low, inner), torch.where(left, outer, high)
        return self.at((low + high) / 2)
