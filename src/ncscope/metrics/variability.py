"""NC1: variability of the features around their class means."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import recompute_close_, row_blocks, sum_over_pairs
from ncscope.metrics.discriminants import Discriminants, full_rank, mean_rounding
from ncscope.metrics.metric import MOST_FOR_PAIRS, metric
from ncscope.stats.statistics import ClassStatistics, lengths_from

_COINCIDE = "the class means coincide"
_ZERO_ROW = "a feature is the zero vector and has no direction"
_BEYOND = "the value is beyond the range of float64"
_ON_MEAN = "every feature sits on its class mean"

_CLOSE = 1e-4
_SAME_DIRECTION = (32 * 2.0**-52) ** 2  # squared distance of unit vectors that rounding explains


@metric(
    key="nc1",
    group="nc1",
    meaning=(
        "Variation within classes, measured along the directions in which the class means "
        "differ, and averaged over classes."
    ),
    formula=r"\frac1K\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]",
    source="MSE fig. 7; XUFM (26)",
    needs={"scatter"},
    zero="no variation along the between-class directions",
    log_scale=True,
    undefined=_COINCIDE,
    noisy=True,
)
def nc1(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    """Divide the `fuzziness` by the number of classes."""
    return fuzziness(stats, discriminants) / stats.k


@metric(
    key="fuzziness",
    group="nc1",
    meaning=(
        "Variation within classes along the directions in which the class means differ, "
        "each direction in units of the means' spread."
    ),
    formula=r"\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger]",
    source="VCI section 3.2",
    needs={"scatter"},
    zero="no variation along the between-class directions",
    log_scale=True,
    undefined=_COINCIDE,
    noisy=True,
)
def fuzziness(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""Compute the trace of the scatter within classes times the inverse of that between them.

    Invariant under linear maps that act separately on $\operatorname{col}\Sigma_B$ and its
    complement, not under others (VCI observation 4.2).
    """
    if discriminants.between.rank == 0:
        return stats.between_trace * torch.nan
    return (discriminants.within_along / discriminants.between.values).sum()


@metric(
    key="nc1_quotient",
    group="nc1",
    meaning=(
        "Variance of the features around their class means, divided by the variance of the "
        "class means."
    ),
    formula=r"\operatorname{Tr}\Sigma_W/\operatorname{Tr}\Sigma_B",
    source="PFC (7); VCI (4)",
    zero=_ON_MEAN,
    log_scale=True,
    undefined=_COINCIDE,
    aliases=("pfc1",),
    also=("pfc",),
    noisy=True,
)
def nc1_quotient(stats: ClassStatistics) -> Float[Tensor, ""]:
    """Compute the squared distance quotient, the variance within classes over that of the means.

    Invariant under rotation, shift and isotropic scaling. The metric needs traces only, and no
    d x d matrix.
    """
    between = stats.between_trace
    return torch.where(between > 0, stats.within_trace / between, torch.nan)


