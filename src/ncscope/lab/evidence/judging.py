"""The rule by which a claim is held, not held or undecided."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
from scipy import stats

from ncscope.report.claims import Claim, ClaimVerdict, Interval, Scale

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
CONFIDENCE = 0.95
SHARE = (0.0, 1.0)
"""Least and greatest possible value of a share."""

_BOOTSTRAP_FROM = 10
_RESAMPLES = 9_999
_NO_BOUNDS = (-inf, inf)
_TRANSFORMS: Mapping[Scale, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "plain": (np.asarray, float),
    "ratio": (np.log, np.exp),
    "correlation": (np.arctanh, np.tanh),
}
_MEANS: Mapping[Scale, str] = {
    "plain": "mean",
    "ratio": "geometric mean",
    "correlation": "mean by Fisher's z",
}
_OFF_SCALE: Mapping[Scale, str] = {
    "plain": "",
    "ratio": "a ratio that is not positive",
    "correlation": "a correlation of exactly 1 or -1",
}


@dataclass(frozen=True)
class Region:
    """The open interval of values that a claim states.

    Attributes:
        low: Lower border; minus infinity if there is none.
        high: Upper border; infinity if there is none.
    """

    low: float = -inf
    high: float = inf

    def verdict(self, low: float, high: float) -> ClaimVerdict:
        """Judge the interval from ``low`` to ``high``: undecided if it contains a border."""
        if any(low <= border <= high for border in (self.low, self.high)):
            return "undecided"
        return "held" if self.low < low and high < self.high else "not held"


def above(border: float) -> Region:
    """Return the region of a claim that a value is above a border."""
    return Region(low=border)


def below(border: float) -> Region:
    """Return the region of a claim that a value is below a border."""
    return Region(high=border)


def within(margin: float) -> Region:
    """Return the region of a claim that a value lies within a stated margin of 0."""
    return Region(-margin, margin)


def decided(text: str, *, source: str, held: bool | None, evidence: str) -> Claim:
    """Return a deterministic claim, which needs no interval.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Claim`.
        held: Truth of the claim; None if a measurement that it needs is missing.
        evidence: Numbers on which the verdict rests.
    """
    verdict: ClaimVerdict = "undecided" if held is None else "held" if held else "not held"
    return Claim(text=text, source=source, verdict=verdict, evidence=evidence)


def judged(
    text: str,
    *,
    source: str,
    values: Sequence[float],
    region: Region,
    of: str = "seeds",
    scale: Scale = "plain",
    step: float = 0.0,
    bounds: tuple[float, float] = _NO_BOUNDS,
    evidence: str = "",
) -> Claim:
    """Judge a claim about a mean by its 95 % interval.

    The claim is held if the interval is inside the region, not held if the interval is outside, and
    undecided if the interval contains a border or there is none, see `mean_interval`.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Claim`.
        values: Independent values, such as the differences of paired runs, one per seed.
        region: Values that the claim states, in the units of ``values``.
        of: Plural noun for the values.
        scale: Scale of the values, see `mean_interval`.
        step: Spacing of the possible values, see `mean_interval`.
        bounds: Least and greatest possible value, such as `SHARE`.
        evidence: Further numbers, appended to the interval and the values.

    Example:
        >>> judged("a gains", source="ours", values=[1.0, 1.2, 0.9], region=above(0)).verdict
        'held'
        >>> judged("a gains", source="ours", values=[1.0, 2.2, -0.9], region=above(0)).verdict
        'undecided'
    """
    interval = mean_interval(values, scale=scale, step=step, bounds=bounds)
    listed = ", ".join(f"{value:.3g}" for value in values)
    if interval is None:
        told = f"no interval from {_lacking(values, scale)}: {listed or 'none measured'}"
        verdict: ClaimVerdict = "undecided"
    else:
        told = f"{_told(interval, of)}: {listed}"
        verdict = region.verdict(interval.low, interval.high)
    return Claim(
        text=text,
        source=source,
        verdict=verdict,
        evidence="; ".join(filter(None, (told, evidence))),
        interval=interval,
    )


def combined(
    text: str,
    *,
    source: str,
    claims: Mapping[str, Claim],
    enough: int | None = None,
    of: str = "networks",
) -> Claim:
    """Judge a claim about several networks from the claims about each.

    The claim is held if enough claims are held, not held if too few can be, undecided otherwise.

    Args:
        text: Text of the claim.
        source: Owner of the claim, see `Claim`.
        claims: Claim about each network, by name.
        enough: Number of claims that must hold; default all, and at least one.
        of: Plural noun for the counted items.
    """
    needed = max(1, len(claims)) if enough is None else enough
    verdicts = [claim.verdict for claim in claims.values()]
    good, open_ = verdicts.count("held"), verdicts.count("undecided")
    verdict: ClaimVerdict = "undecided"
    if good >= needed:
        verdict = "held"
    elif claims and good + open_ < needed:
        verdict = "not held"
    told = "; ".join(f"{name}: {claim.evidence}" for name, claim in claims.items())
    count = f"{good} of {len(claims)} {of} held, {open_} undecided"
    return Claim(
        text=text, source=source, verdict=verdict, evidence=f"{count}; {told or 'none to judge'}"
    )


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
    numbers = np.array(values, dtype=np.float64)
    if len(numbers) < 2 or not np.isfinite(numbers).all():
        return None
    rounding = step / 12**0.5
    if scale == "correlation" and step:
        numbers = numbers.clip(step / 2 - 1, 1 - step / 2)
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


def _told(interval: Interval, of: str) -> str:
    return (
        f"{_MEANS[interval.scale]} {interval.estimate:.3g}, 95 % interval {interval.low:.3g} to "
        f"{interval.high:.3g} ({interval.method}, {interval.count} {of})"
    )


def _lacking(values: Sequence[float], scale: Scale) -> str:
    """Return why values have no interval."""
    if len(values) < 2 or not all(map(isfinite, values)):
        return "fewer than two finite values"
    return "values that are all alike" if min(values) == max(values) else _OFF_SCALE[scale]
