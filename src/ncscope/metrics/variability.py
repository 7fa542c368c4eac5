"""NC1: variability of the features around their class means."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import recompute_close_, row_blocks, sum_over_pairs
from ncscope.metrics.discriminants import Discriminants, full_rank, mean_rounding
from ncscope.stats.statistics import ClassStatistics, lengths_from

_CLOSE = 1e-4
_SAME_DIRECTION = (32 * 2.0**-52) ** 2  # squared distance of unit vectors that rounding explains


def nc1_quotient(stats: ClassStatistics) -> Float[Tensor, ""]:
    r"""$\operatorname{Tr}\Sigma_W/\operatorname{Tr}\Sigma_B$, the squared distance quotient.

    Source: PFC (7), VCI (4). Range $[0,\infty)$; 0: every feature equals its class mean; NaN
    if the class means coincide. Invariant under rotation, shift and isotropic scaling. The metric
    needs traces only, and no d x d matrix.
    """
    return _ratio(stats.within_trace, stats.between_trace)


def fuzziness(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""$\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]$.

    Source: VCI 3.2. Range $[0,\infty)$; 0: no variation along the between-class directions; NaN
    if the class means coincide. Invariant under linear maps that act separately on
    $\operatorname{col}\Sigma_B$ and its complement, not under others (VCI observation 4.2).
    """
    if discriminants.between.rank == 0:
        return stats.between_trace * torch.nan
    return (discriminants.within_along / discriminants.between.values).sum()


def nc1(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""$\frac1K\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]$. Source: MSE fig. 7, XUFM (26)."""
    return fuzziness(stats, discriminants) / stats.k


def vci(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""$1-\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]/\min(d,K-1)$, the variability collapse index.

    Source: VCI definition 5.3. Range $[0,1]$; 0: a linear probe loses nothing to variability;
    NaN if the features do not vary. Invariant under every invertible linear map and shift. Computed
    from the residuals $1-\nu_j$ of the canonical correlations, so it stays accurate near collapse.
    """
    if discriminants.between.rank == 0 and bool(stats.within_trace <= mean_rounding(stats).sum()):
        return stats.within_trace * torch.nan
    return discriminants.canonical.residual_root.square().sum() / full_rank(stats)


def linear_probe_mse(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""$\min_{W,b}\frac12\sum_c\frac{\pi_c}{n_c}\sum_{y_i=c}\lVert Wh_i+b-e_{c}\rVert^2$.

    Equal to $\frac12(1-\sum\pi_c^2)-\frac12\sum_c\pi_c^2(\mu_c-\mu_G)^\top\Sigma_T^\dagger
    (\mu_c-\mu_G)$. Source: VCI theorem 5.1, extended to any prior. Range
    $[0,\frac12(1-\sum\pi_c^2)]$; 0: one-hot labels are a linear function of the features.
    Invariant under every invertible linear map and shift.
    """
    root, classes = discriminants.canonical.residual_root, discriminants.classes
    blocks = row_blocks(len(classes), max(root.shape))
    rows = [torch.linalg.vector_norm(classes[block] @ root, dim=1) for block in blocks]
    residual = torch.cat(rows).square()
    return (stats.prior @ (residual + _unseparated(stats, discriminants))) / 2


def within_in_signal(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""$\operatorname{Tr}[P\Sigma_W]$, $P$ the projector on $\operatorname{col}\Sigma_B$.

    Source: VCI fig. 1. Range $[0,\infty)$ in squared feature units.
    """
    return discriminants.within_along.sum()


def within_off_signal(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""$\operatorname{Tr}[(I-P)\Sigma_W]$, variation orthogonal to the between-class directions.

    Source: VCI fig. 1. Range $[0,\infty)$ in squared feature units.
    """
    if discriminants.between.rank == stats.dim:
        return torch.zeros_like(stats.within_trace)
    return (stats.within_trace - within_in_signal(stats, discriminants)).clamp(min=0)


def cosine_within(stats: ClassStatistics) -> Float[Tensor, ""]:
    r"""$\sum_c\pi_c$ (mean over ordered pairs of class $c$, $i=j$ included, of $1-\cos$).

    Computed as $\sum_c\pi_c\frac1{n_c}\sum_{y_i=c}\lVert\hat h_i-\bar{\hat h}_c\rVert^2$, because
    the equal $1-\lVert\bar{\hat h}_c\rVert^2$ would cancel near collapse. Source: VCI 3.2. Range
    $[0,1]$; 0: one direction for each class; NaN if a feature is the zero vector.
    Invariant under rotation and under positive scaling of each sample.
    """
    assert stats.unit_class_traces is not None
    return _without_zero_vectors(stats, stats.prior @ stats.unit_class_traces)


def class_separation(stats: ClassStatistics) -> Float[Tensor, ""]:
    r"""$1-\bar d_{within}/\bar d_{total}$ of the cosine distances.

    Source: VCI 3.2. Range $[0,1]$; 1: one direction for each class; 0: the mean directions of all
    classes are equal; NaN if all directions coincide or a feature is the zero vector.
    """
    assert stats.unit_means is not None
    apart = lengths_from(stats.unit_means, stats.prior @ stats.unit_means)
    between = stats.prior @ apart.square()
    total = between + cosine_within(stats)
    return torch.where(total > _SAME_DIRECTION, between / total, total * torch.nan)


def cdnv(stats: ClassStatistics) -> Float[Tensor, ""]:
    r"""Class-distance normalised variance.

    The mean over pairs of classes of
    $(\operatorname{Tr}\Sigma_c+\operatorname{Tr}\Sigma_{c'})/(2\lVert\mu_c-\mu_{c'}\rVert^2)$.
    Source: Galanti, Gyorgy, Hutter 2021. Range $[0,\infty)$; 0: every feature equals its class
    mean; NaN if two class means coincide. Cost: $K^2d$ operations.
    """
    frame = stats.frame
    norms = torch.linalg.vector_norm(frame, dim=1).square()

    def term(gram: Tensor, rows: slice, cols: slice) -> Tensor:
        size = norms[rows, None] + norms[cols]
        distance = gram.mul_(-2).add_(size)
        recompute_close_(distance, size.mul_(_CLOSE), frame[rows], frame[cols])
        variance = stats.class_traces[rows, None] + stats.class_traces[cols]
        coincide = distance <= 0
        return variance.div_(distance.mul_(2)).masked_fill_(coincide, torch.nan)

    return sum_over_pairs(frame, term) * 2 / (stats.k * (stats.k - 1))


def _unseparated(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, " k"]:
    """Return the diagonal of the projector on the class contrasts that the means cannot show."""
    if discriminants.classes.shape[1] == stats.k - 1:
        return torch.zeros_like(stats.prior)
    shown = torch.linalg.vector_norm(discriminants.classes, dim=1).square()
    return (1 - stats.prior - shown).clamp(min=0)


def _without_zero_vectors(stats: ClassStatistics, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
    return value * torch.nan if stats.zero_vectors else value


def _ratio(part: Float[Tensor, ""], whole: Float[Tensor, ""]) -> Float[Tensor, ""]:
    return torch.where(whole > 0, part / whole, torch.nan)
