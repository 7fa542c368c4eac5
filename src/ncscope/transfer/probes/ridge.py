"""The least-squares probe in closed form, from moments alone."""

from collections.abc import Iterable, Iterator

import torch

from ncscope.arguments import NotNegative, check_arguments
from ncscope.errors import InputError
from ncscope.stats.statistics import ClassStatistics
from ncscope.transfer.probes.linear_probe import LinearProbe
from ncscope.transfer.uneven_scales import uneven_eigen


@check_arguments
def ridge_probe(stats: ClassStatistics, strength: NotNegative) -> LinearProbe:
    r"""Minimise the squared error of one-hot labels with a penalty on the weight.

    $\min_{W,b}\frac12\sum_c\frac{\pi_c}{n_c}\sum_{y_i=c}\lVert Wh_i+b-e_c\rVert^2
    +\frac\lambda2\lVert W\rVert_F^2$ at
    $W=\operatorname{diag}(\pi)\tilde M^\top(\Sigma_T+\lambda I)^{-1}$, $b=\pi-W\mu_G$, where
    $\tilde M$ has the columns $\mu_c-\mu_G$. Source: VCI theorem 5.1, for $\lambda=0$; then the
    inverse is the pseudo-inverse, and $W$ is the minimiser of least norm.

    Args:
        stats: Statistics with the pooled scatter.
        strength: $\lambda\ge0$, relative to the mean of the squared errors, not to their sum.

    Raises:
        InputError: If the strength is negative, or the statistics have no scatter.

    Example:
        >>> from ncscope.stats.moments import ClassMoments
        >>> from ncscope.stats.statistics import finish
        >>> moments = ClassMoments(num_classes=2, dim=1)
        >>> moments.update(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]))
        >>> probe = ridge_probe(finish(moments), strength=1.0)
        >>> probe.weight.tolist(), probe.bias.tolist()
        ([[-0.25], [0.25]], [0.75, 0.25])
    """
    (probe,) = ridge_path(stats, [strength])
    return probe


@check_arguments
def ridge_path(stats: ClassStatistics, strengths: Iterable[NotNegative]) -> Iterator[LinearProbe]:
    """Yield `ridge_probe` for many strengths, in the order given, from one decomposition.

    Args:
        stats: Statistics with the pooled scatter.
        strengths: Strengths of at least 0.

    Raises:
        InputError: As `ridge_probe`.
    """
    # Strengths are checked as they are read: listed here, a bad one is refused by this very call.
    in_order = list(strengths)
    if stats.within is None:
        fix = "gather moments with the statistic 'scatter'"
        expected = "moments with the within-class scatter"
        raise InputError(expected=expected, found="none", fix=fix)
    centred = stats.centred
    weighted = stats.prior[:, None] * centred
    n = int(stats.counts.sum())
    scatter = stats.within + centred.mT @ weighted
    # The variance of a constant feature is the rounding error of its class means. The decomposition
    # scales features to equal size, in which this error would count as a direction.
    rounding = n * torch.finfo(scatter.dtype).eps * stats.means.abs().amax(0)
    constant = scatter.diagonal() <= rounding.square()
    scatter = scatter.masked_fill(constant | constant[:, None], 0.0)
    values, vectors = uneven_eigen(scatter, min(stats.dim, n - 1))
    along = weighted @ vectors

    def probe(strength: float) -> LinearProbe:
        weight = along / (values + strength) @ vectors.mT
        return LinearProbe(stats.classes, weight, stats.prior - weight @ stats.global_mean)

    return map(probe, in_order)
