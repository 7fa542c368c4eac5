"""Standard errors of metrics: which metrics have one, and why the others have none."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS
from ncscope.stats.jackknife import GROUPS, Estimate, jackknife

_ROUNDING = 1e-12
_DISTANCES = frozenset({"nc2", "nc3"})
"""Groups whose metrics are distances: near collapse they are not smooth, and errors are skewed."""

_WITHOUT_FEATURES = frozenset({"entropy_weights"})
"""Metrics of classifier and class sizes, which vary only as the sizes are no multiples of G."""

_FEWEST_BY_OWN_MEANS = 40
"""Least number of samples in a class for an error of the nearest-mean accuracy.

Every class mean holds the samples that it decides. In classes of 22 samples the intervals cover
99.8 %, and binomial ones, with the class means held, cover 88 % in larger classes.
"""

_FEWEST_DECISIONS = 5
"""Least number of decisions of either kind at which a rate's error is about normal."""


@dataclass(frozen=True)
class Uncertainty:
    """Standard errors of a layer's metrics.

    Attributes:
        standard_errors: Metric key to standard error; metrics without a trustworthy one are absent.
        bias_corrected: Metric key to corrected value, of the same metrics. Accuracies and NC4 are
            not corrected: they jump as a decision changes, and the correction would add noise.
        reasons: Sentences that say which metrics have none, and why.
    """

    standard_errors: Mapping[str, float]
    bias_corrected: Mapping[str, float]
    reasons: tuple[str, ...]


def estimated(
    values: Mapping[str, float],
    without: Sequence[Mapping[str, float]],
    num_samples: int,
    smallest: int,
) -> Uncertainty:
    """Combine the values without each group into standard errors.

    Args:
        values: Metrics of all samples, with aliases.
        without: Metrics without each group; empty if a class has too few samples.
        num_samples: Number of samples.
        smallest: Number of samples of the smallest class.
    """
    estimates: dict[str, Estimate] = {}
    refused: dict[str, list[str]] = {}
    for row in METRICS.values():
        if row.key not in values:
            continue
        estimate, reason = _estimate(row, values[row.key], without, num_samples, smallest)
        for key in (row.key, *row.aliases):
            if estimate is None:
                refused.setdefault(reason, []).append(key)
            else:
                estimates[key] = estimate
    return Uncertainty(
        {key: each.standard_error for key, each in estimates.items()},
        {key: each.bias_corrected for key, each in estimates.items()},
        tuple(_reasons(refused)),
    )


def _reasons(refused: Mapping[str, Iterable[str]]) -> Iterable[str]:
    return (f"no standard error of {', '.join(keys)}: {why}" for why, keys in refused.items())


def _estimate(
    row: Metric,
    value: float,
    without: Sequence[Mapping[str, float]],
    num_samples: int,
    smallest: int,
) -> tuple[Estimate | None, str]:
    """Return the estimate of one metric; without an estimate, the reason."""
    if math.isnan(value):
        return None, "the value is undefined"
    if not without:
        return None, f"a class has {smallest} samples, and the jackknife needs {GROUPS} in each"
    if row.key in _WITHOUT_FEATURES:
        return None, "the value depends on the classifier and the class sizes alone"
    left = [each.get(row.key, math.nan) for each in without]
    if any(map(math.isnan, left)):
        return None, "the value is undefined without one of the groups"
    estimate = jackknife(value, left)
    if "decisions" in row.needs:
        if min(value, 1 - value) * num_samples < _FEWEST_DECISIONS:
            return None, f"fewer than {_FEWEST_DECISIONS} samples are decided otherwise"
        if row.key == "ncc_accuracy" and smallest < _FEWEST_BY_OWN_MEANS:
            return None, f"a class has {smallest} samples, and fewer than {_FEWEST_BY_OWN_MEANS}"
        estimate = Estimate(estimate.standard_error, value)
    if estimate.standard_error <= _ROUNDING * abs(value):
        return None, "the value does not vary with the samples"
    if row.group in _DISTANCES and row.better == "low" and estimate.interval[0] <= 0:
        return None, "the interval reaches collapse, where the error is not symmetric"
    return estimate, ""
