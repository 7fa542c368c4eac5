"""The rule by which a claim is held, not held or undecided."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log

import numpy as np
from scipy import stats

from ncscope.report.claims import Claim, ClaimVerdict, Interval

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]
CONFIDENCE = 0.95
_BOOTSTRAP_FROM = 10
_RESAMPLES = 9_999


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
    ratio: bool = False,
    step: float = 0.0,
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
        ratio: Judge the geometric mean of positive ratios, on the scale of logarithms.
        step: Spacing of the possible values, see `mean_interval`.
        evidence: Further numbers, appended to the interval and the values.

    Example:
        >>> judged("a gains", source="ours", values=[1.0, 1.2, 0.9], region=above(0)).verdict
        'held'
        >>> judged("a gains", source="ours", values=[1.0, 2.2, -0.9], region=above(0)).verdict
        'undecided'
    """
    interval = mean_interval(values, ratio=ratio, step=step)
    listed = ", ".join(f"{value:.3g}" for value in values)
    if interval is None:
        alike = len(values) > 1 and all(map(isfinite, values)) and min(values) == max(values)
        which = "values that are all alike" if alike else "fewer than two finite values"
        reason = f"no interval from {which}"
        told = f"{reason}: {listed or 'none measured'}"
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
    values: Sequence[float], *, ratio: bool = False, step: float = 0.0
) -> Interval | None:
    """Compute the 95 % interval of the mean: Student's t below ten values, else the bootstrap.

    Values that are all alike say nothing about their spread. If they are coarse, such as the share
    of ten intervals, and ``step`` is their spacing, then a standard deviation below that of
    rounding, ``step / sqrt(12)``, is replaced by it, and the interval is Student's.

    Args:
        values: Independent values.
        ratio: Compute the interval of the geometric mean of positive ratios.
        step: Spacing of the possible values; 0 if they are continuous, or ratios.

    Returns:
        The interval; None for fewer than two values, values that are not finite, ratios that are
        not positive, or values that are all alike without a ``step``.

    Example:
        >>> mean_interval([1.0, 2.0, 3.0]).estimate, mean_interval([1.0]), mean_interval([1, 1])
        (2.0, None, None)
        >>> coarse = mean_interval([0.8, 0.8, 0.8], step=0.1)
        >>> round(coarse.low, 3), round(coarse.high, 3)
        (0.728, 0.872)
    """
    numbers = list(map(float, values))
    if len(numbers) < 2 or not all(map(isfinite, numbers)):
        return None
    if ratio:
        if min(numbers) <= 0:
            return None
        numbers = [log(number) for number in numbers]
    sample = np.array(numbers)
    rounding = step / 12**0.5
    coarse = float(sample.std(ddof=1)) < rounding
    if np.ptp(sample) == 0 and not coarse:
        return None
    few = coarse or len(numbers) < _BOOTSTRAP_FROM
    low, high = _student(sample, rounding) if few else _bootstrap(sample)
    back = exp if ratio else float
    return Interval(
        estimate=back(np.mean(numbers)),
        low=back(low),
        high=back(high),
        count=len(numbers),
        method="t" if few else "bootstrap",
        ratio=ratio,
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
    name = "geometric mean" if interval.ratio else "mean"
    return (
        f"{name} {interval.estimate:.3g}, 95 % interval {interval.low:.3g} to {interval.high:.3g} "
        f"({interval.method}, {interval.count} {of})"
    )
