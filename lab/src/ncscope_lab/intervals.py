"""Confidence intervals of a mean over seeds and of a share of trials, and what they can decide."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any, Literal

import numpy as np
from scipy import stats

Scale = Literal["plain", "ratio", "correlation"]
"""Scale on which values are averaged."""
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
CONFIDENCE = 0.95
POWER = 0.8
"""Share of repetitions of an experiment in which an effect shall show."""
SHARE = (0.0, 1.0)
"""Least and greatest possible value of a share."""

_BOOTSTRAP_FROM = 10
_RESAMPLES = 9_999
_MANY = 1_000
_NO_BOUNDS = (-inf, inf)
_TRANSFORMS: Mapping[Scale, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "plain": (np.asarray, float),
    "ratio": (np.log, np.exp),
    "correlation": (np.arctanh, np.tanh),
}


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A 95 % confidence interval of a mean, or of a share of trials.

    Attributes:
        estimate: Mean of the values on their scale, or the share.
        low: Lower end.
        high: Upper end.
        count: Number of values, one per seed, network or pair.
        method: ``"t"`` (Student's t, below ten values), ``"bootstrap"`` (studentised, from ten
            values on) or ``"binomial"`` (exact, of a share).
        scale: ``"ratio"`` if the interval is symmetric in the logarithms of the values,
            ``"correlation"`` if it is symmetric in Fisher's z, else ``"plain"``.
    """

    estimate: float
    low: float
    high: float
    count: int
    method: Literal["t", "bootstrap", "binomial"]
    scale: Scale = "plain"

    def record(self) -> dict[str, Any]:
        """Return the interval in types of JSON, with infinities and NaN as null."""
        return {
            key: None if isinstance(value, float) and not isfinite(value) else value
            for key, value in asdict(self).items()
        }


def mean_interval(
    values: Sequence[float],
    *,
    scale: Scale = "plain",
    step: float = 0.0,
    bounds: tuple[float, float] = _NO_BOUNDS,
) -> Interval | None:
    """Compute the 95 % interval of the mean: Student's t below ten values, else the bootstrap.

    Ratios are averaged as logarithms and correlations as Fisher's z, the inverse hyperbolic
    tangent, so that no interval of ratios contains 0 and none of correlations passes 1 or -1. A
    correlation of exactly 1 or -1 has no finite z: it counts as half a step less, and without a
    ``step`` there is no interval. An interval of plain values is cut off at their bounds, which
    contain the mean, so that it misses the mean no more often.

    Values that are all alike say nothing about their spread. If they are coarse, such as the share
    of ten intervals, and ``step`` is their spacing, then a standard deviation below that of
    rounding, ``step / sqrt(12)``, is replaced by it, and the interval is Student's.

    Args:
        values: Independent values.
        scale: ``"plain"``, ``"ratio"`` or ``"correlation"``.
        step: Spacing of the possible values; 0 if they are continuous, or ratios.
        bounds: Least and greatest possible value.

    Returns:
        The interval; None for fewer than two values, values that are not finite, ratios that are
        not positive, and without a ``step`` for values that are all alike and for correlations of
        which one is 1 or -1.

    Example:
        >>> mean_interval([1.0, 2.0, 3.0]).estimate, mean_interval([1.0]), mean_interval([1, 1])
        (2.0, None, None)
        >>> coarse = mean_interval([0.8, 0.8, 0.8], step=0.1)
        >>> round(coarse.low, 3), round(coarse.high, 3)
        (0.728, 0.872)
        >>> fisher = mean_interval([0.7, 0.9, 0.95], scale="correlation")
        >>> round(fisher.low, 2), round(fisher.high, 2)
        (0.18, 0.99)
    """
    numbers = _within_step(values, scale, step)
    if len(numbers) < 2 or not np.isfinite(numbers).all():
        return None
    rounding = step / 12**0.5
    if scale == "correlation" and step:
        rounding /= 1 - float(np.square(numbers).max())  # slope of Fisher's z
    forth, back = _TRANSFORMS[scale]
    with np.errstate(divide="ignore", invalid="ignore"):
        sample = forth(numbers)
    if not np.isfinite(sample).all():
        return None
    coarse = float(sample.std(ddof=1)) < rounding
    if np.ptp(sample) == 0 and not coarse:
        return None
    few = coarse or len(numbers) < _BOOTSTRAP_FROM
    low, high = _student(sample, rounding) if few else _bootstrap(sample)
    with np.errstate(over="ignore"):
        estimate, low, high = (float(back(at)) for at in (sample.mean(), low, high))
    return Interval(
        estimate=estimate,
        low=max(low, bounds[0]),
        high=min(high, bounds[1]),
        count=len(numbers),
        method="t" if few else "bootstrap",
        scale=scale,
    )


