r"""Scores that tell samples inside the training distribution from samples outside (OOD).

Scores are larger inside. They are returned by functions with the same order that do not saturate:
NECO as $-\lVert(I-P)(h-\mu)\rVert/\lVert h-\mu\rVert$, the largest softmax probability by its log
odds. Both keep apart what float64 would round to 1.

NECO has four forms: of $h-\mu_G$ (``neco``), of $h$ as in equation (6) (``neco_uncentred``), of
standardised features as in the authors' code (``neco_standardised``), and times the largest logit,
as in that code for all networks but ResNets (``neco_logit``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.math.detection import Detection
from ncscope.math.pairs import row_blocks
from ncscope.math.powers import (
    METRIC_LIMIT,
    exponent_of,
    rescale_rows,
    times_power,
)
from ncscope.math.symmetric import Gram, plus_gram, rank_cut, rescale, symmetric_pairs
from ncscope.metrics.discriminants import mean_rounding
from ncscope.metrics.metric import metric
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics

NCI_WEIGHT = 1e-4
r"""Weight $\alpha$ of the norm in NCI: the default of OpenOOD, and the least that it tries.

It is not tuned: the OOD samples would have to be known for that.
"""

_NO_DIRECTION = "a sample equals the global mean up to rounding"
_NO_PROJECTION = (
    f"{_NO_DIRECTION}, the covariance has equal eigenvalues at the cut, or the reference lacks the "
    "scatter"
)
_NO_LENGTH = (
    "a sample is the zero vector, the covariance has equal eigenvalues at the cut, or the "
    "reference lacks the scatter"
)
_OTHER_SAMPLES = "groups of samples do not show how the value varies with the OOD samples"
_STANDARDISED = r"z=(h-\mu_G)/\sigma"

_ROUNDING = 32.0 * torch.finfo(torch.float64).eps
_LARGEST_TIE = 1e-10


@dataclass(frozen=True)
class OodResult:
    """Comparison of a layer's samples with samples from outside the distribution.

    Attributes:
        cosine: Mean over classes of the absolute cosine of class mean and OOD mean.
        cosine_centred: The same cosine after subtracting the global mean from both.
        detections: Name of a score to how well the score separates the two kinds of samples.
        notes: Sentences on how the scores were fitted.
    """

    cosine: float
    cosine_centred: float
    detections: Mapping[str, Detection]
    notes: tuple[str, ...] = ()

    @property
    def standard_errors(self) -> dict[str, float]:
        """Standard errors by key of the metric; without those that are 0 or unknown."""
        errors = {f"{name}_auroc": each.standard_error for name, each in self.detections.items()}
        return {key: error for key, error in errors.items() if error > 0}


def _no_value(_: int) -> float:
    """Return NaN: the value at collapse depends on the OOD samples."""
    return math.nan


@metric(
    key="nc5",
    group="ood",
    meaning="How far the class means are from orthogonal to the mean of the OOD samples.",
    formula=(
        r"\tfrac1K\sum_c\lvert\langle\mu_c,\mu_{ood}\rangle\rvert/"
        r"(\lVert\mu_c\rVert\lVert\mu_{ood}\rVert)"
    ),
    source="NECO, NC5",
    result="ood.cosine",
    needs={"ood"},
    high=1.0,
    zero="the class means are orthogonal to the OOD mean",
    at_collapse=_no_value,
    chance_level=False,
    no_interval=_OTHER_SAMPLES,
    undefined="a class mean or the OOD mean is zero up to rounding",
)
@metric(
    key="nc5_centred",
    group="ood",
    meaning=(
        "How far the class means are from orthogonal to the mean of the OOD samples, seen from "
        "the global mean."
    ),
    formula=(
        r"\tfrac1K\sum_c\lvert\langle\tilde\mu_c,\mu_{ood}-\mu_G\rangle\rvert/"
        r"(\lVert\tilde\mu_c\rVert\lVert\mu_{ood}-\mu_G\rVert)"
    ),
    source="NECO, NC5, with the global mean subtracted",
    result="ood.cosine_centred",
    needs={"ood"},
    high=1.0,
    zero="the OOD mean leaves the global mean orthogonally to all class means",
    at_collapse=_no_value,
    chance_level=False,
    no_interval=_OTHER_SAMPLES,
    undefined="a class mean or the OOD mean equals the global mean up to rounding",
)
def mean_cosines(
    stats: ClassStatistics, moments: ClassMoments, unit: int = 0
) -> tuple[float, float]:
    """Return the mean absolute cosine of class means and OOD mean, and that of the centred ones.

    Both are NaN if one of the vectors has no direction, up to rounding.

    Args:
        stats: Statistics of the classes.
        moments: Moments of the OOD samples, as one class.
        unit: Unit e of these moments: they are those of the features divided by $2^e$.
    """
    stats = stats.in_range()
    sizes = (stats.class_traces + torch.linalg.vector_norm(stats.means, dim=1).square()).sqrt()
    mean, count = moments.means[0].to(stats.means), moments.counts[0]
    size = (moments.traces[0] / count + torch.linalg.vector_norm(mean).square()).sqrt()
    plain = _mean_cosine(_beyond(stats.means, sizes), _beyond(mean[None], size[None])[0])
    top = max(stats.exponent, unit)
    mean = times_power(mean, unit - top)
    centre = times_power(stats.global_mean, stats.exponent - top)
    apart, largest = mean - centre, mean.abs().max() + centre.abs().max()
    apart = torch.where(apart.abs().max() > _ROUNDING * largest, apart, 0.0)
    return plain, _mean_cosine(stats.centred, apart)


def ood_auroc(ood: OodResult, score: str) -> float:
    r"""Return $P(s>s')+\tfrac12P(s=s')$ for scores s inside and s' outside.

    Args:
        ood: Comparison with OOD samples, by `compare_scores`.
        score: Name of the score; see `OodScorer`.

    Returns:
        A number in $[0,1]$, 1 if the score separates the samples; NaN without the score.
    """
    detection = ood.detections.get(score)
    return math.nan if detection is None else detection.auroc


def ood_fpr95(ood: OodResult, score: str) -> float:
    r"""Return $P(s'\ge\tau)$ at the largest threshold $\tau$ with $P(s\ge\tau)\ge0.95$.

    Args:
        ood: Comparison with OOD samples, by `compare_scores`.
        score: Name of the score; see `OodScorer`.

    Returns:
        A number in $[0,1]$, 0 if the threshold refuses every OOD sample; NaN without the score.
    """
    detection = ood.detections.get(score)
    return math.nan if detection is None else detection.fpr95


def _declare_detector(
    *,
    name: str,
    score: str,
    formula: str,
    source: str,
    needs: set[str],
    undefined: str = "",
) -> None:
    """Declare the two metrics of a score: area under the curve, and false positives.

    Args:
        name: Name of the score, in the keys.
        score: Name of the score in a sentence.
        formula: Definition of the score s(h), in LaTeX.
        source: Paper that defines the score.
        needs: Requirements besides the OOD samples.
        undefined: Condition under which the score is NaN.
    """
    metric(
        key=f"{name}_auroc",
        group="ood",
        meaning=(
            f"Probability that {score} of a sample is larger than that of an OOD sample, equal "
            "ones counted half; chance is 0.5."
        ),
        formula=rf"P(s>s'),\;{formula}",
        source=source,
        reads=("ood",),
        arguments=(name,),
        needs={"ood", "scores"} | needs,
        high=1.0,
        zero="every OOD sample scores higher than every sample",
        better="high",
        at_collapse=_no_value,
        chance_level=False,
        undefined=undefined,
    )(ood_auroc)
    metric(
        key=f"{name}_fpr95",
        group="ood",
        meaning=(
            f"Share of the OOD samples that pass for samples if a threshold on {score} lets at "
            "least 95 % of the samples pass; chance is 0.95."
        ),
        formula=rf"P(s'\ge\tau_{{95}}),\;{formula}",
        source=source,
        reads=("ood",),
        arguments=(name,),
        needs={"ood", "scores"} | needs,
        high=1.0,
        zero="the threshold refuses every OOD sample",
        at_collapse=_no_value,
        chance_level=False,
        no_interval=_OTHER_SAMPLES,
        undefined=undefined,
    )(ood_fpr95)


_declare_detector(
    name="neco",
    score="the share of the centred feature's length along the principal directions",
    formula=r"s=\lVert P(h-\mu_G)\rVert/\lVert h-\mu_G\rVert",
    source="NECO (6), centred",
    needs={"scatter"},
    undefined=_NO_PROJECTION,
)
_declare_detector(
    name="neco_uncentred",
    score="the share of the feature's length along the principal directions",
    formula=r"s=\lVert Ph\rVert/\lVert h\rVert",
    source="NECO (6)",
    needs={"scatter"},
    undefined=_NO_LENGTH,
)
_declare_detector(
    name="neco_standardised",
    score="the share of the standardised feature's length along their principal directions",
    formula=rf"{_STANDARDISED},\;s=\lVert P_zz\rVert/\lVert z\rVert",
    source="NECO, published code for ResNets",
    needs={"scatter"},
    undefined=_NO_PROJECTION,
)
_declare_detector(
    name="neco_logit",
    score="that share of the standardised feature, times the largest logit,",
    formula=rf"{_STANDARDISED},\;s=\max_c\ell_c\lVert P_zz\rVert/\lVert z\rVert",
    source="NECO, published code for other networks",
    needs={"scatter", "head"},
    undefined=_NO_PROJECTION,
)
_declare_detector(
    name="nci",
    score="NCI's score",
    formula=(r"s=\langle w_{\hat y},h-\mu_G\rangle/\lVert h-\mu_G\rVert+10^{-4}\lVert h\rVert_1"),
    source="NCI",
    needs={"head"},
    undefined=_NO_DIRECTION,
)
_declare_detector(
    name="msp",
    score="the largest softmax probability",
    formula=r"s=\max_ce^{\ell_c}/\sum_je^{\ell_j}",
    source="Hendrycks (2017)",
    needs={"head"},
)
_declare_detector(
    name="max_logit",
    score="the largest logit",
    formula=r"s=\max_c\ell_c",
    source="Hendrycks (2022)",
    needs={"head"},
)
_declare_detector(
    name="energy",
    score="the negative energy",
    formula=r"s=\log\sum_je^{\ell_j}",
    source="Energy (4), at temperature 1",
    needs={"head"},
)


class OodScorer:
    r"""Scores of samples by fitted statistics and a classifier, of any magnitude.

    Args:
        fitted: Statistics that the mean and the principal directions come from.
        weight: Classifier weight of any float type; None without a classifier.
        bias: Classifier bias, or None.
        unit: Unit e of the features scored: they are $2^{-e}$ times the features given.

    Attributes:
        names: Names of the scores, in the order in which they are returned.

    Example:
        >>> import ncscope
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.arange(40) % 2
        >>> features = 4 * torch.eye(3)[labels] + torch.randn(40, 3, generator=generator)
        >>> scorer = OodScorer(ncscope.measure(features, labels).statistics)
        >>> scorer.names
        ('neco', 'neco_uncentred', 'neco_standardised')
        >>> inside, outside = scorer(torch.tensor([[4.0, 0, 0], [2.0, 2, 9]]))[:, 0, 0].tolist()
        >>> inside > outside
        True
    """

    def __init__(
        self,
        fitted: ClassStatistics,
        weight: Float[Tensor, "heads d"] | None = None,
        bias: Float[Tensor, " heads"] | None = None,
        *,
        unit: int = 0,
    ) -> None:
        fitted = fitted.in_range()
        self._dim = fitted.dim
        self._mean = times_power(fitted.global_mean, fitted.exponent - unit)
        self._directions = self._standard = None
        if fitted.scatter is not None:
            covariance = covariance_of(fitted)
            variances = covariance.diagonal()
            constant = variances <= mean_rounding(fitted)
            deviations = variances.sqrt()
            self._directions = find_principal_directions(covariance, fitted.k)
            shares = (1 / deviations).masked_fill(constant, 0.0)
            self._standard = find_principal_directions(rescale(covariance, shares), fitted.k)
            # Constant features are centred and not scaled, as by scikit-learn's StandardScaler.
            deviations = times_power(deviations, fitted.exponent - unit)
            self._deviations = deviations.masked_fill(constant, times_power(1.0, -unit))
        self._head = None if weight is None else _Head.of(weight, bias, unit)
        forms = ("neco", "neco_uncentred", "neco_standardised")
        of_directions = () if self._directions is None else forms
        of_head = () if weight is None else ("nci", "msp", "max_logit", "energy")
        of_both = ("neco_logit",) if of_directions and of_head else ()
        self.names: tuple[str, ...] = (*of_directions, *of_head, *of_both)

    @property
    def spans_all(self) -> bool:
        """Return whether the principal directions span all dimensions."""
        return self._directions is not None and self._directions.all

    def __call__(self, features: Shaped[Tensor, "n d"]) -> Float[Tensor, "n s 2"]:
        """Return the scores of samples, each with a bound on its rounding error.

        Larger is more likely inside. NECO and the softmax probability are returned as functions of
        the same order that do not saturate (see the module).

        Args:
            features: Features of the samples, in float64 or less.
        """
        width = self._dim if self._head is None else max(self._dim, len(self._head.weight))
        blocks = [self._block(features[rows]) for rows in row_blocks(len(features), width)]
        if not blocks:
            return torch.zeros(0, len(self.names), 2, dtype=torch.float64, device=features.device)
        return torch.cat(blocks)

    def _block(self, features: Shaped[Tensor, "n d"]) -> Float[Tensor, "n s 2"]:
        rows = features.to(torch.float64)
        mean = self._mean.to(rows.device)
        unit, error = _direction(rows, mean, torch.ones_like(mean))
        scores = []
        if self._directions is not None and self._standard is not None:
            standard = _direction(rows, mean, self._deviations.to(mean))
            origin = _direction(rows, torch.zeros_like(mean), torch.ones_like(mean))
            scores.append(self._directions.score(unit, error))
            scores.append(self._directions.score(*origin))
            scores.append(self._standard.score(*standard))
        if self._head is not None:
            of_head = self._head.scores(rows, unit, error)
            scores += of_head
            if self._standard is not None:
                top, rounding = of_head[2]
                share, slack = self._standard.share(*standard)
                scores.append((share * top, rounding + slack * top.abs()))
        return torch.stack([torch.stack(each, 1) for each in scores], 1)


def _direction(
    rows: Float[Tensor, "n d"], mean: Float[Tensor, " d"], deviations: Float[Tensor, " d"]
) -> "Scored":
    """Return unit vectors from the mean in units of the deviations, and their rounding errors.

    A row that equals the mean up to rounding has no direction: NaN.
    """
    apart = (rows - mean) / deviations
    terms = (rows.abs() + mean.abs()) / deviations
    largest, size = (torch.linalg.vector_norm(each, ord=math.inf, dim=1) for each in (apart, terms))
    error = _ROUNDING * (1 + size / largest)
    apart, length = rescale_rows(apart)
    return (apart / length[:, None]).masked_fill_((error >= 1)[:, None], math.nan), error


Scored = tuple[Float[Tensor, "n ..."], Float[Tensor, " n"]]


@dataclass(frozen=True)
class PrincipalDirections:
    r"""Leading eigenvectors of the covariance $\Sigma_W+\Sigma_B$.

    Attributes:
        vectors: Orthonormal directions, one a column; at most K - 1, and fewer if the rank of the
            covariance is lower.
        error: Rounding error of the directions, as the sine of an angle; infinite if the choice
            of the directions is arbitrary, because the next eigenvalue is equal.
    """

    vectors: Float[Tensor, "d m"]
    error: float

    @property
    def all(self) -> bool:
        """Return whether the directions span all dimensions."""
        return self.vectors.shape[1] == self.vectors.shape[0]

    def score(self, unit: Float[Tensor, "n d"], error: Float[Tensor, " n"]) -> Scored:
        """Return NECO's score of unit vectors from the mean, and its rounding error."""
        vectors = self.vectors.to(unit.device)
        rest = unit - (unit @ vectors) @ vectors.mT
        if self.all:
            rest = rest * 0.0
        score = -torch.linalg.vector_norm(rest, dim=1)
        if self.error >= 1:
            score = score * math.nan
        return score, error + min(self.error, _LARGEST_TIE)

    def share(self, unit: Float[Tensor, "n d"], error: Float[Tensor, " n"]) -> Scored:
        """Return the length of the part of unit vectors along the directions, and its error."""
        along = torch.linalg.vector_norm(unit @ self.vectors.to(unit.device), dim=1)
        if self.all:
            along = along * 0.0 + 1.0
        if self.error >= 1:
            along = along * math.nan
        return along, error + min(self.error, _LARGEST_TIE)


def covariance_of(stats: ClassStatistics) -> Float[Tensor, "d d"] | Gram:
    r"""Return $\Sigma_T=\Sigma_W+\Sigma_B$.

    Args:
        stats: Statistics with the scatter within classes.
    """
    assert stats.scatter is not None
    return plus_gram(stats.scatter, stats.centred.mul_(stats.prior.sqrt()[:, None]))


def find_principal_directions(
    covariance: Float[Tensor, "d d"] | Gram, classes: int
) -> PrincipalDirections:
    """Return the K - 1 leading directions of a covariance, for the K classes present.

    Args:
        covariance: Covariance of all samples. Cost: one eigen-decomposition.
        classes: Number of classes present.
    """
    dim = len(covariance)
    values, vectors = symmetric_pairs(covariance)
    rank = int((values > rank_cut(values[0], dim)).sum())
    count = min(classes - 1, rank)
    if count == dim or count == 0:
        return PrincipalDirections(vectors[:, :count], 0.0 if count else math.inf)
    gap = float(values[count - 1] - values[count])
    error = _ROUNDING * float(values[0]) / gap if gap else math.inf
    return PrincipalDirections(vectors[:, :count], error)


@dataclass(frozen=True)
class _Head:
    """Classifier in units in which its products are in range.

    Attributes:
        weight: Weight, divided by a power of two.
        bias: Bias in the unit of the scaled products, or None.
        exponent: Exponent of 2 of the weight's divisor.
        scale: Exponent of 2 by which the products are multiplied before the bias is added.
        unit: Exponent of 2 by which the sums are multiplied to be the logits.
        features_unit: Exponent of 2 of the features' unit.
    """

    weight: Float[Tensor, "heads d"]
    bias: Float[Tensor, " heads"] | None
    exponent: int
    scale: int
    unit: int
    features_unit: int

    @classmethod
    def of(
        cls, weight: Float[Tensor, "heads d"], bias: Float[Tensor, " heads"] | None, unit: int
    ) -> "_Head":
        """Return the classifier of features in a unit."""
        weight = weight.detach()
        exponent = exponent_of(weight, METRIC_LIMIT)
        weight, total = times_power(weight.to(torch.float64), -exponent), exponent + unit
        if bias is None:
            return cls(weight, None, exponent, 0, total, unit)
        # In a unit below 1 the bias might be out of range.
        scale = min(total, 0)
        bias = times_power(bias.detach().to(torch.float64), scale - total)
        return cls(weight, bias, exponent, scale, total - scale, unit)

    def scores(
        self, rows: Float[Tensor, "n d"], unit: Float[Tensor, "n d"], error: Float[Tensor, " n"]
    ) -> list[Scored]:
        """Return NCI, largest softmax probability, largest logit and energy, with their errors.

        Args:
            rows: Features.
            unit: Their directions from the mean.
            error: Rounding errors of the directions.
        """
        weight = self.weight.to(rows.device)
        lengths = torch.linalg.vector_norm(weight, dim=1)
        logits = times_power(rows @ weight.mT, self.scale)
        terms = lengths.max() * times_power(torch.linalg.vector_norm(rows, dim=1), self.scale)
        if self.bias is not None:
            logits += self.bias.to(logits)
            terms = terms + self.bias.abs().max().to(terms)
        top, chosen = logits.max(1)
        along, slack = (unit * weight[chosen]).sum(1), error * lengths[chosen]
        rounding = _ROUNDING * terms
        return [
            self._nci(rows, along, slack),
            *self._of_logits(logits, top, chosen, rounding),
        ]

    def _nci(
        self, rows: Float[Tensor, "n d"], along: Float[Tensor, " n"], slack: Float[Tensor, " n"]
    ) -> Scored:
        """Add the norm of the features to the products of direction and chosen weight."""
        top = max(self.exponent, self.features_unit)
        norm = NCI_WEIGHT * torch.linalg.vector_norm(rows, ord=1, dim=1)
        norm = times_power(norm, self.features_unit - top)
        score = times_power(along, self.exponent - top) + norm
        return score, times_power(slack, self.exponent - top) + _ROUNDING * norm

    def _of_logits(
        self,
        logits: Float[Tensor, "n heads"],
        top: Float[Tensor, " n"],
        chosen: Int[Tensor, " n"],
        rounding: Float[Tensor, " n"],
    ) -> list[Scored]:
        """Return the scores of the logits, divided by a power of two if the logits overflow."""
        others = logits - top[:, None]
        shift = min(self.unit, 0)
        energy = times_power(top, shift) + self._soft(others)
        others.scatter_(1, chosen[:, None], -math.inf)
        second = others.max(1).values
        odds = -times_power(second, shift) - self._soft(others - second[:, None])
        bound = 2 * times_power(rounding, shift)
        return [
            (odds, bound + _ROUNDING * odds.abs()),
            (top, rounding),
            (energy, bound + _ROUNDING * energy.abs()),
        ]

    def _soft(self, others: Float[Tensor, "n heads"]) -> Float[Tensor, " n"]:
        """Return the logarithm of the sum of exponentials of logits of which the largest is 0."""
        soft = times_power(others, self.unit).exp().sum(1).log()
        return times_power(soft, -max(self.unit, 0))


def _beyond(rows: Float[Tensor, "k d"], sizes: Float[Tensor, " k"]) -> Float[Tensor, "k d"]:
    """Return rows, with zeros for those that are rounding errors of terms of given sizes."""
    small = torch.linalg.vector_norm(rows, dim=1) <= _ROUNDING * sizes.to(rows)
    return rows.masked_fill(small[:, None], 0.0)


def _mean_cosine(rows: Float[Tensor, "k d"], other: Float[Tensor, " d"]) -> float:
    """Return the mean absolute cosine of rows with a vector; NaN if one is zero."""
    rows, lengths = rescale_rows(rows)
    beside, length = rescale_rows(other[None])
    if bool((lengths == 0).any()) or not float(length):
        return math.nan
    cosines = (rows / lengths[:, None]) @ (beside[0] / length)
    return min(1.0, float(cosines.abs().mean()))


def describe_fit(scorer: OodScorer, *, on_own: bool) -> tuple[str, ...]:
    """Return notes on how the scores were fitted.

    Args:
        scorer: Scores of the samples.
        on_own: True if the scorer was fitted on the samples that it judges.
    """
    notes = []
    if on_own and scorer.names:
        notes.append(
            "neco, in all its forms, and nci are fitted on the samples that they judge, which "
            "flatters them: measure held-out samples with reference= of the training set, in Python"
        )
    if scorer.spans_all:
        notes.append(
            "neco, in all its forms, is 1 for every sample, its AUROC 0.5 (neco_logit is then "
            "max_logit): K - 1 directions span all dimensions"
        )
    return tuple(notes)
