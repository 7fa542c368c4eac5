"""Standard errors of metrics: which metrics have one, and why the others have none."""

import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ncscope.math.detection import FEWEST, share_interval
from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import BY_NAME, METRICS
from ncscope.metrics.reliability import noise_share
from ncscope.stats.jackknife import GROUPS, T_QUANTILE, Estimate, jackknife
from ncscope.stats.statistics import ClassStatistics

_ROUNDING = 1e-12

WITHOUT_LABELS = frozenset(row.key for row in METRICS.values() if not row.chance_level)
"""Metrics that no permutation of the labels changes: they have no chance level.

The scores of OOD detection do not use labels. NC5 does, but its chance level is not measured.
"""

_BOUNDS = {key: (row.low, row.high) for key, row in BY_NAME.items()}

_LARGEST_EXPONENT = 700.0
"""Exponent below which e to its power is finite."""

_FITTED = ("neco", "nci")
"""First words of the OOD scores that are fitted to class means and principal directions."""

_SMOOTH = frozenset({"minority_cosine_means"})
"""Metrics of NC2 and NC3 that have no bound at collapse, where the others are not smooth."""

LARGEST_NOISE = 0.05
"""Largest share of noise in the class means' spread for an error of a ratio or a distance.

Over Gaussian designs, intervals cover 92 to 98 % up to this share, 84 to 89 % at 0.2, and next to
nothing where noise is most of the spread: the bias is then no small perturbation.
"""

_STANDARD_ERRORS_AWAY = 5
"""Least distance of NC2 and NC3 from collapse, in standard errors, for an error to be offered.

At collapse these distances are 0, or at their bound, and not smooth. With two standard errors, the
draws of collapsed means that are offered an interval would be those whose interval misses.
"""

_FEWEST_BY_OWN_MEANS = 45
"""Least number of samples in a class for an error of the nearest-mean rule's shares.

Every class mean holds the samples that it decides. In classes of 22 and 40 samples the intervals
cover 99.8 and 99.5 %, in those of 47 97 %; binomial ones, with the class means held, cover 88 %.
"""

_FEWEST_DECISIONS = 5
"""Least number of decisions of either kind at which a rate's error is about normal."""


@dataclass(frozen=True)
class Sample:
    """Size and noise of the samples of a layer.

    Attributes:
        size: Number of samples.
        smallest: Number of samples of the smallest class.
        noise: Share of noise in the spread of the class means; see `noise_share`.
        own_means: True if the nearest-mean rule uses the class means of these samples.
        classes: Number of classes present.
        has_labels: True if the samples have labels.
    """

    size: int
    smallest: int
    noise: float = 0.0
    own_means: bool = True
    classes: int = 2
    has_labels: bool = True

    @classmethod
    def of(cls, stats: ClassStatistics, *, own_means: bool) -> "Sample":
        """Describe the samples of which statistics are given."""
        smallest, noise = int(stats.counts.min()), noise_share(stats)
        return cls(stats.num_samples, smallest, noise, own_means, stats.k, stats.has_labels)


@dataclass(frozen=True)
class Uncertainty:
    """Standard errors of a layer's metrics.

    Attributes:
        standard_errors: Metric key to standard error; metrics without a trustworthy one are absent.
        bias_corrected: Metric key to corrected value, of the same metrics. Accuracies and NC4 are
            not corrected: they jump as a decision changes, and the correction would add noise.
        reasons: Sentences that say which metrics have none, and why.
        warnings: A sentence if a class is too small for any.
    """

    standard_errors: Mapping[str, float]
    bias_corrected: Mapping[str, float]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def estimate_errors(
    values: Mapping[str, float],
    replicates: Sequence[Mapping[str, float]],
    sample: Sample,
    known: Mapping[str, float] | None = None,
    *,
    random_sizes: bool = False,
) -> Uncertainty:
    """Combine the values of the replicates into standard errors.

    Args:
        values: Metrics of all samples, with aliases.
        replicates: Metrics of each replicate; empty if a class has too few samples.
        sample: Size and noise of the samples.
        known: Standard errors of metrics of OOD samples, which no group of the samples shows.
        random_sizes: True if the class sizes of the replicates vary.
    """
    if not replicates:
        reason = (
            f"no standard errors: they need {GROUPS} samples in each class, and the fewest are "
            f"{sample.smallest}"
        )
        return Uncertainty({}, {}, (), (reason,))
    estimates: dict[str, Estimate] = {}
    refused: dict[str, list[str]] = {}
    for row in METRICS.values():
        if row.key not in values:
            continue
        if row.group == "ood":
            estimate, reason = _estimate_ood(row, values[row.key], sample, known or {})
        else:
            others = [each.get(row.key, math.nan) for each in replicates]
            estimate, reason = _estimate(row, values[row.key], others, sample)
            if random_sizes and row.key.startswith("minority"):
                estimate, reason = None, "which classes are the smaller ones varies"
        for key in (row.key, *row.aliases):
            if estimate is None:
                refused.setdefault(reason, []).append(key)
            else:
                estimates[key] = estimate
    return Uncertainty(
        {key: each.standard_error for key, each in estimates.items()},
        {key: each.bias_corrected for key, each in estimates.items()},
        (
            *_design(estimates, sample, random_sizes),
            *(f"no standard error of {', '.join(keys)}: {why}" for why, keys in refused.items()),
        ),
    )


