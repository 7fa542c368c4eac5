r"""MIR and HDR: matrix information between features and the classifier's rows.

For unit-diagonal Gram matrices $H(K)=-\operatorname{tr}(\frac1mK\log\frac1mK)$,
$MI=H(K_1)+H(K_2)-H(K_1\odot K_2)$, $MIR=MI/\min\{H(K_1),H(K_2)\}$ and
$HDR=|H(K_1)-H(K_2)|/\max\{H(K_1),H(K_2)\}$. Source: INFO section 3.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.math.entropy import (
    EntropyEstimate,
    entropy_of_spectrum,
    estimate_entropy,
    gram_entropy,
    spectral_entropy,
)
from ncscope.math.pairs import row_blocks
from ncscope.math.symmetric import factor_eigen
from ncscope.metrics.metric import MOST_FOR_PAIRS, metric
from ncscope.stats.directions import (
    Batches,
    DirectionMoments,
    MomentProduct,
    RowProduct,
    unit_rows,
    zero_rows,
)

_ZERO_ROW = "a feature is the zero vector and has no direction"
_NO_ENTROPY = "an entropy is 0, as for two collapsed classes, or a vector is zero"

RELATIVE_ERROR = 0.01
"""Standard error of an estimated joint entropy, as a share of the larger of the two entropies."""

DENSE_LIMIT = 4096
"""Largest side of a matrix whose eigenvalues are computed; beyond it entropies are estimated."""

MOMENT_BYTES = 2**30
"""Largest size of second moments by class that are kept; beyond it the features are read again."""

MOST_UNASKED = 2**25
"""Size of the second moments above which estimates are made only if they are asked for."""

_DEGENERATE = 1e-9  # an entropy below this is one of rounding errors: nothing is divided by it
_ROUNDING = 1e-10  # of a sum of three entropies; the mutual information is not negative


@dataclass(frozen=True)
class Entropies:
    r"""Entropies of two Gram matrices and of their Hadamard product, with MIR and HDR.

    Attributes:
        first: $H(K_1)$, of the features.
        second: $H(K_2)$, of the classifier's rows, or of the second features.
        joint: $H(K_1\odot K_2)$.
        zeros: Number of rows without a direction; entropies that depend on them are NaN.
        zero_rows: Indices of the first rows without a direction.
        zero_heads: First classes whose head is zero.
    """

    first: float
    second: float
    joint: EntropyEstimate
    zeros: int = 0
    zero_rows: tuple[int, ...] = ()
    zero_heads: tuple[int, ...] = ()

    @property
    def mutual_information(self) -> float:
        r"""$MI=H(K_1)+H(K_2)-H(K_1\odot K_2)$, in nats."""
        information = self.first + self.second - self.joint.mean
        return 0.0 if -_ROUNDING < information < 0 else information

    @property
    def mir(self) -> float:
        """Matrix mutual information ratio, in [0, 1]; NaN if an entropy is 0."""
        return _ratio(self.mutual_information, self._either(min))

    @property
    def hdr(self) -> float:
        """Matrix entropy difference ratio, in [0, 1]; NaN if both entropies are 0."""
        return _ratio(abs(self.first - self.second), self._either(max))

    def _either(self, choose: Callable[..., float]) -> float:
        """Return the smaller or larger entropy; NaN if either is NaN."""
        unknown = math.isnan(self.first) or math.isnan(self.second)
        return math.nan if unknown else choose(self.first, self.second)


@dataclass(frozen=True)
class DatasetInformation:
    """Entropies of the features of a whole data set and of their heads.

    Attributes:
        raw: Entropies of the given features.
        centred: Entropies of the features minus their mean, as INFO corollary 4.3 assumes.
    """

    raw: Entropies
    centred: Entropies


class _Side(NamedTuple):
    """Entropy of a Gram matrix, and its largest eigenvalue's share; NaN of a zero matrix."""

    entropy: float
    largest: float

    @classmethod
    def of(cls, gram: Float[Tensor, "m m"]) -> "_Side":
        """Compute both from the smaller form of the Gram matrix."""
        values = torch.linalg.eigvalsh(gram)
        largest = float(values[-1] / values.sum()) if len(values) else math.nan
        return cls(float(entropy_of_spectrum(values)), largest)


