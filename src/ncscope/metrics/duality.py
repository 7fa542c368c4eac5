"""NC3: alignment of the classifier's rows with the class means."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import row_blocks
from ncscope.math.powers import rescale_rows, times_power_or_nan
from ncscope.metrics.metric import metric

_ZERO_ROW = "a centred class mean or a row of the classifier is zero and has no direction"
_ZERO_HEAD = "the classifier or all class means are zero"

_ONE_BLOCK = 2048  # classes whose logits of all class means are formed once, not once a use
_COMMON = 1e-2  # cosine of two Gram matrices above which their inner product keeps its digits


@metric(
    key="nc0",
    group="nc3",
    meaning=(
        "Length of the sum of the classifier's rows, as a share of the longest that rows of "
        "these lengths can have. All rows count, also of classes without samples."
    ),
    formula=r"\lVert W^\top\mathbf 1\rVert/(\sqrt K\lVert W\rVert_F)",
    source="Zhao et al. 2026, scaled to the classifier's norm",
    reads=("weight",),
    needs={"head"},
    high=1.0,
    zero="the classifier's rows sum to zero, as a simplex's do",
    undefined="the classifier is zero",
    chance_level=False,
)
def row_sum(weight: Float[Tensor, "heads d"]) -> Float[Tensor, ""]:
    """Compute NC0: the length of the sum of the rows, over the greatest that it can be.

    A property of the classifier: K counts all its rows, also of classes without samples, because a
    decay or an optimiser acts on all of them. 1: all rows are equal. Invariant under rotation and
    scaling.
    """
    size = torch.linalg.vector_norm(weight, dtype=torch.float64)
    return (_norm_of_row_sum(weight) / (len(weight) ** 0.5 * size)).clamp(max=1)


@metric(
    key="nc0_norm",
    group="nc3",
    meaning="Length of the sum of the classifier's rows, in the unit of the classifier.",
    formula=r"\lVert W^\top\mathbf 1\rVert",
    source="Zhao et al. 2026",
    reads=("weight", "weight_exponent"),
    needs={"head"},
    zero="the classifier's rows sum to zero, as a simplex's do",
    undefined="the value is beyond the range of float64",
    chance_level=False,
)
def row_sum_norm(weight: Float[Tensor, "heads d"], exponent: int) -> float:
    """Compute NC0 in the weight's unit, the length of the sum of the rows.

    Args:
        weight: $W$ divided by $2^e$, all rows.
        exponent: Unit e of the weight.
    """
    return times_power_or_nan(float(_norm_of_row_sum(weight)), exponent)


def _norm_of_row_sum(weight: Float[Tensor, "heads d"]) -> Float[Tensor, ""]:
    return torch.linalg.vector_norm(weight.sum(0, dtype=torch.float64))


@dataclass(frozen=True)
class RowCosines:
    """Statistics of the cosine between a classifier row and the class mean.

    Attributes:
        mean: Mean over the classes.
        variance: Population variance over the classes.
    """

    mean: Float[Tensor, ""]
    variance: Float[Tensor, ""]


@metric(
    key="unc3",
    group="nc3",
    meaning=(
        "Variance over the classes of the cosine between a classifier row and its centred "
        "class mean."
    ),
    formula=r"\operatorname{var}_c\cos(w_c,\tilde\mu_c)",
    source="Wu and Papyan 2024",
    result="row_cosines.variance",
    needs={"head"},
    high=1.0,
    zero="every classifier row is at the same angle to its class mean",
    log_scale=True,
    undefined=_ZERO_ROW,
)
@metric(
    key="unc3_mean",
    group="nc3",
    meaning="Average cosine between a classifier row and its centred class mean.",
    formula=r"\operatorname{avg}_c\cos(w_c,\tilde\mu_c)",
    source="Wu and Papyan 2024",
    result="row_cosines.mean",
    needs={"head"},
    low=-1.0,
    high=1.0,
    zero="classifier rows are on average orthogonal to their class means",
    better="high",
    undefined=_ZERO_ROW,
)
def row_cosines(weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]) -> RowCosines:
    r"""Compute mean and variance over the classes of $\cos(w_c,\tilde\mu_c)$, UNC3.

    Both come from $1-\cos(w,\tilde\mu)=\frac12\lVert\hat w-\hat\mu\rVert^2$, which keeps its
    digits near alignment. Invariant under rotation and under scaling of each row.

    Args:
        weight: $W$, rows of the classes present.
        frame: Class means centred by their unweighted mean.
    """
    gaps = []
    for rows in row_blocks(*weight.shape):
        (heads, sizes), (means, lengths) = rescale_rows(weight[rows]), rescale_rows(frame[rows])
        apart = heads / sizes[:, None] - means / lengths[:, None]
        gaps.append(apart.square().sum(1) / 2)
    gap = torch.cat(gaps)
    return RowCosines((1 - gap.mean()).clamp(min=-1), gap.var(correction=0))


@metric(
    key="nc3_self_duality",
    group="nc3",
    meaning=(
        "Squared distance between the normalised classifier and the normalised centred class means."
    ),
    formula=(
        r"\Bigl\lVert\frac{W^\top}{\lVert W\rVert_F}-\frac{\tilde M}{\lVert\tilde M\rVert_F}"
        r"\Bigr\rVert_F^2"
    ),
    source="MSE fig. 6",
    reads=("present_weight", "stats.frame"),
    needs={"head"},
    high=4.0,
    zero="the classifier is the centred class means, up to scale",
    undefined=_ZERO_HEAD,
)
def self_duality(weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute the squared distance of classifier and class means, both scaled to norm 1.

    Args:
        weight: $W$, rows of the classes present.
        frame: Class means centred by their unweighted mean.
    """
    return _distance_squared(weight, frame)


