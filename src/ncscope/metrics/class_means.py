"""NC2: distance of the class means, or of the classifier's rows, from a simplex frame."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import row_blocks, sum_over_pairs
from ncscope.math.powers import rescale_rows
from ncscope.math.symmetric import frobenius_of_gram
from ncscope.metrics.metric import MOST_FOR_PAIRS, metric

_COINCIDE = "the class means coincide"
_ZERO_MEAN = "a centred class mean is zero and has no angle"
_ZERO_WEIGHT = "a row of the classifier is zero and has no angle"


@metric(
    key="nc2_equinorm_means",
    group="nc2",
    meaning="Relative spread of the lengths of the centred class means.",
    formula=(
        r"\operatorname{std}_c\lVert\tilde\mu_c\rVert/\operatorname{avg}_c\lVert\tilde\mu_c\rVert"
    ),
    source="MSE fig. 3",
    reads=("stats.frame",),
    zero="centred class means of one length",
    for_two_classes=0.0,
    undefined=_COINCIDE,
)
@metric(
    key="nc2_equinorm_weights",
    group="nc2",
    meaning="Relative spread of the lengths of the classifier's rows.",
    formula=r"\operatorname{std}_c\lVert w_c\rVert/\operatorname{avg}_c\lVert w_c\rVert",
    source="MSE fig. 3",
    reads=("present_weight",),
    needs={"head"},
    zero="classifier rows of one length",
    undefined="the classifier is zero",
    chance_level=False,
)
def equinorm(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute the relative spread of the lengths, at most $\sqrt{K-1}$."""
    length = torch.linalg.vector_norm(vectors, dim=1)
    return length.std(correction=0) / length.mean()


