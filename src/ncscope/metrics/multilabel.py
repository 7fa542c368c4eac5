r"""Multi-label neural collapse, of Li, Li, Wang and Qu (ICML 2024).

A sample with m labels has multiplicity m, and all samples with the same labels S are one label
set. With $\mu_k$ the mean of the samples whose only label is k, and $\mu_S$ that of a label set,
collapse means: features sit on the mean of their label set; the $\mu_k$ form a simplex; the
classifier's rows align with them; and every $\mu_S$ is a *tag-wise average*, with one scale $c_m$
for each multiplicity:

$$\mu_S=c_m\,\frac1m\sum_{k\in S}\mu_k,\qquad |S|=m\ge2.$$

Each label set counts once, however many samples it has.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ncscope.errors import list_names
from ncscope.math.pairs import row_blocks
from ncscope.math.powers import (
    COPY_LIMIT,
    METRIC_LIMIT,
    exponent_of,
    rescale_rows,
    times_power,
)
from ncscope.metrics.class_means import etf_distance
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.duality import logit_etf_distance
from ncscope.metrics.metric import Metric, metric, metrics_of_module
from ncscope.metrics.variability import nc1, nc1_quotient
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish

MOST_ANGLES = 10**8
"""Number of angles above which `angle_ratio` is left out: a minute of a core for d = 512."""

_FEW = 10  # samples of a label set below which its variability is a tenth too low or more
_ROUNDING = 32 * 2.0**-52
_PAPER = "Li, Li, Wang and Qu 2024"
_COINCIDE = "the means coincide"
_ZERO = "the means, or the averages of their labels' means, are zero"


@dataclass(frozen=True)
class LabelSets:
    r"""Samples of one multiplicity, by label set, beside the means of the classes in the sets.

    Attributes:
        multiplicity: Number m of labels of each sample.
        members: Classes of each label set, in the order of the classes.
        counts: Number of samples of each label set.
        means: Mean of each label set.
        stats: Statistics with the label sets as classes, under the uniform prior, for m above 1 of
            those with two samples or more; None if these are fewer than two.
        class_means: $\mu_k$ of the classes that some samples have alone; other rows are zero.
        known: True for these classes.
    """

    multiplicity: int
    members: Bool[Tensor, "s k"]
    counts: Int[Tensor, " s"]
    means: Float[Tensor, "s d"]
    stats: ClassStatistics | None
    class_means: Float[Tensor, "k d"]
    known: Bool[Tensor, " k"]

    @cached_property
    def sums(self) -> Float[Tensor, "s d"]:
        r"""$\sum_{k\in S}\mu_k$ of every label set."""
        return self.members.to(self.class_means) @ self.class_means

    @cached_property
    def has_angle(self) -> Bool[Tensor, " s"]:
        """True for label sets whose classes are all known, and whose mean and sum are not zero."""
        complete = ~(self.members & ~self.known).any(1)
        rounding = _ROUNDING * self.size
        lengths = (torch.linalg.vector_norm(rows, dim=1) for rows in (self.sums, self.means))
        return complete & torch.stack([length > rounding for length in lengths]).all(0)

    @cached_property
    def size(self) -> Float[Tensor, ""]:
        """Length of the longest mean."""
        rows = torch.cat([self.class_means, self.means])
        return torch.linalg.vector_norm(rows, dim=1).max()

    @property
    def set_directions(self) -> Float[Tensor, "u d"]:
        """Unit vectors of the means of the label sets that have an angle."""
        return _unit(self.means[self.has_angle])

    @property
    def sum_directions(self) -> Float[Tensor, "u d"]:
        """Unit vectors of these label sets' sums."""
        return _unit(self.sums[self.has_angle])

    @cached_property
    def centred_means(self) -> Float[Tensor, "s d"]:
        r"""$\mu_S-\mu_G$, with $\mu_G$ the mean of the $\mu_k$."""
        return self._zero_rounding(self.means - self.class_means.mean(0))

    @cached_property
    def centre_averages(self) -> Float[Tensor, "s d"]:
        r"""$\frac1m\sum_{k\in S}(\mu_k-\mu_G)$."""
        rows = self.class_means - self.class_means.mean(0)
        share = self.members.to(rows) / self.multiplicity
        return self._zero_rounding(share @ rows)

    @property
    def num_combinations(self) -> int:
        """Number of sets of m known classes."""
        return math.comb(int(self.known.sum()), self.multiplicity)

    def _zero_rounding(self, rows: Float[Tensor, "s d"]) -> Float[Tensor, "s d"]:
        length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        return torch.where(length > _ROUNDING * self.size, rows, 0.0)