def takes_long(samples: int, weight: Float[Tensor, "k d"]) -> bool:
    """Return whether estimating the joint entropies takes more than about 10 seconds of a core.

    Every product with the second moments reads $Kd^2$ numbers, and an estimate needs hundreds.
    """
    (k, d), side = weight.shape, weight.shape[1] * min(weight.shape)
    estimated = side > DENSE_LIMIT or not _moments_fit(weight)
    return samples > DENSE_LIMIT and estimated and k * d**2 > MOST_UNASKED


def reads_often(samples: int, weight: Float[Tensor, "k d"]) -> bool:
    """Return whether the joint entropies need many products over the stored features."""
    return samples > DENSE_LIMIT and not _moments_fit(weight)


def _moments_fit(weight: Float[Tensor, "k d"]) -> bool:
    """Return whether second moments by class are small enough to be kept."""
    return weight.numel() * weight.shape[1] * 8 <= MOMENT_BYTES


def collapse_mir(num_classes: int) -> float:
    r"""Return MIR at collapse to a simplex, $\frac1{C-1}+\frac{(C-2)\log(C-2)}{(C-1)\log(C-1)}$.

    Source: INFO theorem 4.2 and corollary 4.3. This is the value *at collapse to a simplex*, not a
    bound: orthogonal collapsed features reach 1. HDR is 0 at collapse to a simplex. NaN for two
    classes, whose entropies are 0.

    Example:
        >>> round(collapse_mir(10), 6), collapse_mir(3)
        (0.952351, 0.5)
    """
    c = num_classes
    if c < 3:
        return math.nan
    return (1 + (c - 2) * math.log(c - 2) / math.log(c - 1)) / (c - 1)


@metric(
    key="mir",
    group="information",
    meaning=(
        "Information that features and classifier rows share, relative to the smaller of "
        "their entropies."
    ),
    formula=(
        r"\frac{H(K_1)+H(K_2)-H(K_1\odot K_2)}{\min\{H(K_1),H(K_2)\}},\;"
        r"K_1=G([h(x_i)]),\,K_2=G([w_{y_i}])"
    ),
    source="INFO section 3, corollary 4.3",
    result="information.raw.mir",
    needs={"information", "head"},
    high=1.0,
    zero="features tell nothing about the heads of their classes",
    better="high",
    at_collapse=collapse_mir,
    undefined=_NO_ENTROPY,
)
@metric(
    key="hdr",
    group="information",
    meaning=(
        "Difference between the entropies of features and classifier rows, relative to the larger."
    ),
    formula=r"\frac{|H(K_1)-H(K_2)|}{\max\{H(K_1),H(K_2)\}}",
    source="INFO section 3, corollary 4.3",
    result="information.raw.hdr",
    needs={"information", "head"},
    high=1.0,
    zero="features spread over as many directions as their heads",
    undefined=_NO_ENTROPY,
    chance_level=False,
)
@metric(
    key="mir_centered",
    group="information",
    meaning="MIR of the features minus their mean, as the theory at collapse assumes.",
    formula=r"\operatorname{MIR}\text{ with }K_1=G([h(x_i)-\mu_G])",
    source="INFO corollary 4.3, whose premise is centred features",
    result="information.centred.mir",
    needs={"information", "head"},
    high=1.0,
    zero="centred features tell nothing about the heads of their classes",
    better="high",
    at_collapse=collapse_mir,
    undefined=_NO_ENTROPY,
)
@metric(
    key="hdr_centered",
    group="information",
    meaning="HDR of the features minus their mean.",
    formula=r"\operatorname{HDR}\text{ with }K_1=G([h(x_i)-\mu_G])",
    source="INFO corollary 4.3, whose premise is centred features",
    result="information.centred.hdr",
    needs={"information", "head"},
    high=1.0,
    zero="centred features spread over as many directions as their heads",
    undefined=_NO_ENTROPY,
    chance_level=False,
)
def dataset_information(
    batches: Batches,
    counts: Int[Tensor, " k"],
    weight: Float[Tensor, "k d"],
    mean: Float[Tensor, " d"],
) -> DatasetInformation:
    """Compute raw and centred entropies in a second pass over the features.

    Args:
        batches: Features and labels, iterated at least twice.
        counts: Number of samples of each class.
        weight: $W$, a row for every class.
        mean: Mean of the features.
    """
    return DatasetInformation(
        dataset_entropies(batches, counts, weight),
        dataset_entropies(batches, counts, weight, mean),
    )


