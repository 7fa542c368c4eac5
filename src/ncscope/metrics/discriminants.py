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
    # `centred` is a matrix of our own to write over.
    weighted = stats.centred.mul_(stats.prior.sqrt()[:, None])
    between, classes = factor_eigen(weighted.mT, full_rank(stats))
    factor = between.vectors * between.values.sqrt()
    return Discriminants(between, classes, factor, canonical(stats.within, factor))


def snr_singular_values(stats: ClassStatistics, found: Discriminants) -> Float[Tensor, " _m"]:
    r"""$\omega_j=\sqrt{K\nu_j/(1-\nu_j)}$, $\nu_j$ the squared canonical correlations.

    For balanced classes the singular values of the signal-to-noise matrix
    $\Sigma_W^{-1/2}\tilde M$ (MSE definition 2); for others those of
    $\Sigma_W^{-1/2}\tilde M\operatorname{diag}(\sqrt{K\pi})$, as in the MSE decomposition. Taken
    from the odds $\nu/(1-\nu)$ themselves, never from $1-\nu$.

    Returns:
        $\min(d,K-1)$ values, descending; infinite in directions without within-class variation.
        Invariant under every invertible linear map and shift of the features.
    """
    odds = torch.linalg.eigvalsh(found.canonical.odds).flip(0).clamp(min=0)
    directions, finite = found.canonical.finite.shape
    infinite = odds.new_full((directions - finite,), torch.inf)
    absent = odds.new_zeros(full_rank(stats) - directions)
    return torch.cat([infinite, (stats.k * odds).sqrt(), absent])
