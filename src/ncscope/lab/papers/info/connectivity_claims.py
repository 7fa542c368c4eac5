"""Claims of INFO section 5.2 on pairs of runs and on the networks between them, over seeds.

A pair counts only if both runs are trained, and rates are compared only where the training accuracy
is the same: networks that have learnt little are connected for want of a distance.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

from ncscope.lab.evidence.judging import SHARE, Region, above, below, combined, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.runs import by_batch, extent, least
from ncscope.lab.papers.trained import average, ends, ratio, values
from ncscope.report.claims import Claim

AS_THEY_ARE, REESTIMATED = "as they are", "re-estimated"
CHANCE = 1.5
"""An accuracy counts as random guessing if it is at most this multiple of chance."""
CONNECTED = 0.02
"""Two runs are connected if the accuracy between them falls at most this far below its mean at the
ends (Frankle et al. 2020 take 2 %)."""
UNCHANGED = 0.05
"""A ratio counts as almost unchanged if it varies by at most this."""
TRAINED = 0.95
"""Least training accuracy of both runs of a pair that counts."""
MATCHED = 0.01
"""Largest difference of mean training accuracy at which rates are compared."""

_RATIOS = ("mir", "hdr")
_SECTION = "INFO, section 5.2"


def claims_on(
    rows: Sequence[Observation], data: str, rates: Mapping[float, Sequence[str]]
) -> list[Claim]:
    """Test section 5.2 on one data set.

    Args:
        rows: Rows of the study.
        data: Name of the data set.
        rates: Names of the pairs by learning rate, the highest first, with equal seeds in equal
            order.
    """
    rates = dict(sorted(rates.items(), reverse=True))
    highest, lowest = max(rates), min(rates)
    claims = []
    if highest > lowest:
        claims += _not_connected(rows, rates[highest], f"{data}, rate {highest:g}")
        claims.append(_calming(rows, rates, data, "accuracy", "accuracy"))
        for key in _RATIOS:
            claims.append(by_batch(partial(_calming, rows, rates, data, key.upper()), key))
        claims.append(_helped(rows, rates, data))
    return claims + _connected(rows, rates, f"{data}, rate {lowest:g}")


def between(
    rows: Sequence[Observation], part: str, statistics: str = AS_THEY_ARE
) -> list[Observation]:
    """Select the networks between the runs of a pair, in order of omega.

    Args:
        rows: Rows of the study.
        part: Name of the pair.
        statistics: `AS_THEY_ARE` or `REESTIMATED`, for batch norms.
    """
    return [row for row in rows if row.part == part and row.get("statistics") == statistics]


def training_accuracies(rows: Sequence[Observation], part: str) -> tuple[float, float]:
    """Return the training accuracy of both runs of a pair at the end; NaN if not measured."""
    runs = [
        [row for row in rows if (row.part, row.split) == (part, f"train, {name} run")]
        for name in ("first", "second")
    ]
    first, second = (ends(run, "accuracy")[1] for run in runs)
    return first, second


def _trained(rows: Sequence[Observation], pairs: Sequence[str]) -> list[bool]:
    return [min(training_accuracies(rows, pair)) >= TRAINED for pair in pairs]


def _matched(
    rows: Sequence[Observation], pairs: Sequence[str], reference: Sequence[str]
) -> list[bool]:
    """Return which pairs are trained as well as their reference pair."""
    both = zip(pairs, reference, strict=False)
    gaps = [
        average(training_accuracies(rows, one)) - average(training_accuracies(rows, other))
        for one, other in both
    ]
    trained = zip(_trained(rows, pairs), _trained(rows, reference), strict=False)
    return [all(each) and abs(gap) <= MATCHED for each, gap in zip(trained, gaps, strict=True)]


def _counted(numbers: Sequence[float], counts: Sequence[bool]) -> list[float]:
    return [number if good else math.nan for number, good in zip(numbers, counts, strict=False)]


def _accuracies(rows: Sequence[Observation], rates: Mapping[float, Sequence[str]]) -> str:
    told = ", ".join(
        f"{average([a for pair in pairs for a in training_accuracies(rows, pair)]):.3f} at {rate:g}"
        for rate, pairs in rates.items()
    )
    return f"training accuracy {told}"


def _not_connected(rows: Sequence[Observation], pairs: Sequence[str], where: str) -> list[Claim]:
    """Test the paper's observations on runs that are not connected."""
    trained = _trained(rows, pairs)
    paths = [between(rows, pair) for pair in pairs]
    claims = [
        judged(
            f"{where}: accuracy falls to random guessing for omega from 0.4 to 0.6: to less than "
            f"{CHANCE} times chance",
            source=f"{_SECTION} and figure 3",
            values=_counted([_most_over_chance(path) for path in paths], trained),
            region=below(CHANCE),
            bounds=(0.0, math.inf),
            of="pairs",
            evidence="largest accuracy over chance",
        )
    ]
    judge = partial(_anomaly, where, paths, trained)
    return claims + [by_batch(judge, key) for key in _RATIOS]


def _anomaly(
    where: str,
    paths: Sequence[Sequence[Observation]],
    trained: Sequence[bool],
    key: str,
    estimate: str,
) -> Claim:
    """Test that MIR rises in the middle, or that HDR falls near the runs."""
    rising = key.startswith("mir")
    what = (
        f"MIR{estimate} is higher in the middle of the line between the runs, for omega from 0.4 "
        "to 0.6, than on both sides of the middle"
        if rising
        else f"HDR{estimate} is lower at the two networks next to the ends of the line than at the "
        "runs"
    )
    measure = middle_rise if rising else rise_near_ends
    region: Region = above(0) if rising else below(0)
    return judged(
        f"{where}: {what}",
        source=f"{_SECTION} and figure 3",
        values=_counted([measure(path, key) for path in paths], trained),
        region=region,
        of="pairs",
    )


