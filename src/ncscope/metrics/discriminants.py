"""Decompositions of the scatter matrices, shared by NC1 and the MSE decomposition."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.canonical import Canonical, Spread, canonical, spread_within
from ncscope.math.pairs import row_blocks
from ncscope.math.symmetric import (
    Eigen,
    Gram,
    comparable_scales,
    energies,
    rank_cut,
    rescale,
    symmetric_pairs,
    without_coordinates,
)
from ncscope.stats.statistics import ClassStatistics

_ROUNDING = 32.0
_GRADED = 1e-4


@dataclass(frozen=True)
class Discriminants:
    r"""Between-class directions, and the separation of the classes along them.

    With $A=[\sqrt{\pi_c}(\mu_c-\mu_G)]_c$, $\Sigma_B=AA^\top$. `between` is for the given features,
    because `fuzziness` and the signal space depend on their units. The other attributes are for the
    features in comparable units, $Dh$. This changes no quantity that is invariant under invertible
    maps, but without it a feature in small units would be lost in the rounding of the others.

    Attributes:
        between: Eigenpairs of $\Sigma_B$ above the cut.
        scales: Diagonal of $D$, powers of two; None if $D=I$, as in ordinary layers.
        within: $D\Sigma_WD$.
        classes: Orthonormal basis $V$ of the class contrasts that the means can show, orthogonal to
            $[\sqrt{\pi_c}]_c$; k x r with r = min(d, k - 1) for any rank of $\Sigma_B$.
        factor: $C=DAV$, d x r, with nearly orthogonal columns: $CC^\top=D\Sigma_BD$.
        rounding: Squared rounding error of the class means in each coordinate of $Dh$.
        given: $\Sigma_W$ of the given features.
    """

    between: Eigen
    scales: Float[Tensor, " d"] | None
    within: Float[Tensor, "d d"] | Gram
    classes: Float[Tensor, "k r"]
    factor: Float[Tensor, "d r"]
    rounding: Float[Tensor, " d"]
    given: Float[Tensor, "d d"] | Gram

    @cached_property
    def spread(self) -> Spread:
        r"""Decomposition of $D\Sigma_WD$."""
        return spread_within(self.within)

    @cached_property
    def canonical(self) -> Canonical:
        r"""Residual of the canonical correlations of $(D\Sigma_WD,C)$.

        Cost: for a scatter within classes that is singular, nearly so, or small, one
        eigen-decomposition of size d; else a factorisation. Only metrics that invert the total
        scatter need it.
        """
        return canonical(self.spread, self.factor, rounding=float(self.rounding.sum()))

    @cached_property
    def within_along(self) -> Float[Tensor, " r"]:
        """Within-class variance along each eigenvector of `between`. Cost: that of `energies`."""
        return energies(self.given, self.between.vectors).clamp(min=0)


def full_rank(stats: ClassStatistics) -> int:
    r"""Return $\Sigma_B$'s rank in general position: $\min(d,K-1)$ (VCI definition 5.3)."""
    return min(stats.dim, stats.k - 1)


def discriminants(stats: ClassStatistics) -> Discriminants:
    """Decompose the between-class and within-class scatter.

    Args:
        stats: Statistics with the pooled within-class scatter.

    Cost: one eigen-decomposition of size min(k, d); for features in units that differ by more than
    1,000, one more.
    """
    assert stats.scatter is not None
    root = stats.prior.sqrt()
    # `centred` returns a new matrix, which may be overwritten.
    weighted = stats.centred.mul_(root[:, None])
    variances = stats.scatter.diagonal()
    total = variances + torch.linalg.vector_norm(weighted, dim=0).square()
    # If the rounding of the class means explains the variance within classes of a coordinate, the
    # differences of its means are noise of the same size, and would separate classes at random.
    rounding = mean_rounding(stats)
    noise = rounding.clamp(max=rank_cut(total.max(), stats.dim))
    constant, collapsed = total <= noise, variances <= noise
    weighted[:, constant] = 0
    scales = comparable_scales(total.masked_fill(constant, 0))
    _reflect_(weighted, root)
    between, classes, factor = _decompose_contrasts(weighted, overwrite=scales is None)
    if scales is not None:
        del classes, factor  # k x r and d x r, before their successors are allocated
        _, classes, factor = _decompose_contrasts(weighted.mul_(scales), overwrite=True)
    _reflect_(classes, root)
    within = rescale(stats.scatter, scales)
    if bool(collapsed.any()):
        within = without_coordinates(within, collapsed)
    rounding = rounding if scales is None else rounding * scales.square()
    return Discriminants(between, scales, within, classes, factor, rounding, stats.scatter)