@metric(
    key="nc3_alignment",
    group="nc3",
    meaning=(
        "Distance between the normalised classifier and the normalised class means, which are "
        "not centred."
    ),
    formula=(
        r"\Bigl\lVert\frac{W^\top}{\lVert W\rVert_F}-\frac{\bar M}{\lVert\bar M\rVert_F}"
        r"\Bigr\rVert_F"
    ),
    source="XUFM (28)",
    reads=("present_weight", "stats.means"),
    needs={"head"},
    high=2.0,
    zero="the classifier is the uncentred class means, up to scale",
    undefined=_ZERO_HEAD,
)
def alignment(weight: Float[Tensor, "k d"], means: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Compute the distance of classifier and *uncentred* class means, both scaled to norm 1.

    Minimisers without a bias reach 0.
    """
    return _distance_squared(weight, means).sqrt()


@metric(
    key="nc3_etf",
    group="nc3",
    meaning=(
        "Distance of the normalised products of classifier rows and centred class means from a "
        "simplex's."
    ),
    formula=(
        r"\Bigl\lVert\frac{W\tilde M}{\lVert W\tilde M\rVert_F}-"
        r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)\Bigr\rVert_F"
    ),
    source="Zhu et al. 2021; for classes of any sizes Thrampoulidis et al. 2022",
    reads=("present_weight", "stats.frame"),
    needs={"head"},
    high=2.0,
    zero="logits of the centred class means form a simplex ETF",
    undefined=_ZERO_HEAD,
    aliases=("seli_logits",),
)
def logit_etf_distance(
    weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]
) -> Float[Tensor, ""]:
    r"""Compute the distance of the class means' logits $W\tilde M$ from a simplex.

    For classes of any sizes as well, because the SELI geometry has a simplex's logits,
    $W\tilde M\propto P$.
    Cost: one product of $2K^2d$ operations, for more than 2,048 classes a second one, in blocks;
    for $K>2d$ two of $2Kd^2$.
    """
    k, d = weight.shape
    product = weight @ frame.mT if k <= min(2 * d, _ONE_BLOCK) else None
    size = _product_norm(weight, frame) if product is None else torch.linalg.matrix_norm(product)
    if k > 2 * d:  # Logits of rank d are far from the simplex: the subtraction loses nothing.
        trace = torch.einsum("kd,kd->k", weight, frame).sum()
        whole = weight.sum(0) @ frame.sum(0)
        return (2 - 2 * (trace - whole / k) / (size * (k - 1) ** 0.5)).sqrt()
    total = torch.zeros_like(size)
    for rows in row_blocks(k, k):
        logits = weight[rows] @ frame.mT if product is None else product[rows]
        logits = logits / size + 1 / (k * (k - 1) ** 0.5)
        logits.diagonal(offset=rows.start).sub_((k - 1) ** -0.5)
        total += logits.square().sum()
    return total.sqrt()


def _product_norm(weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute $\lVert W\tilde M\rVert_F$ from the smaller side, or in blocks of rows.

    Its square is the inner product of $W^\top W$ and $\tilde M\tilde M^\top$, of d x d. The inner
    product cancels if the two have hardly a direction in common; then the blocks are summed.
    """
    k, d = weight.shape
    if k > d:
        grams = weight.mT @ weight, frame.mT @ frame
        sizes = torch.linalg.matrix_norm(grams[0]), torch.linalg.matrix_norm(grams[1])
        share = ((grams[0] / sizes[0]) * (grams[1] / sizes[1])).sum()
        if bool(share > _COMMON):
            return (share * sizes[0]).sqrt() * sizes[1].sqrt()
    squares = [(weight[rows] @ frame.mT).square_().sum() for rows in row_blocks(k, k)]
    return torch.stack(squares).sum().sqrt()


def _distance_squared(
    first: Float[Tensor, "k d"], second: Float[Tensor, "k d"]
) -> Float[Tensor, ""]:
    """Compute the squared distance of two matrices scaled to norm 1, in blocks to save memory."""
    sizes = torch.linalg.vector_norm(first), torch.linalg.vector_norm(second)
    blocks = row_blocks(*first.shape)
    gaps = [(first[rows] / sizes[0] - second[rows] / sizes[1]).square().sum() for rows in blocks]
    return torch.stack(gaps).sum()
