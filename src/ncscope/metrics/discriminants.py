"""The decompositions that NC1 and the MSE decomposition share, made once for all of them."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.canonical import Canonical, Spread, canonical, spread_within
from ncscope.math.symmetric import (
    Eigen,
    comparable_scales,
    rank_cut,
    rescaled,
    symmetric_pairs,
)
from ncscope.stats.statistics import ClassStatistics

_ROUNDING = 32.0
_GRADED = 1e-4


@dataclass(frozen=True)
class Discriminants:
    r"""Between-class directions, and how far the classes are separated along them.

    With $A=[\sqrt{\pi_c}(\mu_c-\mu_G)]_c$, so that $\Sigma_B=AA^\top$. `between` is of the features
    as they are, because `fuzziness` and the signal space depend on their units. The rest is of the
    features in comparable units, $Dh$, which changes no quantity that is invariant under
    invertible maps, but keeps a feature in small units from drowning in the rounding of the others.

    Attributes:
        between: Eigenpairs of $\Sigma_B$ above the cut.
        scales: Diagonal of $D$, powers of two; None if $D=I$, as in ordinary layers.
        within: $D\Sigma_WD$.
        classes: Orthonormal basis $V$ of the class contrasts that the means can show, orthogonal to
            $[\sqrt{\pi_c}]_c$; k x r with r = min(d, k - 1), whatever the rank of $\Sigma_B$.
        factor: $C=DAV$, d x r, with nearly orthogonal columns: $CC^\top=D\Sigma_BD$.
        rounding: Squared rounding that the class means may carry in each coordinate of $Dh$.
        spread: Decomposition of $D\Sigma_WD$.
        canonical: Residual of the canonical correlations of $(D\Sigma_WD,C)$.
    """

    between: Eigen
    scales: Float[Tensor, " d"] | None
    within: Float[Tensor, "d d"]
    classes: Float[Tensor, "k r"]
    factor: Float[Tensor, "d r"]
    rounding: Float[Tensor, " d"]
    spread: Spread
    canonical: Canonical


def full_rank(stats: ClassStatistics) -> int:
    r"""Return $\Sigma_B$'s rank in general position: $\min(d,K-1)$ (VCI definition 5.3)."""
    return min(stats.dim, stats.k - 1)


def discriminants(stats: ClassStatistics) -> Discriminants:
    """Decompose the between-class and within-class scatter.

    Args:
        stats: Statistics with the pooled within-class scatter.

    Cost: one eigen-decomposition of the smaller of k and d, one of d; with features in units more
    than 1,000 apart, one more of the former.
    """
    assert stats.within is not None
    root = stats.prior.sqrt()
    # `centred` is a matrix of our own to write over.
    weighted = stats.centred.mul_(root[:, None])
    variances = stats.within.diagonal()
    total = variances + torch.linalg.vector_norm(weighted, dim=0).square()
    # Next to a variance that the rounding of the class means explains, those of the coordinate are
    # noise of like size, and would tell the classes apart at random.
    rounding = _rounding(stats)
    suspected = rounding.clamp(max=rank_cut(total.max(), stats.dim))
    constant, collapsed = total <= suspected, variances <= suspected
    weighted[:, constant] = 0
    scales = comparable_scales(total.masked_fill(constant, 0))
    _reflect_(weighted, root)
    between, classes, factor = _contrasts(weighted)
    if scales is not None:
        del classes, factor
        _, classes, factor = _contrasts(weighted.mul_(scales))
    _reflect_(classes, root)
    within = rescaled(stats.within, scales)
    if bool(collapsed.any()):
        within = within.masked_fill(collapsed | collapsed[:, None], 0)
    spread = spread_within(within)
    rounding = rounding if scales is None else rounding * scales.square()
    solved = canonical(spread, factor, rounding=float(rounding.sum()))
    return Discriminants(between, scales, within, classes, factor, rounding, spread, solved)


def _rounding(stats: ClassStatistics) -> Float[Tensor, " d"]:
    """Squared rounding that the class means of each coordinate may carry."""
    low, high = stats.means.aminmax(dim=0)
    unit = _ROUNDING * torch.finfo(low.dtype).eps * torch.maximum(-low, high)
    return unit.square() * stats.counts.max()


def _reflect_(rows: Float[Tensor, "k d"], root: Float[Tensor, " k"]) -> None:
    r"""Reflect the space of classes in place: $[\sqrt{\pi_c}]_c$ and the first axis swap places.

    The class contrasts are what is orthogonal to $[\sqrt{\pi_c}]_c$. Reflected, they are the rows
    but the first, which is set to zero by the first reflection and left zero until the second.
    """
    mirror = root.clone()
    mirror[0] += 1
    mirror /= torch.linalg.vector_norm(mirror)
    rows.addr_(mirror, mirror @ rows, alpha=-2)


def _contrasts(
    weighted: Float[Tensor, "k d"],
) -> tuple[Eigen, Float[Tensor, "k r"], Float[Tensor, "d r"]]:
    r"""Singular value decomposition of the weighted means, with a complete basis of contrasts.

    Args:
        weighted: $A^\top$ reflected; its first row is written over.

    Returns:
        Eigenpairs of $AA^\top$ above the cut; all min(d, k - 1) reflected contrasts $V$; and $AV$.
        A direction of contrasts below the cut is kept: next to a smaller spread within classes
        it may tell them apart.
    """
    weighted[0] = 0
    rows, d = weighted[1:], weighted.shape[1]
    wide = len(rows) > d
    # The first row is no contrast: it stays out of the matrix, where it would mix with others.
    spectrum, near = symmetric_pairs(rows.mT @ rows if wide else rows @ rows.mT)
    far = (weighted if wide else rows.mT) @ near
    lengths = torch.linalg.vector_norm(far, dim=0)
    cut = rank_cut(spectrum[0], d)
    kept = int((spectrum > cut).sum())
    values = lengths[:kept].square()
    left = near[:, :kept] if wide else far[:, :kept] / lengths[:kept]
    between = Eigen(values, left, torch.cat([values, spectrum[kept:]]), cut)
    if not wide:
        return between, torch.nn.functional.pad(near, (0, 0, 1, 0)), far
    if bool(lengths.min() > _GRADED * lengths.max()):
        return between, far.div_(lengths), near * lengths
    # Short columns carry the rounding of long ones, and are not orthogonal to them.
    right, triangle = torch.linalg.qr(far[1:])
    return between, torch.nn.functional.pad(right, (0, 0, 1, 0)), near @ triangle.mT


def snr_singular_values(
    stats: ClassStatistics, discriminants: Discriminants
) -> Float[Tensor, " _m"]:
    r"""$\omega_j=\sqrt{K\nu_j/(1-\nu_j)}$, $\nu_j$ the squared canonical correlations.

    For balanced classes the singular values of the signal-to-noise matrix
    $\Sigma_W^{-1/2}\tilde M$ (MSE definition 2); for others those of
    $\Sigma_W^{-1/2}\tilde M\operatorname{diag}(\sqrt{K\pi})$, as in the MSE decomposition. Taken
    from the odds $\nu/(1-\nu)$ themselves, never from $1-\nu$.

    Returns:
        $\min(d,K-1)$ values, descending; infinite in directions without within-class variation.
        Invariant under every invertible linear map and shift of the features.
    """
    values = torch.linalg.svdvals(discriminants.canonical.odds_root)
    directions, finite = discriminants.canonical.residual_root.shape
    infinite = values.new_full((directions - finite,), torch.inf)
    absent = values.new_zeros(finite - len(values))
    return torch.cat([infinite, stats.k**0.5 * values, absent])
