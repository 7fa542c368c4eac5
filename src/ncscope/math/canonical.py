r"""Squared canonical correlations between features and classes, without cancellation.

With $R\succeq0$ (the spread within classes), factor columns $C$ (the spread between them is
$CC^\top$) and $T=R+CC^\top$, the squared canonical correlations $\nu_j$ are the eigenvalues of
$C^\top T^\dagger C$. Near collapse every $\nu_j\to1$, and the quantity of interest is the residual
$F=I-C^\top T^\dagger C$: VCI, the probe loss, the MSE decomposition and the SNR are functions of
$F$. A subtraction from 1 would lose $F$ to rounding. Instead, for non-singular $R$,
$F=(I+C^\top R^{-1}C)^{-1}$; for singular $R$, the limit of this expression as $R+\epsilon I\to R$:
$F=N(I+N^\top C_R^\top R^\dagger C_RN)^{-1}N^\top$, with $C_R$ the part of $C$ inside the range of
$R$ and $N$ an orthonormal basis of the null space of the part outside it.

The range of $T$ is spanned by the range of $R$ and the part of $C$ outside it. The rank of $R$ is
decided at the scale of $R$ and coordinate by coordinate, never at the scale of $T$: near collapse
all of $R$ is below the rounding error of $T$, and the entries of a coordinate in small units are
below the rounding error of the other coordinates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.symmetric import (
    Eigen,
    Gram,
    PositiveDefinite,
    comparable_scales,
    positive_definite,
    rank_cut,
    rescale,
    symmetric_eigen,
)


@dataclass(frozen=True)
class Spread:
    r"""Spread within classes: $DRD$, with $D$ such that no coordinate is lost.

    Attributes:
        scales: Diagonal of $D$, powers of two; None if $D=I$.
        matrix: $DRD$.
        definite: Cholesky factor of $DRD$ if its full rank is beyond doubt, else None.
        variances: Diagonal of $R$.
    """

    scales: Float[Tensor, " d"] | None
    matrix: Float[Tensor, "d d"] | Gram
    definite: PositiveDefinite | None
    variances: Float[Tensor, " d"]

    @cached_property
    def eigen(self) -> Eigen:
        """Eigenpairs of $DRD$ above the cut. Cost: that of `symmetric_eigen`."""
        return symmetric_eigen(self.matrix)

    @cached_property
    def cut(self) -> float:
        """Value up to which an eigenvalue of $DRD$ counts as zero."""
        return rank_cut(self._largest_scaled, len(self.matrix))

    @cached_property
    def largest(self) -> Float[Tensor, ""]:
        r"""Largest eigenvalue of $R$; if $D\ne I$ the largest variance of a coordinate."""
        return self._largest_scaled if self.scales is None else self.variances.max()

    @cached_property
    def _largest_scaled(self) -> Float[Tensor, ""]:
        return self.eigen.spectrum[0] if self.definite is None else self.definite.largest


@dataclass(frozen=True)
class Canonical:
    r"""The residual of the canonical correlations of a pair $(R+\lambda I, C)$.

    $F=Y(Y^\top Y+O)^{-1}Y^\top$ with orthogonal columns $Y$, without $\lambda$ an orthonormal basis
    of the m combinations of columns whose $\nu<1$.

    Attributes:
        odds_root: $Z$ with $Z^\top Z=O$; without $\lambda$, the eigenvalues of $O$ are
            $\nu/(1-\nu)$; z x m.
        residual_root: $Y(Y^\top Y+O)^{-1/2}$, a root of $F$; q x m.
        rank: Number of directions kept in $T$.
        cut: Squared length above which a direction of $C$ outside the range of $R$ is kept.
        solve: Function that computes `spread_root` and `solution`, which few metrics need.
    """

    odds_root: Float[Tensor, "z m"]
    residual_root: Float[Tensor, "q m"]
    rank: int
    cut: float
    solve: Callable[[], tuple[Float[Tensor, "z q"], Float[Tensor, "d q"]]]

    @cached_property
    def _spread_root_and_solution(self) -> tuple[Float[Tensor, "z q"], Float[Tensor, "d q"]]:
        return self.solve()

    @property
    def spread_root(self) -> Float[Tensor, "z q"]:
        r"""Root $E=Z(Y^\top Y+O)^{-1}Y^\top$ of the predictions' spread within classes.

        With $B=T^\dagger C$, $E^\top E=B^\top(R+\lambda I)B=F-F^2$.
        """
        return self._spread_root_and_solution[0]

    @property
    def solution(self) -> Float[Tensor, "d q"]:
        r"""$B=T^\dagger C$."""
        return self._spread_root_and_solution[1]

    @property
    def residual(self) -> Float[Tensor, "q q"]:
        r"""$F=I-C^\top T^\dagger C$."""
        return self.residual_root @ self.residual_root.mT


def spread_within(within: Float[Tensor, "d d"] | Gram) -> Spread:
    r"""Decompose $R\succeq0$, singular or not.

    Args:
        within: $R$, symmetric positive semi-definite.

    Returns:
        $R$ after scaling up coordinates whose deviation is below $2^{-10}$ of the largest, with a
        Cholesky factor if the matrix has full rank beyond doubt. Otherwise `canonical` needs the
        eigenpairs above $\epsilon\,d\,\lambda_{max}$, which are computed when they are first read.
    """
    variances = within.diagonal()
    scales = comparable_scales(variances)
    matrix = rescale(within, scales)
    return Spread(scales, matrix, positive_definite(matrix), variances)


def canonical(
    spread: Spread,
    factor: Float[Tensor, "d q"],
    decay: float = 0.0,
    mean: Float[Tensor, " d"] | None = None,
    rounding: float = 0.0,
) -> Canonical:
    r"""Canonical residual of any $R\succeq0$, singular or not, and of $R+\lambda I$.

    Args:
        spread: Decomposition of $R$.
        factor: $C$, one direction a column; the columns must be orthogonal or nearly so. If they
            were dependent, the rounding error of $C^\top R^{-1}C$ would exceed the identity that is
            added to it.
        decay: $\lambda\ge0$; above 0 only for a spread with $D=I$.
        mean: $\mu$ of features that include a constant feature 1; requires a decay. $C$ then has
            one more row, of zeros, and one more column, $[\mu;1]$. The solution does not contain
            this row.
        rounding: Squared length of a column that rounding error alone may cause.

    Returns:
        The residual. The part of a direction of $C$ outside the range of $R$ is ignored if its
        squared length is at most ``rounding``, $(\epsilon\,d\lVert C\rVert_F)^2$ or
        $\epsilon\,d\,\lambda_{max}(R)$. Cost: products and QR factorisations; for a singular $R$
        possibly a singular value decomposition of d x q.

    With a Cholesky factor of $R$ and without a decay no eigenpairs are needed: an $R$ of full rank
    has no directions outside its range.

    Example:
        >>> r, c = torch.eye(2).double(), torch.tensor([[3.0], [0.0]]).double()
        >>> round(canonical(spread_within(r), c).residual.item(), 12)  # 1 / (1 + 9)
        0.1
    """
    assert decay == 0 or spread.scales is None
    assert mean is None or decay > 0
    if decay == 0 and spread.definite is not None:
        return _solve_full_rank(spread, spread.definite.root, factor, rounding)
    columns = factor if mean is None else torch.cat([factor, mean[:, None]], 1)
    scaled = columns if spread.scales is None else columns * spread.scales[:, None]
    vectors, roots = spread.eigen.vectors, (spread.eigen.values + decay).sqrt()[:, None]
    along = vectors.mT @ scaled
    whitened, beyond = along / roots, scaled - vectors @ along
    cut, q = _find_cut(spread, columns, rounding), factor.shape[1]
    axes, reach, combinations, finite = _find_outside(spread, beyond[:, :q], cut)
    # Without a decay, combinations with a part outside the range of R have infinite odds: they
    # leave no residual, and have no column in either root.
    outside, leaving = len(reach), finite[:0]
    if decay > 0:  # directions outside the range of R have finite odds, however small the decay
        finite = torch.cat([combinations * (decay**0.5 / reach), finite], 1)
        leaving = torch.eye(outside, q, device="cpu").to(factor)
    if mean is not None:
        across = axes.mT @ beyond[:, -1]
        rest = beyond[:, -1] - axes @ across
        # A rest that is only rounding error would get a weight as large as the constant feature's.
        rest = torch.where(rest.square().sum() > cut, rest, 0.0)
        constant = 1 + rest.square().sum()
        finite = torch.block_diag(finite, torch.full_like(finite[:1, :1], decay**0.5))
        leaving = torch.block_diag(leaving, constant.sqrt())
        leaving[:outside, -1] = across
    odds_root = torch.cat([whitened @ finite, leaving])
    lengths = torch.linalg.vector_norm(finite, dim=0)
    # QR of the root instead of Cholesky of the product: the product rounds at the scale of its
    # largest odds, and small odds would be lost.
    bases, root = torch.linalg.qr(torch.cat([odds_root, lengths.diag()]))
    half = torch.linalg.solve_triangular(root.mT, finite.mT, upper=False)
    spread_root = bases[: len(odds_root)] @ half
    inside = spread_root[: len(whitened)]
    solution = vectors @ (inside / roots)
    if spread.eigen.rank < len(factor):
        left = -whitened.mT @ inside - half.mT @ half
        left.diagonal().add_(1)
        escape = combinations.mT @ left[:q] / reach[:, None]
        if decay > 0:
            # Both expressions equal the solution. The first divides rounding errors by the length
            # of a direction, which may be tiny; the second divides them by the decay's root.
            by_decay = spread_root[len(whitened) :][:outside] / decay**0.5
            large = decay > reach.square()
            escape = torch.where(large[:, None], by_decay, escape)
        solution += axes @ escape
        if mean is not None:
            solution += torch.outer(rest, (left[-1] - across @ escape) / constant)
    if spread.scales is not None:
        solution *= spread.scales[:, None]
    return Canonical(
        odds_root, half.mT, spread.eigen.rank + outside, cut, lambda: (spread_root, solution)
    )


def _solve_full_rank(
    spread: Spread, root: Float[Tensor, "d d"], factor: Float[Tensor, "d q"], rounding: float
) -> Canonical:
    r"""Solve for an $R$ of full rank: with $LL^\top=R$, $F=(I+Z^\top Z)^{-1}$ for $Z=L^{-1}C$."""
    scaled = factor if spread.scales is None else factor * spread.scales[:, None]
    odds_root = torch.linalg.solve_triangular(root, scaled, upper=False)
    identity = torch.eye(factor.shape[1], device="cpu").to(factor)
    stacked = torch.cat([odds_root, identity])
    upper = torch.linalg.qr(stacked, mode="r").R  # not by Cholesky: see `canonical`
    half = torch.linalg.solve_triangular(upper.mT, identity, upper=False)

    def solve() -> tuple[Tensor, Tensor]:
        spread_root = torch.linalg.qr(stacked).Q[: len(odds_root)] @ half
        solution = torch.linalg.solve_triangular(root.mT, spread_root, upper=True)
        return spread_root, solution if spread.scales is None else solution * spread.scales[:, None]

    return Canonical(odds_root, half.mT, len(factor), _find_cut(spread, factor, rounding), solve)


def _find_outside(
    spread: Spread, beyond: Float[Tensor, "d q"], cut: float
) -> tuple[Float[Tensor, "d o"], Float[Tensor, " o"], Float[Tensor, "q o"], Float[Tensor, "q p"]]:
    """Find the combinations of the factor's columns that have a part outside the range of R.

    Args:
        spread: Decomposition of R.
        beyond: Part of the scaled factor outside the range of R.
        cut: Squared length, in the factor's own units, above which a part counts.

    Returns:
        Directions of the parts outside, orthonormal in the scaled coordinates; lengths of the
        parts; their combinations of columns, orthonormal; and an orthonormal basis of the
        combinations without a part outside.
    """
    d, q = beyond.shape
    identity = torch.eye(q, dtype=beyond.dtype, device=beyond.device)
    plain = beyond if spread.scales is None else beyond / spread.scales[:, None]
    if spread.eigen.rank == d or float(plain.square().sum()) <= cut:
        return beyond[:, :0], identity.new_zeros(0), identity[:, :0], identity
    vectors, lengths, combinations = torch.linalg.svd(beyond, full_matrices=q > d)
    # The cut is a squared length in the given units: scaling up a coordinate scales its error up.
    plain = vectors if spread.scales is None else vectors / spread.scales[:, None]
    squares = plain[:, : len(lengths)].square().sum(0) * lengths.square()
    leaving = torch.nn.functional.pad(squares > cut, (0, q - len(squares)))
    long = leaving[: len(lengths)]
    axes = vectors[:, : len(lengths)][:, long]
    return axes, lengths[long], combinations[leaving].mT, combinations[~leaving].mT


def _find_cut(spread: Spread, columns: Float[Tensor, "d q"], rounding: float) -> float:
    """Return the squared length above which the part of a column outside the range of R counts."""
    d = len(columns)
    noise = (torch.finfo(columns.dtype).eps * d) ** 2 * float(columns.square().sum())
    return max(rank_cut(spread.largest, d), noise, rounding)
