r"""Geometry of class means and classifier for classes of different sizes.

With vanishing weight decay, the minimisers of cross-entropy over free features do not form a
simplex but the geometry of "simplex-encoded labels interpolation" (SELI). With
$P=I-\frac1K\mathbf{11}^\top$, $D=\operatorname{diag}(n_c)$ and $A=PDP$ it is
$WW^\top\propto A^{1/2}$, $\tilde M^\top\tilde M\propto(A^\dagger)^{1/2}$ and $W\tilde M\propto P$.
For classes of one size it is the simplex.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ncscope.math.pairs import sum_over_pairs
from ncscope.math.powers import rescale_rows
from ncscope.math.symmetric import frobenius_of_gram
from ncscope.metrics.metric import metric

MOST_SIZES = 4096
"""Largest number of different class sizes for which the SELI geometry is computed."""

_TOO_MANY = f"there are more than {MOST_SIZES:,} different class sizes"
_TOO_FEW = "fewer than two classes are smaller than the median"
_SMALL = r"c\ne c',\,n_c,n_{c'}<\operatorname{med}n"

_FAR = 1e-3  # squared distance above which the subtraction keeps its digits
_CACHED = 2**17  # numbers of a block that is read and written many times
_BISECTIONS = 72  # a distance is at least 1 / (2 K) of the gap


@dataclass(frozen=True)
class SizeSpectrum:
    r"""Spectrum of $A=PDP$, by groups of classes of one size: m sizes $n_g$ of $k_g$ classes.

    Contrasts within a group are eigenvectors of the eigenvalue $n_g$. The other m - 1 eigenvectors
    are constant on each group.

    Attributes:
        group: Index of each class's size.
        sizes: $n_g$, ascending.
        members: $k_g$.
        values: Eigenvalues whose vectors are constant on each group, ascending.
        vectors: Orthonormal coordinates of these vectors, in the basis $\mathbf1_g/\sqrt{k_g}$.
    """

    group: Int[Tensor, " k"]
    sizes: Float[Tensor, " m"]
    members: Float[Tensor, " m"]
    values: Float[Tensor, " r"]
    vectors: Float[Tensor, "m r"]


def size_spectrum(counts: Int[Tensor, " k"]) -> SizeSpectrum | None:
    r"""Compute the eigenvalues and eigenvectors of $A=PDP$ by groups of classes of one size.

    An eigenvector constant on each group has the coordinates $\sqrt{k_g}/(n_g-\lambda)$, where
    $\sum_gk_g/(n_g-\lambda)=0$. There is one such $\lambda$ between any two neighbouring sizes.
    It is computed by bisection as its distance from the nearer size, which keeps the digits of all
    differences $n_g-\lambda$; a general eigen-decomposition would keep those of large values only.

    Args:
        counts: $n_c$.

    Returns:
        The spectrum; None for more than 4,096 different sizes. Cost: $200m^2$ operations.
    """
    sizes, group, members = counts.unique(return_inverse=True, return_counts=True)
    if len(sizes) > MOST_SIZES:
        return None
    sizes, members = sizes.to(torch.float64), members.to(torch.float64)
    blocks = [_between_sizes(sizes, members, part) for part in _in_cache(len(sizes) - 1)]
    values, vectors = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return SizeSpectrum(group, sizes, members, values, vectors.mT)


def _in_cache(m: int) -> Iterator[slice]:
    """Split 0..m-1 into slices of rows of length m + 1 that stay in the cache; at least one."""
    step = max(1, _CACHED // (m + 1))
    return (slice(start, start + step) for start in range(0, max(m, 1), step))


def _between_sizes(
    sizes: Float[Tensor, " m"], members: Float[Tensor, " m"], part: slice
) -> tuple[Float[Tensor, " j"], Float[Tensor, "j m"]]:
    """Return the eigenvalues above some of the sizes, and their vectors, one a row."""
    lower, upper = sizes[:-1][part], sizes[1:][part]
    half = (upper - lower) / 2

    def balance(apart: Tensor, offset: Tensor) -> Tensor:  # it grows with the offset
        return (apart - offset[:, None]).reciprocal_() @ members

    near_lower = balance(sizes - lower[:, None], half) >= 0
    origin = torch.where(near_lower, lower, upper)
    low, high = torch.where(near_lower, 0.0, -half), torch.where(near_lower, half, 0.0)
    apart = sizes - origin[:, None]
    for _ in range(_BISECTIONS if len(lower) else 0):
        middle = (low + high) / 2
        beyond = balance(apart, middle) >= 0
        low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
    offset = (low + high) / 2
    vectors = members.sqrt() / (apart - offset[:, None])
    return origin + offset, vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)


@metric(
    key="minority_cosine_means",
    group="nc2",
    meaning=(
        "Average cosine between the centred class means of the classes smaller than the "
        "median class: near 1 if the small classes have merged."
    ),
    formula=rf"\operatorname{{avg}}_{{{_SMALL}}}\cos(\tilde\mu_c,\tilde\mu_{{c'}})",
    source="Fang et al. 2021",
    reads=("stats.frame", "stats.counts"),
    low=-1.0,
    high=1.0,
    zero="means of small classes are on average orthogonal",
    at_collapse=lambda k: -1 / (k - 1),
    two_sided=True,
    undefined=f"{_TOO_FEW}, or a centred class mean of these is zero",
)
@metric(
    key="minority_cosine_weights",
    group="nc2",
    meaning=(
        "Average cosine between the classifier's rows of the classes smaller than the median "
        "class: near 1 if the small classes have merged."
    ),
    formula=rf"\operatorname{{avg}}_{{{_SMALL}}}\cos(w_c,w_{{c'}})",
    source="Fang et al. 2021",
    reads=("present_weight", "stats.counts"),
    needs={"head"},
    low=-1.0,
    high=1.0,
    zero="classifier rows of small classes are on average orthogonal",
    at_collapse=lambda k: -1 / (k - 1),
    two_sided=True,
    undefined=f"{_TOO_FEW}, or a row of the classifier of these is zero",
    chance_level=False,
)
def minority_cosine(vectors: Float[Tensor, "k d"], counts: Int[Tensor, " k"]) -> Float[Tensor, ""]:
    r"""Compute the mean cosine between the vectors of the classes smaller than the median size.

    1: the small classes share one direction (minority collapse). Computed from
    $\lVert\sum_{c\in S}\hat v_c\rVert^2$ of these classes S, in $Kd$ operations; its rounding error
    is $\epsilon/\lvert S\rvert$.
    """
    chosen, length = rescale_rows(vectors[_below_median(counts)])
    m = len(chosen)
    if m < 2:
        return vectors.new_tensor(torch.nan)
    whole = (1 / length) @ chosen
    return ((whole.square().sum() - m) / (m * (m - 1))).clamp(min=-1, max=1)


@metric(
    key="seli_means",
    group="nc2",
    meaning=(
        "Distance of the class means' normalised Gram matrix from the geometry that classes "
        "of these sizes reach as the weight decay vanishes."
    ),
    formula=(
        r"\Bigl\lVert\frac{\tilde M^\top\tilde M}{\lVert\tilde M^\top\tilde M\rVert_F}-"
        r"\frac{(A^\dagger)^{1/2}}{\lVert(A^\dagger)^{1/2}\rVert_F}\Bigr\rVert_F,\;"
        r"A=P\operatorname{diag}(n_c)P,\,P=I-\frac1K\mathbf 1\mathbf 1^\top"
    ),
    source="Thrampoulidis et al. 2022",
    reads=("stats.frame", "size_spectrum"),
    high=2**0.5,
    zero="centred class means form the SELI geometry; for equal sizes a simplex ETF",
    for_two_classes=0.0,
    undefined=f"the class means coincide, or {_TOO_MANY}",
)
def seli_means(frame: Float[Tensor, "k d"], spectrum: SizeSpectrum | None) -> Float[Tensor, ""]:
    r"""Compute the distance of the Gram matrix from $(A^\dagger)^{1/2}$, both scaled to norm 1.

    Args:
        frame: Class means centred by their unweighted mean.
        spectrum: Spectrum of $A$.

    The class means of the embeddings of Thrampoulidis et al. are $\tilde M=D^{-1}$ times their
    sums. Invariances and cost: as `seli_weights`.
    """
    return _distance(frame, spectrum, power=-0.5)


@metric(
    key="seli_weights",
    group="nc2",
    meaning=(
        "Distance of the normalised Gram matrix of the classifier's rows from the geometry "
        "that classes of these sizes reach as the weight decay vanishes."
    ),
    formula=(
        r"\Bigl\lVert\frac{WW^\top}{\lVert WW^\top\rVert_F}-"
        r"\frac{A^{1/2}}{\lVert A^{1/2}\rVert_F}\Bigr\rVert_F,\;"
        r"A=P\operatorname{diag}(n_c)P,\,P=I-\frac1K\mathbf 1\mathbf 1^\top"
    ),
    source="Thrampoulidis et al. 2022",
    reads=("present_weight", "size_spectrum"),
    needs={"head"},
    high=2**0.5,
    zero="classifier rows form the SELI geometry; for equal sizes a simplex ETF",
    undefined=f"the classifier is zero, or {_TOO_MANY}",
    chance_level=False,
)
def seli_weights(weight: Float[Tensor, "k d"], spectrum: SizeSpectrum | None) -> Float[Tensor, ""]:
    r"""Compute the distance of the rows' Gram matrix from $A^{1/2}$, both scaled to norm 1.

    Args:
        weight: $W$, rows of the classes present.
        spectrum: Spectrum of $A$.

    Invariant under rotation and scaling, and under a common factor of the class sizes. Cost: $K^2d$
    operations in blocks; for $K>2d$ $2Kd^2+m^2d$.
    """
    return _distance(weight, spectrum, power=0.5)


def _below_median(counts: Int[Tensor, " k"]) -> Bool[Tensor, " k"]:
    """Return which counts are below the median, the mean of the middle two of an even number."""
    ordered, k = counts.sort().values, len(counts)
    return 2 * counts < ordered[(k - 1) // 2] + ordered[k // 2]


def _distance(
    vectors: Float[Tensor, "k d"], spectrum: SizeSpectrum | None, power: float
) -> Float[Tensor, ""]:
    """Compute the distance of the Gram matrix from a power of A, both scaled to norm 1."""
    if spectrum is None:
        return vectors.new_tensor(torch.nan)
    k, d = vectors.shape
    target, size = _PowerOfA(spectrum, power), frobenius_of_gram(vectors)
    squares = torch.linalg.vector_norm(vectors, dim=1).square()
    if k > 2 * d:  # The rank of the Gram matrix keeps it far, unless a few classes are all there is
        apart = 2 - 2 * target.inner(vectors, squares) / size
        if not bool(apart < _FAR):
            return apart.sqrt()
    group, within, between = spectrum.group, target.within, target.between

    def term(gram: Tensor, rows: slice, cols: slice) -> Tensor:
        return gram.div_(size).sub_(between[group[rows, None], group[cols]]).square_()

    diagonal = squares / size - (within + between.diagonal())[group]
    return (2 * sum_over_pairs(vectors, term) + diagonal.square().sum()).sqrt()


class _PowerOfA:
    r"""Power of $A$, or of $A^\dagger$, scaled to Frobenius norm 1.

    The entry of classes i and j, of groups g and h, is $b_{gh}$, and $a_g+b_{gg}$ for i = j.

    Attributes:
        within: $a_g$, the power of the sizes.
    """

    def __init__(self, spectrum: SizeSpectrum, power: float) -> None:
        """Scale a power.

        Args:
            spectrum: Spectrum of $A$.
            power: Exponent; negative for a power of the pseudo-inverse.
        """
        within, values = spectrum.sizes**power, spectrum.values**power
        size = ((spectrum.members - 1) @ within.square() + values.square().sum()).sqrt()
        self._spectrum, self.within, self._values = spectrum, within / size, values / size

    @property
    def between(self) -> Float[Tensor, "m m"]:
        """$b_{gh}$. Cost: $m^3$ operations."""
        members = self._spectrum.members
        constant = self._spectrum.vectors / members.sqrt()[:, None]
        between = (constant * self._values) @ constant.mT
        between.diagonal().sub_(self.within / members)
        return between

    def inner(
        self, vectors: Float[Tensor, "k d"], squares: Float[Tensor, " k"]
    ) -> Float[Tensor, ""]:
        """Compute the inner product with a Gram matrix. Cost: $2Kd+2m^2d$ operations.

        Args:
            vectors: Vectors of the Gram matrix, one a row.
            squares: Their squared lengths.
        """
        group, members = self._spectrum.group, self._spectrum.members
        sums = vectors.new_zeros(len(members), vectors.shape[1]).index_add_(0, group, vectors)
        sums /= members.sqrt()[:, None]
        contrasts = self.within[group] @ squares - self.within @ sums.square().sum(1)
        return contrasts + self._values @ (self._spectrum.vectors.mT @ sums).square().sum(1)