@metric(
    key="vci",
    group="nc1",
    meaning=(
        "Share of the class means' spread that a linear probe loses to variation within classes."
    ),
    formula=r"1-\operatorname{Tr}[\Sigma_T^\dagger\Sigma_B]/\min(d,K-1)",
    source="VCI definition 5.3",
    undefined="the features do not vary",
    needs={"scatter"},
    high=1.0,
    zero="a linear probe loses nothing to variability",
    log_scale=True,
    inverts=True,
)
def vci(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""Compute the variability collapse index.

    Invariant under every invertible linear map and shift. Computed from the residuals $1-\nu_j$ of
    the canonical correlations, so it stays accurate near collapse.
    """
    if discriminants.between.rank == 0 and bool(stats.within_trace <= mean_rounding(stats).sum()):
        return stats.within_trace * torch.nan
    return discriminants.canonical.residual_root.square().sum() / full_rank(stats)


@metric(
    key="linear_probe_mse",
    group="nc1",
    meaning=(
        "Smallest squared error with which a linear map of the features predicts one-hot labels."
    ),
    formula=r"\min_{W,b}\frac12\sum_c\frac{\pi_c}{n_c}\sum_{y_i=c}\lVert Wh_i+b-e_c\rVert^2",
    source="VCI theorem 5.1, extended to any prior",
    needs={"scatter"},
    high=0.5,
    zero="one-hot labels are a linear function of the features",
    log_scale=True,
    inverts=True,
)
def linear_probe_mse(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""Compute the least squared error of a linear map, with a bias, on one-hot labels.

    Equal to $\frac12(1-\sum\pi_c^2)-\frac12\sum_c\pi_c^2(\mu_c-\mu_G)^\top\Sigma_T^\dagger
    (\mu_c-\mu_G)$, and at most $\frac12(1-\sum\pi_c^2)$. Invariant under every invertible linear
    map and shift.
    """
    root, classes = discriminants.canonical.residual_root, discriminants.classes
    blocks = row_blocks(len(classes), max(root.shape))
    rows = [torch.linalg.vector_norm(classes[block] @ root, dim=1) for block in blocks]
    residual = torch.cat(rows).square()
    hidden = torch.zeros_like(stats.prior)
    if classes.shape[1] < stats.k - 1:
        # Class contrasts that the means cannot show have no basis here. Their projector is what
        # the others and the constant leave of the identity.
        shown = torch.linalg.vector_norm(classes, dim=1).square()
        hidden = (1 - stats.prior - shown).clamp(min=0)
    return (stats.prior @ (residual + hidden)) / 2


@metric(
    key="cosine_within",
    group="nc1",
    meaning="Average cosine distance of two samples of one class.",
    formula=r"\sum_c\pi_c\bigl(1-\lVert\tfrac1{n_c}\sum_{y_i=c}\hat h_i\rVert^2\bigr)",
    source="VCI section 3.2",
    needs={"directions"},
    high=1.0,
    zero="one direction a class",
    log_scale=True,
    undefined=_ZERO_ROW,
)
def cosine_within(stats: ClassStatistics) -> Float[Tensor, ""]:
    r"""Compute the mean cosine distance of two samples of a class, a sample and itself included.

    Computed as $\sum_c\pi_c\frac1{n_c}\sum_{y_i=c}\lVert\hat h_i-\bar{\hat h}_c\rVert^2$, because
    the equal $1-\lVert\bar{\hat h}_c\rVert^2$ would cancel near collapse. Invariant under rotation
    and under positive scaling of each sample.
    """
    assert stats.unit_class_traces is not None
    value = stats.prior @ stats.unit_class_traces
    return value * torch.nan if stats.zero_vectors else value


@metric(
    key="class_separation",
    group="nc1",
    meaning="One minus the ratio of cosine distances: within classes to over all pairs.",
    formula=r"1-\bar d_{within}/\bar d_{total}",
    source="VCI section 3.2",
    needs={"directions"},
    high=1.0,
    zero="directions do not tell the classes apart",
    better="high",
    undefined=_ZERO_ROW + ", or all directions coincide",
)
def class_separation(stats: ClassStatistics) -> Float[Tensor, ""]:
    """Compare the cosine distances within classes with those of all pairs.

    1: one direction for each class.
    """
    assert stats.unit_means is not None
    apart = lengths_from(stats.unit_means, stats.prior @ stats.unit_means)
    between = stats.prior @ apart.square()
    total = between + cosine_within(stats)
    return torch.where(total > _SAME_DIRECTION, between / total, total * torch.nan)


@metric(
    key="within_in_signal",
    group="nc1",
    meaning="Variance within classes inside the space that the class means span.",
    formula=r"\operatorname{Tr}[P\Sigma_W]",
    source="VCI fig. 1",
    needs={"scatter"},
    zero="no variation along the between-class directions",
    log_scale=True,
    undefined=_BEYOND,
    degree=2,
)
def within_in_signal(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""Compute the variance within classes along $\operatorname{col}\Sigma_B$, in squared units.

    $P$ is the projector on this space.
    """
    return discriminants.within_along.sum()


@metric(
    key="within_off_signal",
    group="nc1",
    meaning="Variance within classes outside the space that the class means span.",
    formula=r"\operatorname{Tr}[(I-P)\Sigma_W]",
    source="VCI fig. 1",
    needs={"scatter"},
    zero="no variation outside the between-class directions",
    log_scale=True,
    undefined=_BEYOND,
    degree=2,
)
def within_off_signal(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""Compute the variance within classes orthogonal to $\operatorname{col}\Sigma_B$."""
    if discriminants.between.rank == stats.dim:
        return torch.zeros_like(stats.within_trace)
    return (stats.within_trace - within_in_signal(stats, discriminants)).clamp(min=0)


@metric(
    key="cdnv",
    group="nc1",
    meaning=(
        "Variance of two classes divided by the squared distance of their means, averaged "
        "over all pairs."
    ),
    formula=(
        r"\operatorname{avg}_{c\ne c'}\frac{\operatorname{Tr}\Sigma_c+"
        r"\operatorname{Tr}\Sigma_{c'}}{2\lVert\mu_c-\mu_{c'}\rVert^2}"
    ),
    source="Galanti, Gyorgy, Hutter 2021",
    most_classes=MOST_FOR_PAIRS,
    zero=_ON_MEAN,
    log_scale=True,
    undefined="two class means coincide",
    noisy=True,
)
def cdnv(stats: ClassStatistics) -> Float[Tensor, ""]:
    """Compute the class-distance normalised variance. Cost: $K^2d$ operations."""
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