def _within_step(values: Sequence[float], scale: Scale, step: float) -> Vector:
    """Return the values, with correlations of exactly 1 or -1 as half a step less."""
    numbers = np.array(values, dtype=np.float64)
    return numbers.clip(step / 2 - 1, 1 - step / 2) if scale == "correlation" else numbers


def _student(values: Vector, least: float) -> tuple[float, float]:
    error = max(float(values.std(ddof=1)), least) / len(values) ** 0.5
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return float(values.mean()) - half, float(values.mean()) + half


def _bootstrap(values: Vector) -> tuple[float, float]:
    """Compute the bootstrap interval of the studentised mean.

    The percentile and BCa bootstraps miss the mean of ten normal values in 10 % of draws; this one
    misses it in 5 %. A resample of equal values has no standard error: its t value is taken as
    infinite, so that values which are nearly all alike leave a claim undecided.
    """
    count = len(values)
    drawn = values[np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))]
    off, error = drawn.mean(1) - values.mean(), stats.sem(drawn, axis=1)
    alike = np.ptp(drawn, axis=1) == 0
    far = np.where(off == 0, 0.0, np.copysign(inf, off))
    studentised = np.where(alike, far, off / np.where(alike, 1.0, error))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(studentised, [1 - tail, tail], method="nearest")
    mean, scale = float(values.mean()), float(stats.sem(values))
    return mean - float(low) * scale, mean - float(high) * scale


def share_interval(hits: Sequence[bool]) -> Interval:
    """Compute the exact (Clopper-Pearson) 95 % interval of a share of independent trials.

    Args:
        hits: Outcome of each trial; at least one.

    Example:
        >>> round(share_interval([True] * 10).low, 3)
        0.692
    """
    share = stats.binomtest(sum(hits), len(hits)).proportion_ci(CONFIDENCE)
    return Interval(
        estimate=sum(hits) / len(hits),
        low=float(share.low),
        high=float(share.high),
        count=len(hits),
        method="binomial",
    )


def smallest_effect(
    values: Sequence[float], border: float, sign: int, scale: Scale, step: float = 0.0
) -> float:
    r"""Return the mean nearest to a border that values like these show in 80 % of repetitions.

    A mean $m$ shows if its 95 % interval excludes the border. With $n$ values of standard deviation
    $s$ that is so in 80 % of repetitions if $|m - b| = (t_{.975} + t_{.8})\, s / \sqrt n$, with
    Student's quantiles for $n - 1$ degrees of freedom, an approximation to the noncentral t.

    Args:
        values: Values that have an interval on this scale.
        border: Border of the claim, in the units of the values.
        sign: 1 for means above the border, -1 for means below.
        scale: Scale on which the values are averaged.
        step: Spacing of the possible values, see `mean_interval`.

    Returns:
        The mean in the units of the values; NaN if the border has no place on the scale.
    """
    forth, back = _TRANSFORMS[scale]
    with np.errstate(all="ignore"):
        sample, start = forth(_within_step(values, scale, step)), float(forth(border))
        error = float(stats.sem(sample))
        return float(back(start + sign * _quantiles(len(values)) * error))


def seeds_to_decide(
    values: Sequence[float], border: float, scale: Scale, step: float = 0.0
) -> int | None:
    """Return how many values like these would decide on which side of a border their mean is.

    With so many the interval of a mean as far from the border as the present one excludes the
    border in 80 % of repetitions.

    Args:
        values: Values that have an interval on this scale.
        border: Border of the claim, in the units of the values.
        scale: Scale on which the values are averaged.
        step: Spacing of the possible values, see `mean_interval`.

    Returns:
        The number; None if a thousand are too few, or a value has no place on the scale.

    Example:
        >>> seeds_to_decide([1.0, 2.0, -0.5], 0.0, "plain")
        20
    """
    with np.errstate(all="ignore"):
        forth = _TRANSFORMS[scale][0]
        sample, start = forth(_within_step(values, scale, step)), float(forth(border))
        # Without a step, a correlation of 1 is infinite on this scale.
        far, spread = abs(float(sample.mean()) - start), float(sample.std(ddof=1))
    counts = np.arange(len(values) + 1, _MANY + 1)
    enough = counts[far >= _quantiles(counts) * spread / counts**0.5]
    return int(enough[0]) if len(enough) else None


def trials_to_decide(hits: Sequence[bool], border: float) -> int | None:
    """Return of how many trials with this share of hits the interval excludes a border.

    Args:
        hits: Outcome of each trial.
        border: Border of the claim.

    Returns:
        The number; None if a thousand are too few.

    Example:
        >>> trials_to_decide([True] * 3, 0.5), trials_to_decide([True, False], 0.5)
        (6, None)
    """
    share = sum(hits) / len(hits)
    for count in range(len(hits) + 1, _MANY + 1):
        good = round(share * count)
        found = share_interval([True] * good + [False] * (count - good))
        if not found.low <= border <= found.high:
            return count
    return None


def _quantiles(count: Any) -> Any:
    return stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) + stats.t.ppf(POWER, count - 1)