def mean_rounding(stats: ClassStatistics) -> Float[Tensor, " d"]:
    """Return the squared rounding error of the class means in each coordinate."""
    low, high = stats.means.amin(0), stats.means.amax(0)  # aminmax takes far longer on a CPU
    unit = _ROUNDING * torch.finfo(low.dtype).eps * torch.maximum(-low, high)
    return unit.square() * stats.counts.max()


def _reflect_(rows: Float[Tensor, "k d"], root: Float[Tensor, " k"]) -> None:
    r"""Reflect the space of classes in place, exchanging $[\sqrt{\pi_c}]_c$ and the first axis.

    The class contrasts are orthogonal to $[\sqrt{\pi_c}]_c$. After the reflection they are all rows
    but the first, which stays zero until the second reflection.
    """
    mirror = root.clone()
    mirror[0] += 1
    mirror /= torch.linalg.vector_norm(mirror)
    rows.addr_(mirror, mirror @ rows, alpha=-2)


def _decompose_contrasts(
    weighted: Float[Tensor, "k d"], *, overwrite: bool
) -> tuple[Eigen, Float[Tensor, "k r"], Float[Tensor, "d r"]]:
    r"""Decompose the weighted means by singular values, with a complete basis of contrasts.

    Args:
        weighted: $A^\top$ after `_reflect_`; its first row, near 0, is set to 0 in place.
        overwrite: True if the rest may be overwritten too, which saves a k x d matrix.

    Returns:
        Eigenpairs of $AA^\top$ above the cut; all min(d, k - 1) reflected contrasts $V$; and $AV$.
        Directions below the cut are kept too: if the spread within classes is smaller still, such a
        direction separates classes.
    """
    weighted[0] = 0
    rows, d = weighted[1:], weighted.shape[1]
    wide = len(rows) > d
    # Without the first row, which is no contrast: as a null vector of the matrix it could mix with
    # contrasts of length zero.
    spectrum, near = symmetric_pairs(rows.mT @ rows if wide else rows @ rows.mT)
    if wide:
        far = weighted if overwrite else weighted.clone()
        for block in row_blocks(*far.shape):  # in place: no second k x d matrix
            far[block] = far[block] @ near
    else:
        far = rows.mT @ near
    lengths = torch.linalg.vector_norm(far, dim=0)
    cut = rank_cut(spectrum[0], d)
    rank = int((spectrum > cut).sum())
    # The lengths are the singular values to small relative errors; the errors of the square roots
    # of the eigenvalues are relative to the largest.
    values = lengths[:rank].square()
    left = near[:, :rank] if wide else far[:, :rank] / lengths[:rank]
    between = Eigen(values, left, torch.cat([values, spectrum[rank:]]), cut)
    if not wide:
        return between, torch.nn.functional.pad(near, (0, 0, 1, 0)), far
    if bool(lengths.min() > _GRADED * lengths.max()):
        return between, far.div_(lengths), near * lengths
    # Short columns have rounding errors of the size of long ones, and are not orthogonal to them.
    right, triangle = torch.linalg.qr(far[1:])
    return between, torch.nn.functional.pad(right, (0, 0, 1, 0)), near @ triangle.mT


def snr_singular_values(
    stats: ClassStatistics, discriminants: Discriminants
) -> Float[Tensor, " _m"]:
    r"""$\omega_j=\sqrt{K\nu_j/(1-\nu_j)}$, $\nu_j$ the squared canonical correlations.

    For balanced classes these are the singular values of the signal-to-noise matrix
    $\Sigma_W^{-1/2}\tilde M$ (MSE definition 2); for other classes, of
    $\Sigma_W^{-1/2}\tilde M\operatorname{diag}(\sqrt{K\pi})$, as in the MSE decomposition. They are
    computed from the odds $\nu/(1-\nu)$ without forming $1-\nu$, which would cancel.

    Returns:
        $\min(d,K-1)$ values, descending; infinite in directions without within-class variation.
        Invariant under every invertible linear map and shift of the features.
    """
    values = torch.linalg.svdvals(discriminants.canonical.odds_root)
    directions, finite = discriminants.canonical.residual_root.shape
    infinite = values.new_full((directions - finite,), torch.inf)
    absent = values.new_zeros(finite - len(values))
    return torch.cat([infinite, stats.k**0.5 * values, absent])
