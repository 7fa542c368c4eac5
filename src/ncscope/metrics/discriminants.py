"""The decompositions that NC1 and the MSE decomposition share, made once for all of them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.canonical import Canonical, canonical
from ncscope.math.symmetric import Eigen, factor_eigen
from ncscope.stats.statistics import ClassStatistics


@dataclass(frozen=True)
class Discriminants:
    r"""Between-class directions, and how far the classes are separated along them.

    With $A=[\sqrt{\pi_c}(\mu_c-\mu_G)]_c$, so that $\Sigma_B=AA^\top$:

    Attributes:
        between: Eigenpairs of $\Sigma_B$ above the cut, r of them.
        classes: Matching right singular vectors $V$ of $A$, k x r.
        factor: $C=AV$, d x r: $CC^\top=\Sigma_B$.
        canonical: Residual of the canonical correlations of $(\Sigma_W,C)$.
    """

    between: Eigen
    classes: Float[Tensor, "k r"]
    factor: Float[Tensor, "d r"]
    canonical: Canonical


def full_rank(stats: ClassStatistics) -> int:
    r"""The rank $\Sigma_B$ has in general position: $\min(d,K-1)$ (VCI definition 5.3)."""
    return min(stats.dim, stats.k - 1)


def discriminants(stats: ClassStatistics) -> Discriminants:
    """Decompose the between-class and within-class scatter.

    Args:
        stats: Statistics with the pooled within-class scatter.

    Cost: one eigen-decomposition of the smaller of k and d, two of d.
    """
    assert stats.within is not None
    weighted = (stats.centred * stats.prior.sqrt()[:, None]).mT
    between, classes = factor_eigen(weighted, full_rank(stats))
    factor = between.vectors * between.values.sqrt()
    return Discriminants(between, classes, factor, canonical(stats.within, factor))


def snr_singular_values(
    stats: ClassStatistics, found: Discriminants
) -> Float[Tensor, " min_d_k-1"]:
    r"""Singular values of $\Sigma_W^{-1/2}\tilde M$, the signal-to-noise matrix of the means.

    With balanced classes $\omega_j=\sqrt{K\nu_j/(1-\nu_j)}$, $\nu_j$ the eigenvalues of
    $\frac1K\tilde M^\top\Sigma_T^\dagger\tilde M$; computed from the odds $\nu/(1-\nu)$ themselves,
    never from $1-\nu$. Source: MSE definition 2.

    Returns:
        $\min(d,K-1)$ values, descending; infinite in directions without within-class variation.
        Invariant under every invertible linear map and shift of the features.
    """
    odds, finite = found.canonical.odds, found.canonical.finite
    unweighted = (found.classes.mT / stats.prior) @ found.classes
    metric = finite.mT @ torch.linalg.inv(unweighted) @ finite
    lower = torch.linalg.cholesky(metric)
    half = torch.linalg.solve_triangular(lower, odds, upper=False)
    whitened = torch.linalg.solve_triangular(lower, half.mT, upper=False)
    values = torch.linalg.eigvalsh(whitened).flip(0).clamp(min=0).sqrt()
    infinite = finite.shape[0] - finite.shape[1]
    missing = full_rank(stats) - finite.shape[0]
    return torch.cat([values.new_full((infinite,), torch.inf), values, values.new_zeros(missing)])
