"""Numerics for features whose scales are orders of magnitude apart, or far from 1.

The error of an ordinary eigen-decomposition is relative to the largest eigenvalue: a direction
whose variance is 1e-16 of the largest is lost, even if that direction alone separates the classes.
Here the features are first scaled to equal size, so that the rank does not depend on their units.
The scales then multiply the rows of a factor, whose singular vectors Jacobi's method computes with
an error relative to each singular value.
"""

import math

import torch
from jaxtyping import Float
from scipy.linalg.lapack import dgejsv
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.symmetric import symmetric_eigen
from ncscope.stats.statistics import ClassStatistics

_SPREAD = 2.0**-32  # ratio of squared sizes below which features are scaled to equal size first
_LEAST = 2.0**-900  # share of the largest square below which float64 soon has no digits left
_SMALLEST = 2.0**-480  # size of features whose squares, and their sums, stay in range


def check_scale(stats: ClassStatistics) -> None:
    """Refuse statistics of features whose squares leave the range of float64.

    Raises:
        InputError: If features were larger than about 1e144 or smaller than about 1e-144.
    """
    largest, trace = float(stats.means.abs().max()), float(stats.within_trace)
    if not math.isfinite(trace) or largest > 1 / _SMALLEST or 0 < largest < _SMALLEST:
        raise InputError(
            expected=f"features between {_SMALLEST:.0e} and {1 / _SMALLEST:.0e} in size",
            found=f"class means up to {largest:.3g} and a variance of {trace:.3g}",
            fix="divide all features by the largest magnitude before moments are gathered",
        )


def unit_scale(largest: Float[Tensor, ""]) -> float:
    """Return the power of two that scales a number to the range from 1 to 2; for 0, return 1.

    Scaling by a power of two is exact, so that results that do not depend on scale keep all digits.
    """
    exponent = math.frexp(float(largest))[1] - 1 if largest else 0
    # The inverse of a subnormal number would leave the range of float64, and ldexp would raise.
    return math.ldexp(1.0, -min(max(exponent, -1000), 1000))


def uneven_eigen(
    matrix: Float[Tensor, "d d"], limit: int
) -> tuple[Float[Tensor, " r"], Float[Tensor, "d r"]]:
    r"""Decompose $X^\top X$ without losing small features to the scale of large ones.

    The rank does not depend on the units of the features, because it is decided for the matrix
    scaled to a diagonal of ones. Features 1e135 times smaller than the largest count as 0.

    Args:
        matrix: $X^\top X$.
        limit: Rank in exact arithmetic; at most this many pairs are returned.

    Returns:
        Positive eigenvalues, descending; and orthonormal eigenvectors, one a column.

    Cost: one eigen-decomposition; about nine times as much if the ratio of the features' sizes
    exceeds $2^{16}$.
    """
    scale = unit_scale(matrix.diagonal().max().clamp(min=0).sqrt()) ** 2
    scaled = matrix * scale
    squares = scaled.diagonal()
    sizes = torch.where(squares > _LEAST, squares, 0.0).sqrt()
    varied = squares[sizes > 0]
    if not len(varied) or varied.min() > _SPREAD * varied.max():
        direct = symmetric_eigen(scaled, limit)
        return direct.values / scale, direct.vectors
    inverse = reciprocal(sizes)
    even = symmetric_eigen(inverse[:, None] * scaled * inverse, limit)
    vectors, lengths = uneven_svd(sizes[:, None] * even.vectors * even.values.sqrt())
    return lengths.square() / scale, vectors


def uneven_svd(
    factor: Float[Tensor, "d r"],
) -> tuple[Float[Tensor, "d r"], Float[Tensor, " r"]]:
    """Return left singular vectors and singular values of a matrix of full column rank.

    The rows may have any scales: Jacobi's method after pivoted QR (LAPACK's ``gejsv``) is as
    accurate as for the matrix with rows of equal lengths. The computation runs on the CPU.
    """
    if not factor.numel():
        return factor, factor.new_zeros(0)
    # joba 2: pivot rows as well as columns, for rows of different scales. jobu 0: as many left
    # vectors as columns. jobv 3: no right vectors.
    values, vectors, _, work, _, info = dgejsv(factor.cpu().numpy(), joba=2, jobu=0, jobv=3)
    assert info == 0, f"gejsv ended with {info}"
    # LAPACK returns work[0] / work[1] times the values that it would have to over- or underflow.
    assert work[0] == work[1], "singular values out of range"
    left = torch.from_numpy(vectors)
    # The entry of a short axis at a long feature is far below 1, but is computed with the rounding
    # error of 1. Making the axes orthogonal again restores the entry.
    overlap = torch.linalg.cholesky(left.mT @ left, upper=True)
    left = torch.linalg.solve_triangular(overlap, left, upper=True, left=False)
    return left.to(factor), torch.from_numpy(values).to(factor)


def reciprocal(sizes: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
    """Return one over each size, and 0 for 0."""
    return torch.where(sizes > 0, 1 / sizes, 0)
