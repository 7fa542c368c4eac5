"""Symmetric linear algebra on the smaller side, with one rule for the numerical rank."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ncscope.devices import is_asynchronous
from ncscope.math.powers import power_of_two

_LEAST_SIDE = 256  # eigen-decompositions of smaller matrices take no time worth saving
_BEST_CONDITION = 2.0**26  # 1 / sqrt(machine epsilon of float64)
_MOST_STEPS, _FEWEST_STEPS, _CHECK_EVERY, _LANCZOS_RESIDUAL = 256, 32, 8, 1e-3
_BLOCK_ROWS = 1024
_LEAST_EXPONENT = 1000  # a power of two to the opposite of it is still in range
SMALL_BYTES = 32 * 2**20
"""Bytes up to which a matrix that several metrics need is kept until the last of them."""

_grams_by_rows = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class Gram:
    r"""Matrix $X^\top X$ of m rows in more dimensions, kept as its rows.

    Few samples in many dimensions have a scatter of this form. All that is asked of the scatter
    then costs a problem of size m instead of d, and the matrix is never formed.

    Attributes:
        rows: $X$, m x d.
    """

    rows: Float[Tensor, "m d"]

    def __len__(self) -> int:
        """Return d, the number of rows of the matrix."""
        return self.rows.shape[1]

    def diagonal(self) -> Float[Tensor, " d"]:
        """Return the squared length of each column."""
        return self.rows.square().sum(0)

    def dense(self) -> Float[Tensor, "d d"]:
        """Return the whole matrix. Cost: $md^2$ operations, and memory for $d^2$ numbers."""
        total = self.rows.new_zeros(len(self), len(self))
        add_gram_(total, self.rows)
        return mirror_upper(total)


@dataclass(frozen=True)
class Eigen:
    """Leading eigenpairs of a symmetric positive semi-definite matrix.

    Attributes:
        values: Eigenvalues above the cut, descending.
        vectors: Orthonormal eigenvectors, one a column.
        spectrum: All min(sides) eigenvalues, descending; values below zero, which are rounding
            errors, are set to zero.
        cut: Value up to which an eigenvalue counts as zero.
    """

    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "d r"]
    spectrum: Float[Tensor, " m"]
    cut: float

    @property
    def rank(self) -> int:
        """Number of eigenvalues above the cut."""
        return len(self.values)


def rank_cut(largest: Tensor, dim: int) -> float:
    r"""Return the cut of the pseudo-inverses, $\epsilon\,d\,\lambda_{max}$."""
    return float(torch.finfo(largest.dtype).eps * dim * largest.clamp(min=0))


def comparable_scales(variances: Float[Tensor, " d"]) -> Float[Tensor, " d"] | None:
    r"""Return powers of two that scale deviations to within $2^{10}$ of the largest.

    The error of an eigen-decomposition is $\epsilon\lambda_{max}$ in every direction. The variance
    of a coordinate in small units can be below this error, although it is given to a relative
    precision of $\epsilon$. If all deviations are close enough, nothing is scaled, and the
    decomposition is that of the given matrix.

    Args:
        variances: Diagonal of a positive semi-definite matrix.

    Returns:
        Factors of the coordinates, 1 for constant ones; None if all factors are 1.

    Example:
        >>> comparable_scales(torch.tensor([1.0, 2.0**-19, 2.0**-30, 0.0])).tolist()
        [1.0, 1.0, 1024.0, 1.0]
    """
    smaller = (variances.max().log2() - variances.log2()) / 20
    steps = torch.where(variances > 0, smaller.floor(), 0.0)
    return torch.exp2(10 * steps) if bool((steps > 0).any()) else None


def rescale(
    matrix: Float[Tensor, "d d"] | Gram, scales: Float[Tensor, " d"] | None
) -> Float[Tensor, "d d"] | Gram:
    """Return $DMD$, the matrix in coordinates multiplied by the scales; None stands for 1."""
    if scales is None:
        return matrix
    if isinstance(matrix, Gram):
        return Gram(matrix.rows * scales)
    return matrix * scales[:, None] * scales


def without_coordinates(
    matrix: Float[Tensor, "d d"] | Gram, zero: Bool[Tensor, " d"]
) -> Float[Tensor, "d d"] | Gram:
    """Return the matrix with rows and columns of some coordinates set to 0."""
    if isinstance(matrix, Gram):
        return Gram(matrix.rows.masked_fill(zero, 0))
    return matrix.masked_fill(zero | zero[:, None], 0)


def plus_gram(
    matrix: Float[Tensor, "d d"] | Gram, rows: Float[Tensor, "m d"]
) -> Float[Tensor, "d d"] | Gram:
    """Return the sum of a matrix and the Gram matrix of rows."""
    if isinstance(matrix, Gram):
        return Gram(torch.cat([matrix.rows, rows]))
    return matrix + rows.mT @ rows


def energies(
    matrix: Float[Tensor, "d d"] | Gram, vectors: Float[Tensor, "d b"]
) -> Float[Tensor, " b"]:
    r"""Return $v^\top Mv$ for each column. Cost: $2d^2b$ operations, $2mdb$ from m rows."""
    if isinstance(matrix, Gram):
        return (matrix.rows @ vectors).square().sum(0)
    return ((matrix @ vectors) * vectors).sum(0)


def spectrum_of(matrix: Float[Tensor, "d d"] | Gram) -> Float[Tensor, " d"]:
    """Return the d eigenvalues of a positive semi-definite matrix, descending and at least 0."""
    if isinstance(matrix, Gram):
        # Tall: of wide matrices LAPACK's time grew a hundredfold beside other work.
        values = torch.linalg.svdvals(matrix.rows.mT.contiguous()).square()
        return torch.nn.functional.pad(values, (0, len(matrix) - len(values)))
    return torch.linalg.eigvalsh(matrix).flip(0).clamp(min=0)


def symmetric_eigen(matrix: Float[Tensor, "d d"] | Gram, limit: int | None = None) -> Eigen:
    r"""Return the eigenpairs of a positive semi-definite matrix above $\epsilon\,d\,\lambda_{max}$.

    Args:
        matrix: Symmetric positive semi-definite matrix.
        limit: Upper bound of the rank, if known; at most this many pairs are kept.

    Returns:
        The pairs, descending. Cost: one eigen-decomposition, about $9d^3$ operations; for a
        matrix of m rows singular values, about $6m^2d$.

    Example:
        >>> symmetric_eigen(torch.diag(torch.tensor([0.0, 2.0, 3.0]).double())).values.tolist()
        [3.0, 2.0]
    """
    spectrum, vectors = symmetric_pairs(matrix)
    cut = rank_cut(spectrum[:1].sum(), len(matrix))  # the sum also works for a 0 x 0 matrix
    rank = int((spectrum > cut).sum())
    rank = rank if limit is None else min(rank, limit)
    return Eigen(spectrum[:rank], vectors[:, :rank], spectrum, cut)


def symmetric_pairs(
    matrix: Float[Tensor, "d d"] | Gram,
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d r"]]:
    """Return all eigenvalues, descending and at least 0, and the eigenvectors.

    Of a matrix of m < d rows there are m eigenvectors; the other eigenvalues are 0.
    """
    if isinstance(matrix, Gram):
        # Not the eigenpairs of XX^T: their images under X^T lose orthogonality as they get short.
        vectors, values, _ = torch.linalg.svd(matrix.rows.mT.contiguous(), full_matrices=False)
        spectrum = torch.nn.functional.pad(values.square(), (0, len(matrix) - len(values)))
        return spectrum, vectors
    ascending, vectors = torch.linalg.eigh(matrix)
    return ascending.flip(0).clamp(min=0), vectors.flip(1)


@dataclass(frozen=True)
class PositiveDefinite:
    r"""A matrix whose full rank is beyond doubt.

    Attributes:
        root: Cholesky factor, the lower triangular $L$ with $LL^\top=R$.
        largest: Largest eigenvalue.
    """

    root: Float[Tensor, "d d"]
    largest: Float[Tensor, ""]


def positive_definite(matrix: Float[Tensor, "d d"] | Gram) -> PositiveDefinite | None:
    r"""Factor a matrix that has full rank beyond doubt; return None for every other matrix.

    The criterion is $\lambda_{max}/\lambda_{min}\le1/\sqrt\epsilon$. All eigenvalues are then above
    the cut $\epsilon\,d\,\lambda_{max}$ of `symmetric_eigen`, by a factor of at least
    $1/(d\sqrt\epsilon)$, and the pseudo-inverse is the inverse. The pivots alone do not show this:
    the smallest pivot can be far above the smallest eigenvalue. Both eigenvalues are computed by
    the Lanczos method from a random start, the smallest one as the largest of $R^{-1}$. After 32
    steps the method misses half of an eigenvalue with a probability below $10^{-19}\sqrt d$
    (Kuczynski and Wozniakowski 1992, theorem 4.1).

    Args:
        matrix: Symmetric positive semi-definite matrix.

    Returns:
        The factor; None also for a side below 256, for which the eigen-decomposition is fast
        enough, and for float32. Cost: $d^3/3$ operations, and $2d^2$ for each of about 100 steps.
    """
    if isinstance(matrix, Gram) or len(matrix) < _LEAST_SIDE or matrix.dtype != torch.float64:
        return None
    root, status = torch.linalg.cholesky_ex(matrix)
    if int(status):
        return None
    pivots = root.diagonal().square()
    if not float(pivots.max()) <= _BEST_CONDITION * float(pivots.min()):
        return None

    def inverse(vector: Tensor) -> Tensor:
        half = torch.linalg.solve_triangular(root, vector[:, None], upper=False)
        return torch.linalg.solve_triangular(root.mT, half, upper=True)[:, 0]

    largest = largest_eigenvalue(lambda vector: matrix @ vector, matrix[0])
    condition = largest * largest_eigenvalue(inverse, matrix[0], _BEST_CONDITION / float(largest))
    return PositiveDefinite(root, largest) if float(condition) <= _BEST_CONDITION else None


def largest_eigenvalue(
    multiply: Callable[[Float[Tensor, " d"]], Float[Tensor, " d"]],
    like: Float[Tensor, " d"],
    limit: float = 0.0,
) -> Float[Tensor, ""]:
    r"""Compute the largest eigenvalue by the Lanczos method, to a relative $10^{-6}$ or better.

    Args:
        multiply: Product of a symmetric positive semi-definite matrix with a vector.
        like: Vector of the matrix's dimension, type and device.
        limit: Value to compare the eigenvalue with. The iteration may end as soon as the answer is
            known, with a Ritz value on the same side of the limit.

    Returns:
        The largest Ritz value for a random start that is the same in every call. The iteration
        ends when the residual is below $10^{-3}$ of the value; its error is about the square of
        the residual. Cost: 32 to 256 products.

    Example:
        >>> matrix = torch.diag(torch.tensor([0.0, 2.0, 3.0]).double())
        >>> round(largest_eigenvalue(lambda vector: matrix @ vector, matrix[0]).item(), 9)
        3.0
    """
    d = len(like)
    start = torch.randn(
        d, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu"
    )
    vector = (start / torch.linalg.vector_norm(start)).to(like)
    steps = min(d, _MOST_STEPS)
    basis, diagonal, beside = like.new_zeros(steps, d), like.new_zeros(steps), like.new_zeros(steps)
    for step in range(steps):
        basis[step] = vector
        image = multiply(vector)
        diagonal[step] = vector @ image
        before = basis[: step + 1]
        for _ in range(2):  # without reorthogonalisation, copies of eigenvalues would appear
            image = image - before.mT @ (before @ image)
        beside[step] = torch.linalg.vector_norm(image)
        # A check waits for the device and decomposes a small matrix: not after every step.
        due = step + 1 >= _FEWEST_STEPS and (step + 1) % _CHECK_EVERY == 0
        if step + 1 == steps or due:
            side = beside[:step].diag(1)
            ritz, vectors = torch.linalg.eigh(diagonal[: step + 1].diag() + side + side.mT)
            if bool(beside[step] * vectors[-1, -1].abs() <= _LANCZOS_RESIDUAL * ritz[-1]):
                break
            # By then a Ritz value is more than half of the eigenvalue: see `positive_definite`.
            if 2 * float(ritz[-1]) <= limit or 0 < limit < float(ritz[-1]):
                break
        # A remainder of rounding error means that the eigenvalues of the start have been found.
        rest = torch.where(beside[step] > torch.finfo(like.dtype).eps * diagonal.max(), image, 0)
        vector = rest / beside[step].clamp(min=torch.finfo(like.dtype).tiny)
    return ritz[-1]


def factor_eigen(factor: Float[Tensor, "d k"], limit: int) -> tuple[Eigen, Float[Tensor, "k r"]]:
    r"""Return the eigenpairs of $AA^\top$ from the smaller of $AA^\top$ and $A^\top A$.

    Args:
        factor: $A$, d x k.
        limit: Rank in exact arithmetic; at most this many pairs are kept.

    Returns:
        Eigenpairs of $AA^\top$ (vectors in dimension d), and the matching orthonormal
        eigenvectors of $A^\top A$ (in dimension k). The cut is $\epsilon\,d\,\lambda_{max}$.

    Example:
        >>> eigen, right = factor_eigen(torch.eye(5, 2).double(), limit=2)
        >>> eigen.rank, tuple(right.shape)
        (2, (2, 2))
    """
    d, k = factor.shape
    wide = k > d
    small = symmetric_eigen(factor @ factor.mT if wide else factor.mT @ factor, limit)
    cut = rank_cut(small.spectrum[0], d)
    rank = int((small.values > cut).sum())
    near = small.vectors[:, :rank]
    far = (factor.mT if wide else factor) @ near
    # The lengths of the columns are the singular values with small relative errors. The errors of
    # the square roots of the eigenvalues are relative to the largest eigenvalue.
    lengths = torch.linalg.vector_norm(far, dim=0)
    far /= lengths
    left, right = (near, far) if wide else (far, near)
    values = lengths.square()
    return Eigen(values, left, torch.cat([values, small.spectrum[rank:]]), cut), right


def share_gram(rows: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    """Let several metrics share the Gram matrix of rows, if it takes up to 32 MB; return the rows.

    A dozen metrics of a few thousand class means need the matrix, and it costs more than all else
    that they do. The caller owns the rows and never overwrites them: a matrix of a user could
    change, or need a gradient, behind the one that is kept.

    Args:
        rows: Rows, k x d.
    """
    if 8 * len(rows) ** 2 <= SMALL_BYTES and not rows.requires_grad:
        _grams_by_rows[rows] = None
    return rows


def find_gram(rows: Float[Tensor, "k d"]) -> Float[Tensor, "k k"] | None:
    """Return the Gram matrix of rows, not to be overwritten; None if it is not shared.

    Args:
        rows: Rows, k x d.
    """
    if rows not in _grams_by_rows:
        return None
    gram: Tensor | None = _grams_by_rows[rows]
    if gram is None:
        upper = rows.new_zeros(len(rows), len(rows))
        add_gram_(upper, rows.mT)
        _grams_by_rows[rows] = gram = mirror_upper(upper)
    return gram


def frobenius_of_gram(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Compute the Frobenius norm of the Gram matrix of the rows, from the smaller side."""
    k, d = vectors.shape
    # Other metrics need the k x k matrix too, so it pays where it is somewhat the larger one.
    gram = find_gram(vectors) if k <= 2 * d else None
    if gram is None:
        gram = vectors @ vectors.mT if k <= d else vectors.mT @ vectors
    largest = gram.diagonal().max()  # divided out, because its square may overflow
    scaled = torch.where(largest > 0, gram / largest, 0.0)
    return largest * torch.linalg.matrix_norm(scaled)


