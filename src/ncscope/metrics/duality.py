"""NC3: alignment of the classifier's rows with the class means."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import row_blocks
from ncscope.math.powers import rescale_rows, times_power_or_nan

_COMMON = 1e-2  # cosine of two Gram matrices above which their inner product keeps its digits


def row_sum(weight: Float[Tensor, "heads d"]) -> Float[Tensor, ""]:
    r"""$\lVert W^\top\mathbf 1\rVert/(\sqrt K\lVert W\rVert_F)$, NC0.

    A property of the classifier: K counts all its rows, also of classes without samples, because a
    decay or an optimiser acts on all of them.

    Source: Zhao et al. 2026, scaled to the classifier's norm. Range $[0,1]$; 0: the rows sum to
    zero, without which there is no simplex of rows; 1: all rows are equal; NaN if the weight is
    zero. Invariant under rotation and scaling.
    """
    size = torch.linalg.vector_norm(weight, dtype=torch.float64)
    return (_norm_of_row_sum(weight) / (len(weight) ** 0.5 * size)).clamp(max=1)


def row_sum_norm(weight: Float[Tensor, "heads d"], exponent: int) -> float:
    r"""$\lVert W^\top\mathbf 1\rVert$, NC0 in the weight's unit.

    Args:
        weight: $W$ divided by $2^e$, all rows.
        exponent: Unit e of the weight.

    Source: Zhao et al. 2026. Range $[0,\infty)$; 0: the rows sum to zero; NaN beyond the range of
    float64.
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


def row_cosines(weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]) -> RowCosines:
    r"""Compute mean and variance over the classes of $\cos(w_c,\tilde\mu_c)$, UNC3.

    Both come from $1-\cos(w,\tilde\mu)=\frac12\lVert\hat w-\hat\mu\rVert^2$, which keeps its
    digits near alignment.

    Args:
        weight: $W$, rows of the classes present.
        frame: Class means centred by their unweighted mean.

    Source: Wu and Papyan 2024, uniform duality. Ranges $[-1,1]$ and $[0,1]$; NaN if a row or a
    class mean is zero. Invariant under rotation and under scaling of each row.
    """
    gaps = []
    for rows in row_blocks(*weight.shape):
        (heads, sizes), (means, lengths) = rescale_rows(weight[rows]), rescale_rows(frame[rows])
        apart = heads / sizes[:, None] - means / lengths[:, None]
        gaps.append(apart.square().sum(1) / 2)
    gap = torch.cat(gaps)
    return RowCosines((1 - gap.mean()).clamp(min=-1), gap.var(correction=0))


def self_duality(weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\lVert W^\top/\lVert W\rVert_F-\tilde M/\lVert\tilde M\rVert_F\rVert_F^2$.

    Args:
        weight: $W$, rows of the classes present.
        frame: Class means centred by their unweighted mean.

    Source: MSE fig. 6. Range $[0,4]$; 0: the classifier is the class means, up to scale.
    """
    return _squared_gap(weight, frame)


def alignment(weight: Float[Tensor, "k d"], means: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\lVert W^\top/\lVert W\rVert_F-\bar M/\lVert\bar M\rVert_F\rVert_F$, means *uncentred*.

    Source: XUFM (28). Range $[0,2]$; 0: reached by bias-free minimisers.
    """
    return _squared_gap(weight, means).sqrt()


def logit_etf_distance(
    weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]
) -> Float[Tensor, ""]:
    r"""Compute the distance of the class means' logits $Z=W\tilde M$ from a simplex.

    $\lVert Z/\lVert Z\rVert_F-\frac1{\sqrt{K-1}}(I-\frac1K\mathbf{11}^\top)\rVert_F$.
    Source: Zhu et al. 2021; as `seli_logits` in Thrampoulidis et al. 2022, because the SELI
    geometry of classes of any sizes has a simplex's logits, $W\tilde M\propto P$. Range $[0,2]$; 0:
    the class means' logits form a simplex ETF.
    Cost: for $K\le d$ two products of $2K^2d$ operations, in blocks, for $K\le2d$ one; else two of
    $2Kd^2$.
    """
    k, d = weight.shape
    size = _product_norm(weight, frame)
    if k > 2 * d:  # Logits of rank d are far from the simplex: the subtraction loses nothing.
        trace = torch.einsum("kd,kd->k", weight, frame).sum()
        whole = weight.sum(0) @ frame.sum(0)
        return (2 - 2 * (trace - whole / k) / (size * (k - 1) ** 0.5)).sqrt()
    total = torch.zeros_like(size)
    for rows in row_blocks(k, k):
        logits = weight[rows] @ frame.mT / size + 1 / (k * (k - 1) ** 0.5)
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


def _squared_gap(first: Float[Tensor, "k d"], second: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Compute the squared distance of two matrices scaled to norm 1, in blocks to save memory."""
    sizes = torch.linalg.vector_norm(first), torch.linalg.vector_norm(second)
    blocks = row_blocks(*first.shape)
    gaps = [(first[rows] / sizes[0] - second[rows] / sizes[1]).square().sum() for rows in blocks]
    return torch.stack(gaps).sum()