def _unit(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    rows, length = rescale_rows(rows)
    return rows / length[:, None]


@metric(
    key="ml_nc1",
    group="multilabel",
    title="NC1 of single labels",
    meaning="Variation within the classes among the samples with one label, as `nc1`.",
    formula=r"\frac1K\operatorname{Tr}[\Sigma_W\Sigma_B^\dagger],\quad m=1",
    source=_PAPER,
    zero="every sample with one label sits on its class mean",
    undefined=_COINCIDE,
)
def class_variability(stats: ClassStatistics) -> Float[Tensor, ""]:
    """Compute `nc1`, each class of the same weight."""
    return nc1(stats, discriminants(stats))


@metric(
    key="ml_nc1_quotient_m",
    group="multilabel_sets",
    title="within / between variance of label sets",
    meaning="Variance within the label sets of multiplicity m, divided by that of their means.",
    formula=r"\operatorname{Tr}\Sigma_W^{(m)}/\operatorname{Tr}\Sigma_B^{(m)}",
    source="ours, for the variability collapse of Li, Li, Wang and Qu 2024",
    zero="every sample sits on the mean of its label set",
    undefined=_COINCIDE,
)
def set_variability(stats: ClassStatistics) -> Float[Tensor, ""]:
    """Compute `nc1_quotient` with the label sets as classes, each of the same weight.

    Label sets of one sample are left out. Not `nc1`: at collapse the means of the label sets span
    K-1 dimensions, and in others the inverse of their scatter would divide noise by noise.
    """
    return nc1_quotient(stats)


@metric(
    key="ml_nc2_means",
    group="multilabel",
    title="class means to simplex ETF",
    meaning="Distance of the Gram matrix of the centred means of single labels from a simplex's.",
    formula=(
        r"\Bigl\lVert\frac{\tilde M\tilde M^\top}{\lVert\tilde M\tilde M^\top\rVert_F}-"
        r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)\Bigr\rVert_F"
    ),
    source=_PAPER,
    reads=("stats.frame",),
    high=2**0.5,
    zero="the centred means of single labels form a simplex ETF",
    undefined=_COINCIDE,
)
@metric(
    key="ml_nc2_weights",
    group="multilabel",
    title="classifier to simplex ETF",
    meaning="Distance of the Gram matrix of the classifier's rows from a simplex's.",
    formula=(
        r"\Bigl\lVert\frac{WW^\top}{\lVert WW^\top\rVert_F}-"
        r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)\Bigr\rVert_F"
    ),
    source=_PAPER,
    reads=("weight",),
    needs={"head"},
    high=2**0.5,
    zero="the classifier's rows form a simplex ETF",
    undefined="the classifier is zero",
)
def frame_distance(vectors: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Compute the distance of a normalised Gram matrix from a simplex's."""
    return etf_distance(vectors)


@metric(
    key="ml_nc3",
    group="multilabel",
    title="logits of class means to simplex ETF",
    meaning=(
        "Distance of the normalised products of the classifier's rows and the centred means of "
        "single labels from a simplex's."
    ),
    formula=(
        r"\Bigl\lVert\frac{W\tilde M^\top}{\lVert W\tilde M^\top\rVert_F}-"
        r"\frac1{\sqrt{K-1}}(I-\frac1K\mathbf 1\mathbf 1^\top)\Bigr\rVert_F"
    ),
    source=_PAPER,
    reads=("weight", "stats.frame"),
    needs={"head"},
    high=2.0,
    zero="the classifier is dual to the means of single labels",
    undefined="the classifier is zero, or no product differs from zero",
)
def duality_distance(
    weight: Float[Tensor, "k d"], frame: Float[Tensor, "k d"]
) -> Float[Tensor, ""]:
    """Compute the distance of the class means' logits from a simplex's."""
    return logit_etf_distance(weight, frame)


@metric(
    key="ml_angle_m",
    group="multilabel_sets",
    title="angle to tag-wise sum",
    meaning="Mean angle between a label set's mean and the sum of its labels' means, in degrees.",
    formula=r"\operatorname{avg}_{|S|=m}\angle\bigl(\mu_S,\sum_{k\in S}\mu_k\bigr)",
    source=f"{_PAPER}, numerator of NCm",
    reads=("set_directions", "sum_directions"),
    high=180.0,
    zero="every label set points along the sum of its labels' means",
    undefined=_ZERO,
)
def angle(
    set_directions: Float[Tensor, "s d"], sum_directions: Float[Tensor, "s d"]
) -> Float[Tensor, ""]:
    """Compute the mean angle of unit vectors, pair by pair, in degrees."""
    # By two chords: the arc cosine has no digits left near 0.
    apart, together = (
        torch.linalg.vector_norm(set_directions + sign * sum_directions, dim=1) for sign in (-1, 1)
    )
    return torch.rad2deg(2 * torch.atan2(apart, together)).mean()


@metric(
    key="ml_ncm_m",
    group="multilabel_sets",
    title="NCm: angle to tag-wise sum / typical angle",
    meaning=(
        "Mean angle between a label set's mean and the sum of its labels' means, divided by the "
        "mean angle to the sums of any m classes."
    ),
    formula=(
        r"\frac{\operatorname{avg}_{|S|=m}\angle(\mu_S,\sum_{k\in S}\mu_k)}"
        r"{\operatorname{avg}_{|S|=|T|=m}\angle(\mu_S,\sum_{k\in T}\mu_k)}"
    ),
    source=f"{_PAPER}, NCm (there for m = 2)",
    reads=("set_directions", "sum_directions", "class_means", "known", "multiplicity"),
    zero="every label set points along the sum of its labels' means",
    undefined=_ZERO + ", or all directions are equal",
)
def angle_ratio(
    set_directions: Float[Tensor, "s d"],
    sum_directions: Float[Tensor, "s d"],
    class_means: Float[Tensor, "k d"],
    known: Bool[Tensor, " k"],
    multiplicity: int,
) -> Float[Tensor, ""]:
    """Divide the `angle` by the mean angle between any set's mean and the sum of any m classes.

    Cost: one product of all sums of m classes with all means, in blocks.
    """
    chosen = torch.combinations(known.nonzero()[:, 0], multiplicity)
    least = _ROUNDING * torch.linalg.vector_norm(class_means, dim=1).max()
    total, count = set_directions.new_zeros(()), 0
    width = max(multiplicity * class_means.shape[1], len(set_directions))
    for rows in row_blocks(len(chosen), width):
        sums = class_means[chosen[rows]].sum(1)
        sums = sums[torch.linalg.vector_norm(sums, dim=1) > least]
        total += angles_between(_unit(sums), set_directions).sum()
        count += len(sums) * len(set_directions)
    typical = torch.rad2deg(total / count)
    return angle(set_directions, sum_directions) / typical.where(typical > 0, torch.nan)


def angles_between(
    first: Float[Tensor, "m d"], second: Float[Tensor, "n d"]
) -> Float[Tensor, "m n"]:
    """Compute the angles between all pairs of unit vectors, in radians."""
    cosines = first @ second.mT
    if bool((cosines.abs() < 0.99).all()):
        return torch.acos(cosines)
    # The arc cosine loses digits near 0 and near half a turn; the chords do not.
    apart, together = (
        torch.cdist(first, sign * second, compute_mode="donot_use_mm_for_euclid_dist")
        for sign in (1, -1)
    )
    return 2 * torch.atan2(apart, together)


@metric(
    key="ml_tagwise_m",
    group="multilabel_sets",
    title="distance from scaled tag-wise averages",
    meaning=(
        "Share of the centred label sets' means that the tag-wise averages leave over, with the "
        "best scale for the multiplicity."
    ),
    formula=(
        r"\min_{c\ge0}\frac{\sum_{|S|=m}\lVert(\mu_S-\mu_G)-c\,\frac1m\sum_{k\in S}"
        r"(\mu_k-\mu_G)\rVert^2}{\sum_{|S|=m}\lVert\mu_S-\mu_G\rVert^2}"
    ),
    source="ours, for the tag-wise average property with one scale a multiplicity",
    reads=("centred_means", "centre_averages"),
    high=1.0,
    zero="the label sets' means are their tag-wise averages, up to one scale",
    undefined=_ZERO,
)
def tagwise_distance(
    centred_means: Float[Tensor, "s d"], centre_averages: Float[Tensor, "s d"]
) -> Float[Tensor, ""]:
    """Compute the share that the scaled averages leave over. Shifting all features changes nothing.

    NaN if all means or all averages are zero.
    """
    scale = tagwise_scale(centred_means, centre_averages).clamp(min=0)
    rest = centred_means - scale * centre_averages
    return rest.square().sum() / centred_means.square().sum()


@metric(
    key="ml_scale_m",
    group="multilabel_sets",
    title="scale of tag-wise averages",
    meaning="Scale of the tag-wise averages that fits the label sets' means best.",
    formula=(
        r"\frac{\sum_{|S|=m}\langle\mu_S-\mu_G,a_S\rangle}{\sum_{|S|=m}\lVert a_S\rVert^2},\quad "
        r"a_S=\frac1m\sum_{k\in S}(\mu_k-\mu_G)"
    ),
    source="ours; the ratio of scales in the theorem of Li, Li, Wang and Qu 2024",
    reads=("centred_means", "centre_averages"),
    low=-math.inf,
    zero="the label sets' means have no part along the averages",
    at_collapse=lambda k: math.nan,
    two_sided=True,
    undefined=_ZERO,
)
def tagwise_scale(
    centred_means: Float[Tensor, "s d"], centre_averages: Float[Tensor, "s d"]
) -> Float[Tensor, ""]:
    """Compute the scale of least squares."""
    return (centred_means * centre_averages).sum() / centre_averages.square().sum()


@metric(
    key="ml_accuracy",
    group="multilabel",
    title="accuracy of label sets",
    meaning="Share of the samples whose labels have the largest logits.",
    formula=(
        r"\frac1n\sum_i\mathbb 1\bigl[\min_{k\in S_i}z_{ik}>\max_{k\notin S_i}z_{ik}\bigr],"
        r"\quad z_i=Wh_i+b"
    ),
    source="ours; the decision of Li, Li, Wang and Qu 2024 for a known multiplicity",
    reads=("logits", "present"),
    needs={"head"},
    high=1.0,
    zero="no sample has its labels first",
    better="high",
    undefined="a logit is beyond the range of float64",
)
def accuracy(logits: Iterable[Float[Tensor, "m k"]], present: Bool[Tensor, "n k"]) -> float:
    """Count the samples whose least logit of a label exceeds all other logits."""
    hits, start = 0, 0
    for block in logits:
        if not bool(torch.isfinite(block).all()):
            return math.nan
        labels = present[start : start + len(block)]
        least = block.masked_fill(~labels, math.inf).amin(1)
        hits += int((least > block.masked_fill(labels, -math.inf).amax(1)).sum())
        start += len(block)
    return hits / len(present)


@dataclass(frozen=True)
class SingleLabels:
    """Samples with one label, all samples' logits, and the classifier, as metrics read them.

    Attributes:
        stats: Statistics of the samples with one label; None unless every class has such samples.
        weight: Weight of the classifier, scaled by a power of two; None without a classifier.
        logits: Blocks of the logits of all samples with labels.
        present: Labels of these samples.
    """

    stats: ClassStatistics | None
    weight: Float[Tensor, "k d"] | None
    logits: Iterable[Float[Tensor, "m k"]]
    present: Bool[Tensor, "n k"]


@dataclass(frozen=True)
class MultilabelValues:
    """Values of multi-label collapse, and sentences on them.

    Attributes:
        metrics: Key to value; keys of a multiplicity m above 1 end in ``_m2``, ``_m3``.
        rows: Declaration of each key.
        notes: Sentences for the reader: samples left out, why a value is NaN.
        warnings: Sentences on values that may mislead.
        multiplicities: Multiplicity to numbers of samples and of label sets.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    rows: dict[str, Metric] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    multiplicities: dict[int, tuple[int, int]] = field(default_factory=dict)


def multilabel_collapse(
    features: Shaped[Tensor, "n d"],
    present: Bool[Tensor, "n k"],
    weight: Float[Tensor, "k d"] | None = None,
    bias: Float[Tensor, " k"] | None = None,
) -> MultilabelValues:
    """Compute all values that the label sets and the classifier allow.

    Args:
        features: Finite features; some samples have labels.
        present: True for the labels of each sample, of at least two classes.
        weight: Weight of the classifier; None leaves out what needs a classifier.
        bias: Bias of the classifier; None for zero.
    """
    values = MultilabelValues()
    multiplicity = present.sum(1)
    if bool((multiplicity == 0).any()):
        values.notes.append(
            f"{int((multiplicity == 0).sum())} of {len(present)} samples left out: without a label"
        )
        kept = multiplicity > 0
        features, present, multiplicity = features[kept], present[kept], multiplicity[kept]
    exponent = exponent_of(features, COPY_LIMIT)
    scaled = times_power(features.to(torch.float64), -exponent) if exponent else features
    class_means = scaled.new_zeros(present.shape[1], scaled.shape[1], dtype=torch.float64)
    known = present.new_zeros(present.shape[1])
    found = {
        m: _gather(scaled[multiplicity == m], present[multiplicity == m], m, class_means, known)
        for m in multiplicity.unique().tolist()
    }
    counts = {m: (int(sets.counts.sum()), len(sets.counts)) for m, sets in found.items()}
    values.multiplicities.update(counts)
    _warn_of_few(values, found)
    singles = found.pop(1, None)
    if singles and not found:
        values.notes.append("every sample has one label: measure has more metrics for these")
    if singles:
        # In place: the label sets of all multiplicities have these tensors, not yet read.
        classes = singles.members.to(torch.uint8).argmax(1)
        class_means[classes], known[classes] = singles.means, True
    single = SingleLabels(
        stats=singles.stats if singles and bool(known.all()) else None,
        weight=None if weight is None else times_power(weight, -exponent_of(weight, METRIC_LIMIT)),
        logits=() if weight is None else _logits(features, weight, bias),
        present=present,
    )
    unknown = _describe_unknown(known)
    reasons: dict[str, str] = {}
    for row in _rows_of("multilabel"):
        if weight is not None or not row.needs:
            if unknown and any(path.startswith("stats") for path in row.reads):
                reasons[row.key] = unknown
            _add(values, row.key, row, math.nan if row.key in reasons else row.compute(single))
    for m, sets in found.items():
        undefined = _find_undefined(sets, unknown)
        reasons |= {f"{name}{m}": reason for name, reason in undefined.items()}
        for row in _rows_of("multilabel_sets"):
            value = math.nan if row.key in undefined else row.compute(sets)
            _add(values, f"{row.key}{m}", row, value)
    _note_angles(values, found, reasons)
    for key, value in values.metrics.items():
        if not math.isfinite(value):
            values.metrics[key] = math.nan
            reasons.setdefault(key, values.rows[key].undefined)
    for reason in dict.fromkeys(reasons.values()):
        keys = [key for key in values.metrics if reasons.get(key) == reason]
        values.notes.append(f"{_list(keys, list(found))} undefined: {reason}")
    return values


def _rows_of(group: str) -> list[Metric]:
    return [row for row in metrics_of_module(__name__) if row.group == group]


def _add(values: MultilabelValues, key: str, row: Metric, value: float | Tensor) -> None:
    values.metrics[key], values.rows[key] = float(value), row


def _gather(
    features: Shaped[Tensor, "n d"],
    present: Bool[Tensor, "n k"],
    multiplicity: int,
    class_means: Float[Tensor, "k d"],
    known: Bool[Tensor, " k"],
) -> LabelSets:
    """Gather the statistics of the samples of one multiplicity, beside the class means."""
    members, index, counts = torch.unique(
        present.to(torch.uint8), dim=0, return_inverse=True, return_counts=True
    )
    # In the order of the classes: the first set begins with class 0.
    members, index, counts = members.flip(0).bool(), len(members) - 1 - index, counts.flip(0)
    moments = ClassMoments(
        len(members),
        features.shape[1],
        statistics=["scatter"] if multiplicity == 1 else [],
        prior="uniform",
        class_counts=counts,
        device=features.device,
    )
    moments.update(features, index)
    stats = finish(moments).in_range() if len(members) > 1 else None
    if stats and multiplicity > 1:
        stats = _select_repeated(stats)
    # Means in the unit of all multiplicities, statistics each in a unit that keeps them in range.
    return LabelSets(multiplicity, members, counts, moments.means, stats, class_means, known)


def _select_repeated(stats: ClassStatistics) -> ClassStatistics | None:
    """Leave out label sets of one sample, which vary in nothing; None if fewer than two stay."""
    kept = stats.counts > 1
    sets = int(kept.sum())
    if sets < 2:
        return None
    return replace(
        stats,
        classes=stats.classes[kept],
        counts=stats.counts[kept],
        prior=torch.full_like(stats.prior[kept], 1 / sets),
        offsets=stats.offsets[kept],
        class_traces=stats.class_traces[kept],
    )


def _logits(
    features: Shaped[Tensor, "n d"],
    weight: Float[Tensor, "k d"],
    bias: Float[Tensor, " k"] | None,
) -> Iterable[Float[Tensor, "m k"]]:
    """Yield the logits of all samples by blocks, in float64."""
    for rows in row_blocks(len(features), max(weight.shape)):
        logits = features[rows].to(torch.float64) @ weight.mT
        yield logits if bias is None else logits + bias


def _describe_unknown(known: Bool[Tensor, " k"]) -> str:
    """Say which classes no sample has alone; empty if there are none."""
    unknown = (~known).nonzero()[:, 0].tolist()
    if not unknown:
        return ""
    return (
        f"{len(unknown)} of {len(known)} classes have no sample with that label alone (class "
        f"{list_names(unknown, 5)}), and so no mean; to measure the other classes, drop these "
        "columns and every sample that has one of these labels"
    )


def _find_undefined(sets: LabelSets, unknown: str) -> dict[str, str]:
    """Return the reason of every metric of one multiplicity that is not defined.

    Args:
        sets: Label sets of the multiplicity.
        unknown: Sentence of `_describe_unknown`.
    """
    if sets.multiplicity == sets.members.shape[1]:
        reason = "one label set holds all classes, and their average is zero at collapse"
        return {row.key: reason for row in _rows_of("multilabel_sets")}
    undefined = dict.fromkeys(("ml_tagwise_m", "ml_scale_m"), unknown) if unknown else {}
    if sets.stats is None:
        undefined["ml_nc1_quotient_m"] = "fewer than two label sets have two samples"
    angles = int(sets.has_angle.sum())
    if not angles:
        reason = "no label set has labels that samples have alone, and means that are not zero"
        undefined |= dict.fromkeys(("ml_angle_m", "ml_ncm_m"), reason)
    elif sets.num_combinations * angles > MOST_ANGLES:
        undefined["ml_ncm_m"] = f"more than {MOST_ANGLES:,} angles to compare"
    return undefined


def _note_angles(
    values: MultilabelValues, found: dict[int, LabelSets], reasons: dict[str, str]
) -> None:
    """Note the label sets that the angles leave out."""
    left_out = {m: int((~sets.has_angle).sum()) for m, sets in found.items()}
    said = [
        f"{few} of {len(found[m].counts)} with {m} labels"
        for m, few in left_out.items()
        if few and f"ml_angle_m{m}" not in reasons
    ]
    if said:
        values.notes.append(
            "ml_angle_m and ml_ncm_m leave out label sets with a label that no sample has alone, "
            f"or a mean of zero: {', '.join(said)}"
        )


def _warn_of_few(values: MultilabelValues, found: dict[int, LabelSets]) -> None:
    """Warn of label sets whose means are noisy and whose variability is too low."""
    said = [
        f"{int((sets.counts < _FEW).sum())} of {len(sets.counts)} with {m} label{'s' * (m > 1)}"
        for m, sets in found.items()
        if bool((sets.counts < _FEW).any()) and m < sets.members.shape[1]
    ]
    if said:
        values.warnings.append(
            f"label sets of fewer than {_FEW} samples have noisy means, which widen angles, and "
            f"make ml_nc1 and ml_nc1_quotient_m too low: {', '.join(said)}"
        )


def _list(keys: list[str], multiplicities: list[int]) -> str:
    """List keys, with a verb; a key of each of many multiplicities is named once."""
    names = []
    for key in keys:
        general = key.rstrip("0123456789")
        every = {f"{general}{m}" for m in multiplicities}
        if general.endswith("_m") and len(every) > 3 and every <= set(keys):
            key = f"{general} of every m"
        names.append(key)
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return f"{names[0]} is"
    return f"{', '.join(names[:-1])} and {names[-1]} are"