@metric(
    key="nc2_equiangular_means",
    group="nc2",
    meaning="Spread of the cosines between centred class means.",
    formula=r"\operatorname{std}_{c\ne c'}\cos(\tilde\mu_c,\tilde\mu_{c'})",
    source="MSE fig. 4",
    reads=("stats.frame",),
    high=1.0,
    zero="centred class means at one angle",
    for_two_classes=0.0,
    undefined=_ZERO_MEAN,
)
@metric(
    key="nc2_equiangular_weights",
    group="nc2",
    meaning="Spread of the cosines between the classifier's rows.",
    formula=r"\operatorname{std}_{c\ne c'}\cos(w_c,w_{c'})",
    source="MSE fig. 4",
    reads=("present_weight",),
    needs={"head"},
    high=1.0,
    zero="classifier rows at one angle",
    for_two_classes=0.0,
    undefined=_ZERO_WEIGHT,
    chance_level=False,
)
def equiangular(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute the population's standard deviation of the cosines of all pairs.

    Cost: $K^2d$ operations in tiles; $2Kd^2$ for $K>2d$.
    """
    k, d = vectors.shape
    unit, inverse = _unit_rows(vectors)
    if k > 2 * d:
        # With U = 1u^T + V, u the mean of the rows, the squared deviations of UU^T from its mean
        # off the diagonal add up to 2k|Vu|^2 + |V^TV|^2 - |V|^4 / (k - 1). The last two are at
        # least 1/d and at most 1/(2d) of |V|^4, so that the subtraction keeps its digits.
        centre = inverse @ unit / k
        apart = (unit * inverse[:, None]).sub_(centre)
        size = torch.linalg.vector_norm(apart).square()  # without another k x d matrix
        gram = apart.mT @ apart
        squares = 2 * k * (apart @ centre).square().sum() + gram.square().sum()
        return ((squares - size.square() / (k - 1)).clamp(min=0) / (k * (k - 1))).sqrt()
    pairs = k * (k - 1) / 2
    mean = ((inverse @ unit).square().sum() - k) / (2 * pairs)

    def term(gram: Tensor, rows: slice, cols: slice) -> Tensor:
        return gram.mul_(inverse[rows, None]).mul_(inverse[cols]).sub_(mean).square_()

    return (sum_over_pairs(unit, term) / pairs).sqrt()


@metric(
    key="nc2_maxangle_means",
    group="nc2",
    meaning=(
        "Average distance of the cosines between centred class means from -1/(K-1), the "
        "widest possible."
    ),
    formula=(
        r"\operatorname{avg}_{c\ne c'}\lvert\cos(\tilde\mu_c,\tilde\mu_{c'})+\tfrac1{K-1}\rvert"
    ),
    source="MSE fig. 5",
    reads=("stats.frame",),
    most_classes=MOST_FOR_PAIRS,
    high=2.0,
    zero="centred class means as far apart as a simplex's",
    for_two_classes=0.0,
    undefined=_ZERO_MEAN,
)
@metric(
    key="nc2_maxangle_weights",
    group="nc2",
    meaning=(
        "Average distance of the cosines between the classifier's rows from -1/(K-1), the "
        "widest possible."
    ),
    formula=r"\operatorname{avg}_{c\ne c'}\lvert\cos(w_c,w_{c'})+\tfrac1{K-1}\rvert",
    source="MSE fig. 5",
    reads=("present_weight",),
    most_classes=MOST_FOR_PAIRS,
    needs={"head"},
    high=2.0,
    zero="classifier rows as far apart as a simplex's",
    undefined=_ZERO_WEIGHT,
    chance_level=False,
)
def maxangle(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute the mean distance of the cosines from a simplex's, $-\frac1{K-1}$.

    Cost: $K^2d$ operations, in tiles.
    """
    k = len(vectors)
    unit, inverse = _unit_rows(vectors)

    def term(gram: Tensor, rows: slice, cols: slice) -> Tensor:
        cosines = gram.mul_(inverse[rows, None]).mul_(inverse[cols])
        return cosines.add_(1 / (k - 1)).abs_()

    return sum_over_pairs(unit, term) * 2 / (k * (k - 1))


def _unit_rows(
    vectors: Float[Tensor, "k d"],
) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
    """Return vectors of moderate length and the inverse lengths, instead of a scaled copy."""
    vectors, length = rescale_rows(vectors)
    return vectors, 1 / length


@metric(
    key="nc2_etf",
    group="nc2",
    meaning="Distance of the class means' normalised Gram matrix from that of a simplex.",
    formula=(
        r"\Bigl\lVert\frac{\tilde M^\top\tilde M}{\lVert\tilde M^\top\tilde M\rVert_F}-"
        r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)\Bigr\rVert_F"
    ),
    source="PFC (8); XUFM (27)",
    reads=("stats.frame",),
    high=2**0.5,
    zero="centred class means form a simplex ETF",
    for_two_classes=0.0,
    undefined=_COINCIDE,
    aliases=("pfc2",),
    also=("pfc",),
)
def etf_distance(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute the distance of the Gram matrix from the simplex's, both scaled to norm 1.

    NaN if all vectors are zero. Cost: $K^2d$ operations in blocks; $2Kd^2$ for $K>2d$.
    """
    k = len(vectors)
    return _gram_distance(vectors, (1 - 1 / k) / (k - 1) ** 0.5, -1 / (k * (k - 1) ** 0.5))


@metric(
    key="nc2_of",
    group="nc2",
    meaning=(
        "Distance of the class means' normalised Gram matrix from that of an orthogonal frame; "
        "the value at collapse is that of means around zero."
    ),
    formula=(
        r"\Bigl\lVert\frac{\bar M^\top\bar M}{\lVert\bar M^\top\bar M\rVert_F}-"
        r"\frac1{\sqrt K}I\Bigr\rVert_F"
    ),
    source="XUFM (27)",
    reads=("stats.means",),
    high=2**0.5,
    zero="uncentred class means are orthogonal and of one length",
    undefined="all class means are zero",
    at_collapse=lambda k: (2 - 2 * (1 - 1 / k) ** 0.5) ** 0.5,
    two_sided=True,
)
def orthogonal_frame_distance(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Compute the distance of the Gram matrix from the identity, both scaled to norm 1.

    Cost: as `etf_distance`.
    """
    return _gram_distance(vectors, len(vectors) ** -0.5, 0.0)


@metric(
    key="nc2_lognorm_std_means",
    group="nc2",
    meaning="Spread of the logarithms of the lengths of the centred class means.",
    formula=r"\operatorname{std}_c\log\lVert\tilde\mu_c\rVert",
    source="Wu and Papyan 2024",
    reads=("stats.frame",),
    zero="centred class means of one length",
    for_two_classes=0.0,
    undefined="a centred class mean is zero",
)
@metric(
    key="nc2_lognorm_std_weights",
    group="nc2",
    meaning="Spread of the logarithms of the lengths of the classifier's rows.",
    formula=r"\operatorname{std}_c\log\lVert w_c\rVert",
    source="Wu and Papyan 2024",
    reads=("present_weight",),
    needs={"head"},
    zero="classifier rows of one length",
    undefined="a row of the classifier is zero",
    chance_level=False,
)
def lognorm_spread(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Compute the standard deviation of the logarithms of the lengths.

    Wu and Papyan report norms of class means on a logarithmic scale. Invariant under rotation and
    scaling. Near 0 it is `equinorm`; long norms weigh less in it.
    """
    lengths = []
    for rows in row_blocks(*vectors.shape):
        peak = torch.linalg.vector_norm(vectors[rows], ord=torch.inf, dim=1)
        # Divided by the largest entry, the squares of a short row do not underflow.
        lengths.append(peak * torch.linalg.vector_norm(vectors[rows] / peak[:, None], dim=1))
    length = torch.cat(lengths)
    return (length / length.mean()).log().std(correction=0)


def cosines(vectors: Float[Tensor, "k d"]) -> Float[Tensor, "k k"]:
    """Compute pairwise cosines, for pictures; NaN for a zero vector."""
    unit = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return unit @ unit.mT


def _gram_distance(
    vectors: Float[Tensor, "k d"], on_diagonal: float, off_diagonal: float
) -> Float[Tensor, ""]:
    """Compute the distance of the normalised Gram matrix from a target of norm 1.

    Args:
        vectors: One vector a row.
        on_diagonal: Diagonal entry of the target.
        off_diagonal: Other entries of the target.
    """
    k, d = vectors.shape
    size = frobenius_of_gram(vectors)
    squares = torch.linalg.vector_norm(vectors, dim=1).square()
    if k > 2 * d:  # A Gram matrix of rank d is far from the target: the subtraction loses nothing.
        trace, whole = squares.sum(), vectors.sum(0).square().sum()
        inner = (on_diagonal - off_diagonal) * trace + off_diagonal * whole
        return (2 - 2 * inner / size).sqrt()

    def term(gram: Tensor, rows: slice, cols: slice) -> Tensor:
        return gram.div_(size).sub_(off_diagonal).square_()

    diagonal = squares / size - on_diagonal
    return (2 * sum_over_pairs(vectors, term) + diagonal.square().sum()).sqrt()
