"""Principal axes of features whose scales are orders of magnitude apart.

An ordinary eigen-decomposition knows every eigenvalue to a share of the largest: a direction whose
variance is 1e-16 of the largest is lost, even if that direction alone tells the classes apart. Here
features are first scaled to equal size, where the rank does not depend on their units. The scales
come back in a factor, whose singular vectors Jacobi's method finds each to its own precision.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from scipy.linalg.lapack import dgejsv
from torch import Tensor

from ncscope.math.symmetric import symmetric_eigen

_SPREAD = 2.0**-32  # squares of features further apart than this are scaled first
_LEAST = 2.0**-900  # of the largest square: below it float64 soon has no digits left


class Axes(NamedTuple):
    """Eigenpairs of a symmetric positive semi-definite matrix.

    Attributes:
        values: Positive eigenvalues, descending.
        vectors: Orthonormal eigenvectors, one a column.
    """

    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "d r"]


def power_of_two(largest: Float[Tensor, ""]) -> float:
    """Return the power of two that brings a number between 1 and 2; for 0, return 1.

    Scaling by the power is exact, so that what does not depend on scale keeps every digit.
    """
    exponent = math.frexp(float(largest))[1] - 1 if largest else 0
    return math.ldexp(1.0, -min(max(exponent, -1000), 1000))


def graded_eigen(matrix: Float[Tensor, "d d"], limit: int) -> Axes:
    r"""Decompose a sum of squares $X^\top X$ without losing one feature to the scale of another.

    The rank does not depend on the units of the features: it is cut where the matrix has been
    scaled to a diagonal of ones. Features 1e135 times smaller than the largest count as 0.

    Args:
        matrix: $X^\top X$.
        limit: Rank in exact arithmetic: no more pairs are kept.

    Cost: one eigen-decomposition; about nine times as much where the features' sizes lie further
    than $2^{16}$ apart.
    """
    scale = power_of_two(matrix.diagonal().max().clamp(min=0).sqrt()) ** 2
    scaled = matrix * scale
    squares = scaled.diagonal()
    sizes = torch.where(squares > _LEAST, squares, 0.0).sqrt()
    varied = squares[sizes > 0]
    if not len(varied) or varied.min() > _SPREAD * varied.max():
        direct = symmetric_eigen(scaled, limit)
        return Axes(direct.values / scale, direct.vectors)
    inverse = reciprocal(sizes)
    even = symmetric_eigen(inverse[:, None] * scaled * inverse, limit)
    vectors, lengths = left_singular(sizes[:, None] * even.vectors * even.values.sqrt())
    return Axes(lengths.square() / scale, vectors)


def left_singular(
    factor: Float[Tensor, "d r"],
) -> tuple[Float[Tensor, "d r"], Float[Tensor, " r"]]:
    """Return left singular vectors and singular values of a matrix of full column rank.

    Rows may be of any scales: Jacobi's method after pivoted QR (LAPACK's ``gejsv``) loses only what
    the matrix with rows of equal lengths would lose. It runs on the CPU.
    """
    if not factor.numel():
        return factor, factor.new_zeros(0)
    # joba 2: rows, too, are pivoted. jobu 0: as many vectors as columns. jobv 3: none.
    values, vectors, _, work, _, info = dgejsv(factor.cpu().numpy(), joba=2, jobu=0, jobv=3)
    assert info == 0, f"gejsv ended with {info}"
    assert work[0] == work[1], "singular values out of range"
    left = torch.from_numpy(vectors)
    # Where a short axis crosses a long feature, its entry, far below 1, has only the rounding of 1.
    # That the axis is orthogonal to the long ones says the rest.
    overlap = torch.linalg.cholesky(left.mT @ left, upper=True)
    left = torch.linalg.solve_triangular(overlap, left, upper=True, left=False)
    return left.to(factor), torch.from_numpy(values).to(factor)


def reciprocal(sizes: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Return one over each size, and 0 for 0."""
    return torch.where(sizes > 0, 1 / sizes, 0)