def add_gram_(total: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
    r"""Add $X^\top X$ to a symmetric matrix in place, computing the upper blocks only.

    Args:
        total: Symmetric accumulator. Its strict lower blocks are not updated; see `mirror_upper`.
        rows: $X$. Cost: 5/8 of the $2nd^2$ operations of the full product, 9/16 for
            d of 1,024 or more.
    """
    for low, high in _split_rows(rows.shape[1]):
        total[low:high, low:].addmm_(rows[:, low:high].mT, rows[:, low:])


def add_gram_in_blocks_(total: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
    r"""Add $S=X^\top X$ as `add_gram_` does, with products in float32 and totals in float64.

    The products sum over blocks of up to $b=1024$ rows. Each entry's error is at most
    $2^{-24}(b+4)\sqrt{S_{ii}S_{jj}}=6.2\cdot10^{-5}\sqrt{S_{ii}S_{jj}}$, plus the rounding of
    float64 (Higham 2002, section 3.1, with the rounding of the rows, and the inequality of Cauchy
    and Schwarz for the sum over the blocks). In each block every column is divided by a power of
    two near its largest entry, so that the bound holds for columns of any units.

    Args:
        total: Symmetric accumulator, float64.
        rows: $X$, float64, of a magnitude up to $2^{\pm470}$.
    """
    for block in rows.split(_BLOCK_ROWS) if len(rows) else ():
        exponent = torch.frexp(block.abs().amax(0)).exponent.clamp(min=-_LEAST_EXPONENT)
        narrow = (block * power_of_two(-exponent)).to(torch.float32)
        unit = power_of_two(exponent)
        with torch.autocast(rows.device.type, enabled=False):
            for low, high in _split_rows(rows.shape[1]):
                product = (narrow[:, low:high].mT @ narrow[:, low:]).to(torch.float64)
                total[low:high, low:] += product.mul_(unit[low:high, None]).mul_(unit[low:])


def without_zeros(rows: Float[Tensor, "n ..."], zero: Bool[Tensor, " n"]) -> Float[Tensor, "m ..."]:
    """Leave out rows that are known to be zero, and so add nothing to a Gram matrix.

    Args:
        rows: Rows of the product, or a number for each row.
        zero: True for the rows that are zero.

    Returns:
        The other rows, if leaving out saves time: copying them costs about an eighth of a product.
        On an accelerator always all rows, because their number would have to be read there.
    """
    if is_asynchronous(rows.device) or 8 * int(zero.sum()) < len(zero):
        return rows
    return rows[~zero]


def _split_rows(dim: int) -> list[tuple[int, int]]:
    """Return the rows of the upper blocks of a symmetric matrix, as ranges."""
    parts = 1 if dim < 256 else 4 if dim < 1024 else 8
    return list(pairwise(dim * i // parts for i in range(parts + 1)))


def mirror_upper(upper: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Return the symmetric matrix whose upper triangle is given."""
    whole = upper.clone()
    for low, high in _split_rows(len(upper)):
        corner = upper[low:high, low:high]
        whole[low:high, low:high] = corner.triu() + corner.triu(1).mT
        whole[high:, low:high] = upper[low:high, high:].mT
    return whole