@metric(
    key="mir_means",
    group="information",
    meaning="MIR of the centred class means instead of the samples.",
    formula=r"\operatorname{MIR}\text{ of }G(\tilde M)\text{ and }G(W^\top)",
    source="INFO theorem 4.2",
    result="means_entropies.mir",
    most_classes=MOST_FOR_PAIRS,
    needs={"head"},
    high=1.0,
    zero="the class means tell nothing about the classifier",
    better="high",
    at_collapse=collapse_mir,
    undefined=_NO_ENTROPY,
    noisy=True,
)
@metric(
    key="hdr_means",
    group="information",
    meaning="HDR of the centred class means instead of the samples.",
    formula=r"\operatorname{HDR}\text{ of }G(\tilde M)\text{ and }G(W^\top)",
    source="INFO theorem 4.2",
    result="means_entropies.hdr",
    most_classes=MOST_FOR_PAIRS,
    needs={"head"},
    high=1.0,
    zero="class means spread over as many directions as the classifier",
    for_two_classes=1.0,
    undefined=_NO_ENTROPY,
    noisy=True,
)
def means_entropies(weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]) -> Entropies:
    r"""Compute the entropies of $G(W^\top)$ and $G(\tilde M)$, as in INFO theorem 4.2.

    Args:
        weight: $W$, rows of the classes present.
        frame: Class means centred by their unweighted mean.

    Cost: eigenvalues of a K x K matrix; beyond 4,096 classes, an estimate from products.
    """
    return pair_entropies(frame, weight)


def pair_entropies(
    first: Shaped[Tensor, "n _d1"], second: Shaped[Tensor, "n _d2"], seed: int = 0
) -> Entropies:
    r"""Compute the entropies of $G(Z_1)$, $G(Z_2)$ and $G(Z_1)\odot G(Z_2)$ for features $Z_1,Z_2$.

    The joint spectrum is that of the n x n product or of the second moments of the vectors
    $\hat z_i\otimes\hat z'_i$, whichever is smaller; above 4,096 the entropy is estimated from
    products of $4nd_1d_2$ operations. Source: INFO section 5.4 (dense and pruned features).

    Args:
        first: First features, one sample a row.
        second: Second features of the same samples.
        seed: Seed of the random probes, if the joint entropy is estimated.
    """
    second = second.to(first.device)
    n, size = len(first), min(len(first), first.shape[1] * second.shape[1])
    zeros = zero_rows(first), zero_rows(second)
    sides = [_Side.of(_gram(rows)) for rows in (first, second)]
    h1, h2 = (math.nan if missing else s.entropy for s, missing in zip(sides, zeros, strict=True))
    missing = sorted({*zeros[0], *zeros[1]})
    if missing:
        joint = _exact(math.nan, size)
    elif size == n <= DENSE_LIMIT:
        a, b = unit_rows(first), unit_rows(second)
        joint = _exact(float(spectral_entropy((a @ a.mT) * (b @ b.mT))), n)
    elif size <= DENSE_LIMIT:
        joint = _exact(float(spectral_entropy(_gram_of_pairs(first, second))), size)
    else:
        joint = _estimate_joint(
            _HadamardProduct(first, second), n, n, sides, 24, seed, first.device
        )
    return Entropies(h1, h2, joint, len(missing), tuple(missing[:10]))


