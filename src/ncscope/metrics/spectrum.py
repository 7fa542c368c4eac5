r"""Spectra of the features: how many directions they use, with or without labels.

The covariance is $\Sigma_T=\Sigma_W+\Sigma_B$ under the class prior. With the empirical prior it is
the plain covariance of the samples, and labels change nothing. With the uniform prior every class
has the same weight: the values are those of a population whose classes are equally frequent, and
can be compared between samples of other class sizes. Without labels there is no prior to choose.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.canonical import Spread, spread_within
from ncscope.math.powers import STREAM_LIMIT
from ncscope.math.symmetric import Gram, plus_gram, rank_cut, spectrum_of
from ncscope.metrics.discriminants import Discriminants, mean_rounding
from ncscope.metrics.metric import metric
from ncscope.metrics.mse import ridge_units
from ncscope.stats.statistics import ClassStatistics

_CONSTANT = "the features do not vary"

RIDGE = 1e-4
r"""Ridge $\delta$ of LiDAR, in the squared unit of the features.

For Thilak et al. it is a small positive constant. stable-pretraining adds 1e-4, as here; reptrix
adds 1e-6 to a scatter that is summed, not averaged, over the views of an image.
"""

FEWEST_EIGENVALUES = 3
"""Least number of eigenvalues to which a power law is fitted."""

BLOCKED_ERROR = 2.0**-24 * 1028
"""Bound on the error of a scatter's entry ij over the root of its entries ii and jj, if the
products run in float32 by blocks; see `ClassMoments`."""

_WELL_CONDITIONED = 2.0**-20
_FLOAT32_PASS = 2.0**-42
_EQUAL = 1e-12  # deviation of logarithms that rounding explains


@dataclass(frozen=True)
class Covariance:
    r"""Covariance of the samples, with a root of it that keeps small singular values.

    The eigenvalues of a matrix are computed to $\epsilon\lambda_{max}$, so small singular values,
    which are their roots, would keep half of the digits: none beside a large common offset or near
    collapse. Where the eigenvalues spread by more than $2^{20}$, singular values of the stacked
    roots are computed instead, $[\Sigma_W^{1/2};A^\top;\mu^\top]$ with $\Sigma_B=AA^\top$.

    Attributes:
        matrix: $\Sigma_T$, or its rows; zero if rounding of the means explains it.
        mean: Mean $\mu$ of the samples, under the prior.
        root: Function that returns a root $R$, m x d, with $R^\top R=\Sigma_T$.
        rounded: $\Sigma_W$, if its products ran in float32; else None.
    """

    matrix: Float[Tensor, "d d"] | Gram
    mean: Float[Tensor, " d"]
    root: Callable[[], Float[Tensor, "m d"]]
    rounded: Float[Tensor, "d d"] | None = None

    @cached_property
    def eigenvalues(self) -> Float[Tensor, " d"]:
        r"""Eigenvalues of $\Sigma_T$, descending and at least 0."""
        return self._drop_lost(_eigenvalues(self.matrix, self.root))

    @cached_property
    def singular_values(self) -> Float[Tensor, " d"]:
        r"""Singular values of the features, which are not centred, over $\sqrt n$, descending."""
        gram = plus_gram(self.matrix, self.mean[None])
        squares = _eigenvalues(gram, lambda: torch.cat([self.root(), self.mean[None]]))
        return self._drop_lost(squares).sqrt()

    @cached_property
    def error(self) -> float:
        r"""Eigenvalue that products in float32 do not resolve, $6.2\cdot10^{-5}$ of the largest.

        The bound on the entries, taken for the eigenvalues of $\Sigma_W$. Their errors are
        $2\cdot10^{-8}$ to $3\cdot10^{-6}$ of the largest one in practice, so what is left is good
        to a few percent. Without the cut, dependent features have a tail of noise.
        """
        if self.rounded is None:
            return 0.0
        return BLOCKED_ERROR * float(torch.linalg.eigvalsh(self.rounded)[-1])

    @property
    def num_lost(self) -> int:
        """Number of eigenvalues that are 0 because products in float32 do not resolve them."""
        if not self.error:
            return 0
        constant = self.matrix.diagonal() == 0  # of these, 0 is exact
        return int((self.eigenvalues == 0).sum() - constant.sum())

    def _drop_lost(self, values: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        return values.where(values > self.error, 0.0) if self.error else values

    @property
    def cut(self) -> float:
        r"""Value up to which an eigenvalue counts as zero, $\max(\epsilon d,2^{-42})\lambda_{max}$.

        A layer normalisation fixes a combination of the features, which then varies by the rounding
        of a float32 pass alone, in networks that we tried by up to a tenth of that cut. Eigenvalues
        so small are left out of features in float64 too, which may come from such a pass.
        """
        largest = self.eigenvalues[0]
        return max(self.error, rank_cut(largest, len(self.matrix)), _FLOAT32_PASS * float(largest))

    @property
    def rank(self) -> int:
        """Number of eigenvalues above the cut."""
        return int((self.eigenvalues > self.cut).sum())


def covariance_between(stats: ClassStatistics, discriminants: Discriminants) -> Covariance:
    r"""Return the covariance of labelled samples, $\Sigma_W+\Sigma_B$.

    Args:
        stats: Statistics with the pooled within-class scatter.
        discriminants: Decompositions of the scatter.
    """
    assert stats.scatter is not None
    factor = _divide_by_scales(discriminants.factor.mT, discriminants.scales)

    def root() -> Float[Tensor, "m d"]:
        within = _divide_by_scales(_root_of(discriminants.spread), discriminants.scales)
        return torch.cat([within, factor])

    return _covariance_or_zero(stats, plus_gram(stats.scatter, factor), root)


def covariance_within(stats: ClassStatistics) -> Covariance:
    """Return the covariance of unlabelled samples, which are statistics of one class."""
    within = stats.scatter
    assert within is not None
    return _covariance_or_zero(stats, within, lambda: _root_of(spread_within(within)))


def _covariance_or_zero(
    stats: ClassStatistics, matrix: Float[Tensor, "d d"] | Gram, root: Callable[[], Tensor]
) -> Covariance:
    """Return the covariance; zero where the samples differ by no more than rounding."""
    mean = stats.global_mean
    if bool(matrix.diagonal().sum() <= mean_rounding(stats).sum()):
        nothing = mean.new_zeros(0, len(mean))
        return Covariance(Gram(nothing), mean, lambda: nothing)
    return Covariance(matrix, mean, root, stats.within if stats.blocked else None)


def _root_of(spread: Spread) -> Float[Tensor, "r d"]:
    """Return rows whose Gram matrix is the spread within classes."""
    if spread.definite is not None:
        return _divide_by_scales(spread.definite.root.mT, spread.scales)
    eigen = spread.eigen
    return _divide_by_scales((eigen.vectors * eigen.values.sqrt()).mT, spread.scales)


def _divide_by_scales(
    rows: Float[Tensor, "m d"], scales: Float[Tensor, " d"] | None
) -> Float[Tensor, "m d"]:
    return rows if scales is None else rows / scales


def _eigenvalues(
    gram: Float[Tensor, "d d"] | Gram, root: Callable[[], Float[Tensor, "m d"]]
) -> Float[Tensor, " d"]:
    """Return the eigenvalues of a Gram matrix, from its root if they differ by far."""
    if isinstance(gram, Gram):
        return spectrum_of(gram)
    dim, alive = len(gram), gram.diagonal() > 0
    if not bool(alive.all()):  # units that are always 0 make no well-conditioned matrix singular
        gram = gram[alive][:, alive]
    values = torch.linalg.eigvalsh(gram).flip(0).clamp(min=0)
    if bool((values[-1:] < _WELL_CONDITIONED * values[:1]).any()):
        values = torch.linalg.svdvals(root()).square()
    return torch.nn.functional.pad(values, (0, dim - len(values)))


@metric(
    key="rankme",
    group="spectra",
    meaning=(
        "Number of directions that the features use, counted by the entropy of their singular "
        "values; the features are not centred. The value at collapse is that of features whose "
        "mean is zero."
    ),
    formula=(r"\exp\Bigl(-\sum_ip_i\log p_i\Bigr),\quad p_i=\frac{\sigma_i(H)}{\sum_j\sigma_j(H)}"),
    source="Garrido et al. 2023",
    needs={"scatter"},
    needs_classes=False,
    low=1.0,
    at_collapse=lambda k: k - 1.0,
    two_sided=True,
    undefined="all features are zero",
    chance_level=False,
)
def rankme(covariance: Covariance) -> Float[Tensor, ""]:
    r"""Exponentiate the entropy of the singular values of the features, which are not centred.

    Without the $10^{-7}$ that Garrido et al. add to every $p_i$: the entropy grows by about
    $10^{-7}(-1-\log p_i)$ for each direction with $p_i\gg10^{-7}$, and
    by $1.6\cdot10^{-6}$ for each one with $\sigma_i=0$. In 2,048 dimensions the value grows by
    0.1 % if all directions are alike, and by 0.3 % if most are empty. At most $\min(n,d)$; 1: all
    features on one line through the origin. Invariant under rotation and isotropic scaling, not
    under a shift. A singular value below about
    $2\cdot10^{-8}\sqrt d$ of the largest one of the spread within classes counts as zero.
    """
    return _exponential_entropy(covariance.singular_values)


@metric(
    key="effective_rank_features",
    group="spectra",
    meaning=(
        "Number of directions along which the features vary, counted by the entropy of their "
        "covariance's eigenvalues."
    ),
    formula=(
        r"\exp\Bigl(-\sum_ip_i\log p_i\Bigr),\quad"
        r" p_i=\frac{\lambda_i(\Sigma_T)}{\sum_j\lambda_j(\Sigma_T)}"
    ),
    source="Roy and Vetterli 2007",
    needs={"scatter"},
    needs_classes=False,
    low=1.0,
    at_collapse=lambda k: k - 1.0,
    two_sided=True,
    undefined=_CONSTANT,
    chance_level=False,
)
def effective_rank_features(covariance: Covariance) -> Float[Tensor, ""]:
    r"""Exponentiate the entropy of the eigenvalues of $\Sigma_T$.

    The definition 2 of Roy and Vetterli, for the covariance. At most $\min(n-1,d)$; 1: the features
    vary along one line. Invariant under rotation, shift and isotropic scaling.
    """
    return _exponential_entropy(covariance.eigenvalues)


@metric(
    key="participation_ratio",
    group="spectra",
    meaning=(
        "Number of directions along which the features vary, counted by the squares of their "
        "covariance's eigenvalues: large ones count most."
    ),
    formula=r"\frac{\bigl(\sum_i\lambda_i\bigr)^2}{\sum_i\lambda_i^2}",
    source="Gao et al. 2017",
    needs={"scatter"},
    needs_classes=False,
    low=1.0,
    at_collapse=lambda k: k - 1.0,
    two_sided=True,
    undefined=_CONSTANT,
    chance_level=False,
)
def participation_ratio(covariance: Covariance) -> Float[Tensor, ""]:
    r"""Divide the squared sum of the eigenvalues of $\Sigma_T$ by the sum of their squares.

    At most `effective_rank_features`; 1: the features vary along one line. Invariant under
    rotation, shift and isotropic scaling.
    """
    values = covariance.eigenvalues
    return (values.sum().square() / values.square().sum()).clamp(min=1)


@metric(
    key="alpha_req",
    group="spectra",
    meaning=(
        "Exponent of the power law by which the covariance's eigenvalues decay with their "
        "index, fitted to all that are not zero."
    ),
    formula=(
        r"\alpha=-\frac{\sum_i(\log i-\overline{\log i})\log\lambda_i}"
        r"{\sum_i(\log i-\overline{\log i})^2},\quad\lambda_i\propto i^{-\alpha}"
    ),
    source="Agrawal et al. 2022",
    needs={"scatter"},
    needs_classes=False,
    zero="the features vary alike in all directions",
    better="high",
    at_collapse=lambda k: 0.0 if k > 3 else math.nan,
    two_sided=True,
    undefined="fewer than three eigenvalues are above the cut",
    chance_level=False,
)
def alpha_req(covariance: Covariance) -> Float[Tensor, ""]:
    r"""Fit the exponent of the power law $\lambda_i\propto i^{-\alpha}$ of the eigenvalues.

    Least squares of $\log\lambda_i$ on $\log i$ over all eigenvalues of $\Sigma_T$ above
    $\max(\epsilon d,2^{-42})\lambda_{max}$, each with the same weight. Agrawal et al. fit a line to
    the full set of eigenvalues in log-log scale and state neither range nor weights; their code
    fits ranks 4 to 100 with weights 1/i. Half of the eigenvalues lie in the last $\log2$ of the
    axis, so the exponent is mostly the decay of the tail. Invariant under rotation, shift and
    isotropic scaling.
    """
    return _power_law(covariance)[0]


@metric(
    key="alpha_req_r2",
    group="spectra",
    meaning=("Share of the variation of the eigenvalues' logarithms that the power law explains."),
    formula=(
        r"1-\frac{\sum_i(\log\lambda_i-c+\alpha\log i)^2}"
        r"{\sum_i(\log\lambda_i-\overline{\log\lambda})^2}"
    ),
    source="fit of Agrawal et al. 2022",
    needs={"scatter"},
    needs_classes=False,
    high=1.0,
    zero="the spectrum is no power law",
    better="high",
    at_collapse=lambda k: math.nan,
    two_sided=True,
    undefined="fewer than three eigenvalues are above the cut, or they are equal",
    chance_level=False,
    no_interval="the value says how well alpha_req fits these samples",
)
def alpha_req_r2(covariance: Covariance) -> Float[Tensor, ""]:
    r"""Compute the share of the variance of $\log\lambda_i$ that the law of `alpha_req` explains.

    1: a power law. Invariant as `alpha_req`.
    """
    return _power_law(covariance)[1]


@metric(
    key="lidar",
    group="spectra",
    meaning=(
        "Number of directions that tell the classes apart, counted by the entropy of the variances "
        "between classes in units of the variance within classes; the labels name the image of "
        "which a sample is a view."
    ),
    formula=(
        r"\exp\Bigl(-\sum_ip_i\log p_i\Bigr),\quad"
        r" p_i=\frac{\lambda_i(A)}{\sum_j\lambda_j(A)},\quad"
        r" A=(\Sigma_W+\delta I)^{-1/2}\Sigma_B(\Sigma_W+\delta I)^{-1/2},\;\delta=10^{-4}"
    ),
    source="Thilak et al. 2023",
    needs={"scatter"},
    low=1.0,
    better="high",
    at_collapse=lambda k: k - 1.0,
    for_two_classes=1.0,
    undefined=(
        "the class means coincide, features are beyond 1e-141..1e141, or rounding of large "
        "features hides the ridge"
    ),
    on_request=True,
    no_interval="the images vary, which are its classes, and groups of views do not show how",
    inverts=True,
)
def lidar(stats: ClassStatistics, discriminants: Discriminants) -> Float[Tensor, ""]:
    r"""Exponentiate the entropy of the eigenvalues of LDA, with labels that name images.

    A sample is a view of an image, and the views of one image are a class: with all other labels
    the value is no LiDAR. Without the constant that is added to every $p_i$ there, as in `rankme`,
    and with scatters of the population, where Thilak et al. divide by n - 1 for n images and by
    q - 1 for q views. At most $\min(d,K-1)$. Invariant under rotation and shift. Not under scaling,
    because the ridge $\delta$ is absolute: features far below its root have the effective rank of
    $\Sigma_B$, as have features without variation within classes. Cost: an eigen-decomposition of
    size d, and singular values of a matrix 2d x min(d, K - 1).
    """
    unknown = stats.global_mean.new_tensor(math.nan)
    if discriminants.between.rank == 0 or abs(stats.exponent) > STREAM_LIMIT:
        return unknown
    units = ridge_units(stats, discriminants, False, math.ldexp(RIDGE, -2 * stats.exponent))
    spread, factor = units.spread, units.factor
    singular = spread.eigen.rank < len(factor)
    # An eigenvalue below the cut counts as 0. That is exact beside a ridge above the cut; beside a
    # smaller ridge it would turn rounding errors into the directions that separate best.
    if singular and spread.cut > units.shift:
        return unknown
    scaled = factor if spread.scales is None else factor * spread.scales[:, None]
    vectors, roots = spread.eigen.vectors, (spread.eigen.values + units.shift).sqrt()
    along = vectors.mT @ scaled
    whitened = along / roots[:, None]
    if singular:
        # For the part outside the range of the scatter the ridge alone decides. It is taken from
        # the columns, because a scatter that is kept as rows has no other eigenvectors.
        beyond = (scaled - vectors @ along) / units.shift**0.5
        whitened = torch.cat([whitened, beyond])
    # Singular values, not eigenvalues of the product: these would lose what is below 1e-16 of the
    # largest, and would hold half of the digits of their roots.
    return _exponential_entropy(torch.linalg.svdvals(whitened).square())


def _power_law(covariance: Covariance) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    values = covariance.eigenvalues[: covariance.rank]
    if len(values) < FEWEST_EIGENVALUES:
        nothing = covariance.mean.new_tensor(torch.nan)
        return nothing, nothing
    rank = torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device).log()
    # Over the largest: the same logarithms to the last bit in units of another power of two.
    rank, logs = rank - rank.mean(), (values / values[0]).log()
    logs = logs - logs.mean()
    both, squares = rank @ logs, logs @ logs
    slope = (-both / (rank @ rank)).clamp(min=0)
    explained = (both.square() / ((rank @ rank) * squares)).clamp(max=1)
    equal = squares <= len(values) * _EQUAL**2
    return slope, torch.where(equal, torch.nan, explained)


def _exponential_entropy(values: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    return torch.special.entr(values / values.sum()).sum().exp()