def _design(keys: Collection[str], sample: Sample, random_sizes: bool) -> Iterator[str]:
    """Say which other samples the errors are of."""
    if not sample.has_labels or not keys:
        return
    if random_sizes:
        yield "the standard errors are those of other samples drawn with their classes"
    else:
        yield (
            "the standard errors hold the sizes of the classes fixed: if labels and samples were "
            "drawn together, ask for those of random sizes (uncertainty='random_sizes', or "
            "--random-sizes)"
        )
        if areas := [key for key in keys if key.endswith("_auroc")]:
            yield f"those of {', '.join(areas)} are of samples drawn with their classes"


def _estimate(
    row: Metric, value: float, replicates: Sequence[float], sample: Sample
) -> tuple[Estimate | None, str]:
    """Return the estimate of one metric; without an estimate, the reason."""
    if math.isnan(value):
        return None, "the value is undefined"
    if math.isinf(value):
        return None, "the value is infinite"
    if row.no_interval:
        return None, row.no_interval
    if not all(map(math.isfinite, replicates)):
        return None, "the value is undefined in one of the replicates"
    estimate = jackknife(value, replicates)
    if row.needs & {"decisions", "hits"}:
        return _estimate_rate(row, value, estimate, sample)
    if estimate.standard_error <= _ROUNDING * abs(value):
        return None, "the value does not vary with the samples"
    if value == 0 == row.low:
        return None, "the value is 0, the end of its range"
    if abs(estimate.bias_corrected - value) > T_QUANTILE * estimate.standard_error:
        # At the end of a range, as the ranks of noise, the corrected value may even lie beyond it.
        return None, "the estimate of its bias is larger than half of the interval would be"
    distance = row.group in ("nc2", "nc3")
    if (distance or row.noisy) and sample.noise > LARGEST_NOISE:
        return None, f"{sample.noise:.0%} of the spread of the class means is noise"
    away = _from_collapse(row, estimate.bias_corrected, sample.classes)
    near = away <= _STANDARD_ERRORS_AWAY * estimate.standard_error
    if distance and row.key not in _SMOOTH and near:
        return None, "the value is close to collapse, where its error is not symmetric"
    return estimate, ""


def _from_collapse(row: Metric, value: float, classes: int) -> float:
    """Return how far a value is from its bound, which it attains at collapse; below 0 beyond it."""
    if row.better == "high":
        return row.target(classes) - value
    return value if row.two_sided else value - row.target(classes)


def interval(key: str, value: float, estimate: Estimate) -> tuple[float, float]:
    """Return the 95 % interval of a metric.

    Errors of a small variance or ratio are proportional to the value, and skewed: of metrics in
    0..infinity the interval is that of the logarithm, mapped back, and of metrics between 0 and a
    bound that of the log odds of their share of the bound. Others have a symmetric interval, not
    clipped to their range.

    Args:
        key: Key of the metric, or an alias.
        value: Value of the metric.
        estimate: Standard error of the value, and the value without the estimate of its bias.
    """
    error, centre = estimate
    half, (low, high) = T_QUANTILE * error, _BOUNDS.get(key, (-math.inf, math.inf))
    if low != 0 or not (0 < value < high and 0 < centre < high):
        return centre - half, centre + half
    if math.isfinite(high):
        share = value / high
        ends = share_interval(centre / high, half / high / (share * (1 - share)))
        return high * ends[0], high * ends[1]
    ratio = math.exp(min(half / value, _LARGEST_EXPONENT))
    return centre / ratio, min(centre * ratio, sys.float_info.max)


def _estimate_ood(
    row: Metric, value: float, sample: Sample, known: Mapping[str, float]
) -> tuple[Estimate | None, str]:
    """Return the estimate of a metric of OOD samples, or the reason why there is none."""
    if math.isnan(value):
        return None, "the value is undefined"
    if row.no_interval:
        return None, row.no_interval
    if row.key.startswith(_FITTED) and sample.own_means:
        return None, "the score is fitted to the samples that it judges: pass reference= in Python"
    if row.key not in known:
        return None, f"fewer than {FEWEST} samples of a kind have scores among those of the other"
    return Estimate(known[row.key], value), ""


def _estimate_rate(
    row: Metric, value: float, estimate: Estimate, sample: Sample
) -> tuple[Estimate | None, str]:
    """Return the estimate of a share of the samples, which is not corrected."""
    if min(value, 1 - value) * sample.size < _FEWEST_DECISIONS:
        return None, f"fewer than {_FEWEST_DECISIONS} samples are decided otherwise"
    few = sample.smallest < _FEWEST_BY_OWN_MEANS
    if row.key != "accuracy" and sample.own_means and few:
        return None, f"a class has {sample.smallest} samples, fewer than {_FEWEST_BY_OWN_MEANS}"
    return Estimate(estimate.standard_error, value), ""