@metric(
    key="entropy_features",
    group="information",
    meaning=(
        "Matrix entropy of the features' directions: the log of how many directions they fill."
    ),
    formula=r"H(G([h(x_i)]))",
    source="INFO section 3",
    result="information.raw.first",
    needs={"information", "head"},
    zero="all features share one direction",
    undefined=_ZERO_ROW,
    at_collapse=lambda k: math.log(k - 1),
    two_sided=True,
    chance_level=False,
)
@metric(
    key="entropy_weights",
    group="information",
    meaning="Matrix entropy of the classifier's rows, each as often as its class occurs.",
    formula=r"H(G([w_{y_i}]))",
    source="INFO section 3",
    result="information.raw.second",
    needs={"information", "head"},
    zero="all heads share one direction",
    undefined="a head is the zero vector and has no direction",
    at_collapse=lambda k: math.log(k - 1),
    two_sided=True,
    chance_level=False,
)
@metric(
    key="mutual_information",
    group="information",
    meaning="Matrix mutual information of features and classifier rows, in nats.",
    formula=r"H(K_1)+H(K_2)-H(K_1\odot K_2)",
    source="INFO section 3",
    result="information.raw.mutual_information",
    needs={"information", "head"},
    zero="features tell nothing about the heads of their classes",
    better="high",
    undefined=_ZERO_ROW,
    at_collapse=lambda k: collapse_mir(k) * math.log(k - 1) if k > 2 else 0.0,
    two_sided=True,
)
def dataset_entropies(
    batches: Batches,
    counts: Int[Tensor, " k"],
    weight: Float[Tensor, "k d"],
    centre: Float[Tensor, " d"] | None = None,
    seed: int = 0,
) -> Entropies:
    r"""Compute the entropies of the features of all samples and of the heads of their classes.

    $K_1=G([h(x_1)..h(x_n)])$ and $K_2=G([w_{y_1}..w_{y_n}])$ (INFO corollary 4.3), from the
    spectra of $\sum_cS_c$, $L^\top\operatorname{diag}(n_c)L$ and
    $\sum_cS_c\otimes\ell_c\ell_c^\top$. An n x n matrix is formed only if n is the smallest side.

    Args:
        batches: Features and labels; iterated once, or once for each product if the second moments
            take more than 1 GiB.
        counts: Number of samples of each class.
        weight: $W$, a row for every class.
        centre: Vector subtracted from every feature first (INFO corollary 4.3 assumes $\mu_G=0$);
            None for raw features.
        seed: Seed of the random probes, if the joint entropy is estimated.

    Returns:
        Entropies; the joint entropy is exact up to a side of 4,096, and estimated to 1 % beyond.
    """
    heads = _head_factor(unit_rows(weight))
    n, size = int(counts.sum()), weight.shape[1] * heads.shape[1]
    zero_heads = torch.nonzero((weight == 0).all(1) & (counts > 0)).squeeze(1).tolist()
    side = _Side.of(heads.mT @ (counts[:, None] * heads))
    h2 = math.nan if zero_heads else side.entropy
    if n <= min(size, DENSE_LIMIT):
        result = _from_samples(batches, heads, centre, side)
    else:
        result = _from_moments(batches, counts, heads, weight, centre, side, seed)
    joint = _exact(math.nan, size) if result.zeros or zero_heads else result.joint
    return replace(result, second=h2, joint=joint, zero_heads=tuple(zero_heads[:10]))


