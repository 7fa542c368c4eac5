"""H-score: the variance between classes in units of the total variance, plain and regularised."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.arguments import check_arguments
from ncscope.metrics.discriminants import Discriminants, discriminants, full_rank
from ncscope.metrics.variability import vci
from ncscope.stats.statistics import ClassStatistics
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.coordinates import centre, class_means
from ncscope.transfer.scores.discriminant_analysis import (
    shrink_covariance,
    solve_for_means,
)
from ncscope.transfer.uneven_scales import check_scale


@check_arguments
def h_score(
    stats: ClassStatistics, decomposition: Discriminants | None = None
) -> Float[Tensor, ""]:
    r"""$\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]$.

    Source: Bao et al. 2019, definition 2. Range $[0,\min(d,K-1)]$; the larger, the better a linear
    function separates the classes. Equal to $(1-\mathrm{VCI})\min(d,K-1)$ of the same samples: on
    downstream data H-score and VCI rank checkpoints of more than $K$ features alike. Invariant
    under every invertible linear map and shift.

    Args:
        stats: Statistics of the downstream samples, with the pooled scatter.
        decomposition: `discriminants` of the statistics, if computed before.

    Raises:
        InputError: If the squares of the features leave the range of float64.
    """
    check_scale(stats)
    if decomposition is None:
        decomposition = discriminants(stats)
    return (1 - vci(stats, decomposition)) * full_rank(stats)


@check_arguments
def regularised_h_score(samples: DownstreamSamples) -> Float[Tensor, ""]:
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
    rows, _ = centre(samples.features)
    total = rows.mT @ rows / len(rows)
    share = ledoit_wolf_share(rows, total)
    means, shares = class_means(rows, samples)
    directions = solve_for_means(shrink_covariance(total, share), means, share)
    return (1 - share) * (shares[:, None] * means * directions).sum()


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
