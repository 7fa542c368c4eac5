"""NC2: distance of the class means, or of the classifier's rows, from a simplex frame."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.pairs import row_blocks, sum_over_pairs
from ncscope.math.powers import rescale_rows
from ncscope.math.symmetric import frobenius_of_gram


def equinorm(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\operatorname{std}_c\lVert v_c\rVert/\operatorname{avg}_c\lVert v_c\rVert$.

    Source: MSE fig. 3. Range $[0,\sqrt{K-1}]$; 0: all vectors have one length; NaN if all are zero.
    """
    length = torch.linalg.vector_norm(vectors, dim=1)
    return length.std(correction=0) / length.mean()


def lognorm_spread(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\operatorname{std}_c\log\lVert v_c\rVert$, over the population.

    Source: Wu and Papyan 2024, who report norms of class means on a logarithmic scale. Range
    $[0,\infty)$; 0: all vectors have one length; NaN if a vector is zero. Invariant under rotation
    and scaling. Near 0 it is `equinorm`; long norms weigh less in it.
    """
    lengths = []
    for rows in row_blocks(*vectors.shape):
        peak = torch.linalg.vector_norm(vectors[rows], ord=torch.inf, dim=1)
        # Divided by the largest entry, the squares of a short row do not underflow.
        lengths.append(peak * torch.linalg.vector_norm(vectors[rows] / peak[:, None], dim=1))
    length = torch.cat(lengths)
    return (length / length.mean()).log().std(correction=0)


def equiangular(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\operatorname{std}_{c\ne c'}\cos(v_c,v_{c'})$, the population's spread over all pairs.

    Source: MSE fig. 4. Range $[0,1]$; 0: all vectors at one angle; NaN if a vector is zero. Cost:
    $K^2d$ operations in tiles; $2Kd^2$ for $K>2d$.
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


def maxangle(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\operatorname{avg}_{c\ne c'}\lvert\cos(v_c,v_{c'})+\frac1{K-1}\rvert$.

    Source: MSE fig. 5. Range $[0,2]$; 0: the directions of a simplex; NaN if a vector is zero.
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


def etf_distance(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""Compute the distance of the Gram matrix $G$ from the simplex's, both scaled to norm 1.

    $\lVert G/\lVert G\rVert_F-\frac1{\sqrt{K-1}}(I-\frac1K\mathbf{11}^\top)\rVert_F$.

    Source: PFC (8), XUFM (27). Range $[0,\sqrt2]$; 0: a simplex ETF; NaN if all vectors are zero.
    Cost: $K^2d$ operations in blocks; $2Kd^2$ for $K>2d$.
    """
    k = len(vectors)
    return _gram_distance(vectors, (1 - 1 / k) / (k - 1) ** 0.5, -1 / (k * (k - 1) ** 0.5))


def orthogonal_frame_distance(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    r"""$\lVert G/\lVert G\rVert_F-\frac1{\sqrt K}I\rVert_F$, $G$ the Gram matrix.

    Source: XUFM (27). Range $[0,\sqrt2]$; 0: orthogonal vectors of one length; NaN if all are zero.
    Cost: as `etf_distance`.
    """
    return _gram_distance(vectors, len(vectors) ** -0.5, 0.0)


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