@metric(
    key="effective_rank",
    group="information",
    meaning=(
        "Number of directions that the features fill: the exponential of their matrix entropy."
    ),
    formula=r"e^{H(G([h(x_i)]))}",
    source="Roy, Vetterli 2007; INFO section 3",
    needs={"information", "head"},
    low=1.0,
    undefined=_ZERO_ROW,
    at_collapse=lambda k: k - 1,
    two_sided=True,
    chance_level=False,
)
def effective_rank(information: DatasetInformation) -> float:
    """Exponentiate the entropy of the features, which are not centred."""
    return math.exp(information.raw.first)


def _from_samples(
    batches: Batches,
    heads: Float[Tensor, "k r"],
    centre: Float[Tensor, " d"] | None,
    second: _Side,
) -> Entropies:
    """Compute the entropies from the features themselves, if n is the smallest side."""
    features = torch.cat([rows.to(heads.device) for rows, _ in batches])
    zeros, rows = zero_rows(features, centre), unit_rows(features, centre)
    paired = heads[torch.cat([labels.to(heads.device) for _, labels in batches])]
    joint = _exact(float(spectral_entropy((rows @ rows.mT) * (paired @ paired.mT))), len(rows))
    first = math.nan if zeros else float(gram_entropy(rows))
    return Entropies(first, second.entropy, joint, len(zeros), tuple(zeros[:10]))


def _from_moments(
    batches: Batches,
    counts: Int[Tensor, " k"],
    heads: Float[Tensor, "k r"],
    weight: Float[Tensor, "k d"],
    centre: Float[Tensor, " d"] | None,
    second: _Side,
    seed: int,
) -> Entropies:
    """Compute the entropies from the second moments, or from products with stored features."""
    d, size = weight.shape[1], weight.shape[1] * heads.shape[1]
    small = _moments_fit(weight)
    moments = _gather_moments(batches, counts, weight, centre, by_class=small)
    if moments.zeros:
        unknown, zero = _exact(math.nan, size), (moments.zeros, tuple(moments.zero_rows))
        return Entropies(math.nan, second.entropy, unknown, *zero)
    first = _Side.of(moments.second.sum(0))
    if small and size <= DENSE_LIMIT:
        joint = _exact(float(spectral_entropy(MomentProduct(moments.second, heads).dense())), size)
        return Entropies(first.entropy, second.entropy, joint)
    stored = RowProduct(batches, heads, d, centre)
    product = MomentProduct(moments.second, heads) if small else stored
    n, k = int(counts.sum()), len(heads)
    joint = _estimate_joint(product, size, n, [first, second], k, seed, weight.device)
    return Entropies(first.entropy, second.entropy, joint)


def _gather_moments(
    batches: Batches,
    counts: Int[Tensor, " k"],
    weight: Float[Tensor, "k d"],
    centre: Float[Tensor, " d"] | None,
    by_class: bool,
) -> DirectionMoments:
    """Accumulate second moments by class, or of all classes together to save memory."""
    k = len(counts) if by_class else 1
    moments = DirectionMoments(k, weight.shape[1], centre, weight.device)
    for features, labels in batches:
        moments.update(features, labels if by_class else torch.zeros_like(labels))
    return moments


def _head_factor(unit: Float[Tensor, "k d"]) -> Float[Tensor, "k r"]:
    r"""Return $L$ with $LL^\top=\hat W\hat W^\top$ and as many columns as the rank."""
    # Columns for the rank and not for d: the joint matrix has a side of d r, and must fit.
    eigen, right = factor_eigen(unit.mT, min(unit.shape))
    return right * eigen.values.sqrt()


def _gram(features: Shaped[Tensor, "n d"]) -> Float[Tensor, "m m"]:
    """Return the Gram matrix of the unit rows, or of their columns if there are fewer columns."""
    n, d = features.shape
    if n <= d:
        rows = unit_rows(features)
        return rows @ rows.mT
    total = torch.zeros(d, d, dtype=torch.float64, device=features.device)
    for block in row_blocks(n, d):
        rows = unit_rows(features[block])
        total.addmm_(rows.mT, rows)
    return total