def _most_over_chance(path: Sequence[Observation]) -> float:
    middle = _within(path, 0.4, 0.6)
    classes = int(path[0]["num_classes"]) if path else 0
    found = values(middle, "accuracy")
    known = bool(found) and all(map(math.isfinite, found))
    return max(found) * classes if known else math.nan


def _within(path: Sequence[Observation], low: float, high: float) -> list[Observation]:
    return [row for row in path if low - 1e-9 <= float(row["omega"]) <= high + 1e-9]


def middle_rise(path: Sequence[Observation], key: str) -> float:
    """Return the mean for omega from 0.4 to 0.6, minus the higher mean of both sides of that.

    Args:
        path: Networks between two runs.
        key: Key of the metric.
    """
    sides = ((0.05, 0.35), (0.4, 0.6), (0.65, 0.95))
    left, middle, right = (average(values(_within(path, *side), key)) for side in sides)
    return middle - max(left, right) if math.isfinite(left + right) else math.nan


def rise_near_ends(path: Sequence[Observation], key: str) -> float:
    """Return the larger change of a metric from either run to the nearest network between.

    Args:
        path: Networks between two runs.
        key: Key of the metric.
    """
    course = values(path, key)
    if len(course) < 3 or not all(map(math.isfinite, course)):
        return math.nan
    return max(course[1] - course[0], course[-2] - course[-1])


def _calming(
    rows: Sequence[Observation],
    rates: Mapping[float, Sequence[str]],
    data: str,
    name: str,
    key: str,
    estimate: str = "",
) -> Claim:
    """Test that a metric varies less between the runs at every lower learning rate."""
    text = (
        f"{data}: {name}{estimate} varies less between the runs at every lower learning rate than "
        "at the next higher"
    )
    source = f"{_SECTION} and figure 4"
    steps = {}
    for (higher, pairs), (lower, others) in pairwise(rates.items()):
        variations = [
            [extent(values(between(rows, pair), key)) for pair in each] for each in (others, pairs)
        ]
        numbers = [ratio(*both) for both in zip(*variations, strict=False)]
        told = " and ".join(f"{average(each):.4f}" for each in variations)
        steps[f"{lower:g} against {higher:g}"] = judged(
            text,
            source=source,
            values=_counted(numbers, _matched(rows, others, pairs)),
            region=below(1),
            scale="ratio",
            of="pairs",
            evidence=f"mean ranges {told}",
        )
    claim = combined(text, source=source, claims=steps, of="steps")
    return _with_evidence(claim, _accuracies(rows, rates))


def _with_evidence(claim: Claim, more: str) -> Claim:
    return Claim(
        text=claim.text,
        source=claim.source,
        verdict=claim.verdict,
        evidence=f"{claim.evidence}; {more}",
        interval=claim.interval,
    )


def _connected(
    rows: Sequence[Observation], rates: Mapping[float, Sequence[str]], where: str
) -> list[Claim]:
    """Test the paper's observations on connected runs, trained as well as those at other rates."""
    pairs, reference = rates[min(rates)], rates[max(rates)]
    counts = _matched(rows, pairs, reference)
    paths = [between(rows, pair) for pair in pairs]
    told = _accuracies(rows, rates)
    claims = [
        judged(
            f"{where}: accuracy falls by less than {CONNECTED} between the runs",
            source=f"{_SECTION} and figure 4",
            values=_counted([barrier(path) for path in paths], counts),
            region=below(CONNECTED),
            bounds=SHARE,
            of="pairs",
            evidence=told,
        )
    ]

    def unchanged(key: str, estimate: str) -> Claim:
        return judged(
            f"{where}: {key[:3].upper()}{estimate} remains almost unchanged between the runs, "
            f"within {UNCHANGED}",
            source=f"{_SECTION} and figure 3",
            values=_counted([extent(values(path, key)) for path in paths], counts),
            region=below(UNCHANGED),
            bounds=SHARE,
            of="pairs",
            evidence=told,
        )

    return claims + [by_batch(unchanged, key) for key in _RATIOS]


def _helped(rows: Sequence[Observation], rates: Mapping[float, Sequence[str]], data: str) -> Claim:
    """Test whether re-estimated statistics reduce the fall where there is one."""
    text = (
        f"{data}: accuracy falls less between the runs if the statistics of batch norms are "
        "re-estimated, at every learning rate but the lowest"
    )
    claims = {}
    for rate in list(rates)[:-1]:
        plain, anew = (
            [barrier(between(rows, pair, statistics)) for pair in rates[rate]]
            for statistics in (AS_THEY_ARE, REESTIMATED)
        )
        gains = [one - other for one, other in zip(plain, anew, strict=True)]
        claims[f"rate {rate:g}"] = judged(
            text,
            source="ours",
            values=_counted(gains, _trained(rows, rates[rate])),
            region=above(0),
            of="pairs",
            evidence=f"mean falls {average(plain):.4f} and {average(anew):.4f}",
        )
    return combined(text, source="ours", claims=claims, of="rates")


def barrier(path: Sequence[Observation]) -> float:
    """Return the mean accuracy at the ends minus the least accuracy on the path."""
    start, end = ends(path, "accuracy")
    return (start + end) / 2 - least(values(path, "accuracy"))
