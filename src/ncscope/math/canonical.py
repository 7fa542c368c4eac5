r"""Squared canonical correlations between features and classes, without cancellation.

With $R\succeq0$ (the spread within classes), factor columns $C$ (the spread between them is
$CC^\top$) and $T=R+CC^\top$, the squared canonical correlations $\nu_j$ are the eigenvalues of
$C^\top T^\dagger C$. Near collapse every $\nu_j\to1$ and all that is interesting is the residual
$F=I-C^\top T^\dagger C$: VCI, the probe loss, the MSE decomposition and the SNR are functions of
it. Subtracting from 1 would lose it to rounding. Instead, for non-singular $R$,
$F=(I+C^\top R^{-1}C)^{-1}$; and where $R$ is singular, the limit of that as $R+\epsilon I\to R$:
$F=N(I+N^\top C_R^\top R^\dagger C_RN)^{-1}N^\top$, with $C_R$ the part of $C$ inside the range of
$R$ and $N$ an orthonormal basis of the null space of the part outside it.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.symmetric import Eigen, symmetric_eigen


@dataclass(frozen=True)
class Canonical:
    r"""The residual of the canonical correlations of a pair $(R, C)$.

    Attributes:
        finite: Orthonormal basis $N$ of the directions whose $\nu<1$, q x m.
        odds: $N^\top C_R^\top R^\dagger C_RN$, whose eigenvalues are $\nu/(1-\nu)$; m x m.
        solution: $T^\dagger C$, d x q.
        total: Eigenpairs of $T$; None where $R$ is known to be non-singular.
        within: Eigenpairs of $R$ inside the range of $T$; None likewise.
    """

    finite: Float[Tensor, "q m"]
    odds: Float[Tensor, "m m"]
    solution: Float[Tensor, "d q"]
    total: Eigen | None
    within: Eigen | None

    def residual_root(self) -> Float[Tensor, "q m"]:
        r"""A matrix $Z$ with $ZZ^\top=F$, from the Cholesky factor of $I+\text{odds}$."""
        lower = torch.linalg.cholesky(_plus_identity(self.odds))
        return torch.linalg.solve_triangular(lower, self.finite.mT, upper=False).mT

    def residual(self) -> Float[Tensor, "q q"]:
        r"""$F=I-C^\top T^\dagger C$."""
        root = self.residual_root()
        return root @ root.mT


def canonical(within: Float[Tensor, "d d"], factor: Float[Tensor, "d q"]) -> Canonical:
    r"""Canonical residual of any $R\succeq0$, singular or not.

    Args:
        within: $R$, symmetric positive semi-definite.
        factor: $C$, one column a direction.

    Returns:
        The residual, with directions of total spread below $\epsilon\,d\,\lambda_{max}(T)$ left
        out. Cost: two d x d eigen-decompositions.

    Example:
        >>> r, c = torch.eye(2).double(), torch.tensor([[3.0], [0.0]]).double()
        >>> round(canonical(r, c).residual().item(), 12)  # 1 / (1 + 9)
        0.1
    """
    total = symmetric_eigen(within + factor @ factor.mT)
    solution = total.vectors @ (total.vectors.mT @ factor / total.values[:, None])
    if total.rank < len(within):
        within = total.vectors.mT @ within @ total.vectors
        factor = total.vectors.mT @ factor
    eigen = symmetric_eigen(within)
    whitened = eigen.vectors.mT @ factor / eigen.values.sqrt()[:, None]
    finite = _finite_directions(eigen, factor)
    whitened = whitened @ finite
    return Canonical(finite, whitened.mT @ whitened, solution, total, eigen)


def canonical_regularised(within: Float[Tensor, "d d"], factor: Float[Tensor, "d q"]) -> Canonical:
    r"""Canonical residual of a non-singular $R$, by one Cholesky factorisation.

    Args:
        within: $R$, symmetric positive definite.
        factor: $C$, one column a direction.
    """
    lower = torch.linalg.cholesky(within)
    whitened = torch.linalg.solve_triangular(lower, factor, upper=False)
    odds = whitened.mT @ whitened
    root = torch.linalg.cholesky(_plus_identity(odds))
    ridge = torch.linalg.solve_triangular(lower.mT, whitened, upper=True)
    identity = torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device)
    return Canonical(identity, odds, torch.cholesky_solve(ridge.mT, root).mT, None, None)


def _finite_directions(within: Eigen, factor: Float[Tensor, "d q"]) -> Float[Tensor, "q m"]:
    """Combinations of the factor's columns that lie inside the range of R."""
    d, q = factor.shape
    outside = d - within.rank
    if outside == 0:
        return torch.eye(q, dtype=factor.dtype, device=factor.device)
    inside = within.vectors @ (within.vectors.mT @ factor)
    return torch.linalg.svd(factor - inside)[2][outside:].mT


def _plus_identity(matrix: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    return matrix + torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