def _gram_of_pairs(
    first: Shaped[Tensor, "n _d1"], second: Shaped[Tensor, "n _d2"]
) -> Float[Tensor, "p p"]:
    r"""Return the second moments of $\hat z_i\otimes\hat z'_i$, computed in blocks of rows."""
    width = first.shape[1] * second.shape[1]
    total = torch.zeros(width, width, dtype=torch.float64, device=first.device)
    for block in row_blocks(len(first), width):
        a, b = unit_rows(first[block]), unit_rows(second[block])
        rows = (a[:, :, None] * b[:, None, :]).flatten(1)
        total.addmm_(rows.mT, rows)
    return total


class _HadamardProduct:
    r"""Product $V\mapsto(AA^\top\odot BB^\top)V$ for unit rows $A$ and $B$, in blocks of rows.

    Cost: $4nd_1d_2$ operations for each vector, without a matrix as large as $n\times d$.
    """

    def __init__(self, first: Shaped[Tensor, "n _d1"], second: Shaped[Tensor, "n _d2"]) -> None:
        self.first, self.second = first, second

    def __call__(self, block: Float[Tensor, "n v"]) -> Float[Tensor, "n v"]:
        """Multiply a block of vectors."""
        pairs = self.first.shape[1] * self.second.shape[1]
        at_once = next(row_blocks(block.shape[1], pairs)).stop
        return torch.cat([self._product(vectors) for vectors in block.split(at_once, 1)], 1)

    def _product(self, vectors: Float[Tensor, "n v"]) -> Float[Tensor, "n v"]:
        r"""Compute $a_i^\top(A^\top\operatorname{diag}(v)B)b_i$ for each row $i$ and vector $v$."""
        (n, v), d1, d2 = vectors.shape, self.first.shape[1], self.second.shape[1]
        between = vectors.new_zeros(d1, v * d2)
        for rows in row_blocks(n, v * d2):
            a, b = unit_rows(self.first[rows]), unit_rows(self.second[rows])
            between.addmm_(a.mT, (vectors[rows, :, None] * b[:, None, :]).flatten(1))
        image = torch.empty_like(vectors)
        for rows in row_blocks(n, v * d2):
            a, b = unit_rows(self.first[rows]), unit_rows(self.second[rows])
            image[rows] = torch.einsum("nvd,nd->nv", (a @ between).unflatten(1, (v, d2)), b)
        return image


def _estimate_joint(
    product: Callable[[Float[Tensor, "m b"]], Float[Tensor, "m b"]],
    size: int,
    trace: float,
    sides: Sequence[_Side],
    dominant: int,
    seed: int,
    device: torch.device,
) -> EntropyEstimate:
    """Estimate a joint entropy to a share of its lower bound, the larger of the two entropies.

    The product of Gram matrices has the entropy of a mixture of product states, so that its entropy
    is between the larger entropy and the sum of both. An estimate beyond is set to the bound: else
    MIR would come out below 0 where features tell nothing about heads.
    """
    first, second = (side.entropy for side in sides)
    error = RELATIVE_ERROR * max(first, second, 0.1)
    # A product with a Gram matrix of unit vectors raises no eigenvalue above the other's largest.
    largest = min(side.largest for side in sides)
    generator = torch.Generator(device).manual_seed(seed)
    estimate = estimate_entropy(product, size, trace, error, generator, dominant, largest)
    if math.isnan(first) or math.isnan(second):
        return estimate
    return replace(estimate, mean=min(max(estimate.mean, first, second), first + second))


def _exact(value: float, size: int) -> EntropyEstimate:
    return EntropyEstimate(value, 0.0, 0, 0, size)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > _DEGENERATE else math.nan
