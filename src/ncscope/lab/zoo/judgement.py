"""Quality of the order in which scores put the networks of the zoo, by target, with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncscope.lab.intervals import Interval, mean_interval
from ncscope.lab.zoo.results import ACCURACY, Cell
from ncscope.transfer.correlations import Values, ranks
from ncscope.transfer.quality import row_qualities
from ncscope.transfer.records import BASELINES, Score

LEAST_NETWORKS = 3
"""Networks that a target needs at least."""

_LEVEL = (2.5, 97.5)
_BLOCK = 50  # resamples at once: 128 networks take about 50 MB


class Judged(NamedTuple):
    """Quality of a score's order on one target.

    Attributes:
        weighted_tau: Weighted Kendall tau.
        tau: Kendall's tau b.
        regret: Best truth less the truth of the network that the score puts first.
        residual: Rank correlation that is left after the static baselines, see
            `residual_correlation`.
    """

    weighted_tau: float
    tau: float
    regret: float
    residual: float


ByTarget = Mapping[str, Judged]


def by_target(cells: Sequence[Cell], key: str, score: Score, truth: str = ACCURACY) -> ByTarget:
    """Judge a score on every target; cells without the truth are left out.

    A coefficient that is undefined, as for equal scores, counts as 0: such a score orders nothing.

    Args:
        cells: Cells of the networks to order.
        key: Key of the score in the cells.
        score: Its direction.
        truth: Key of the truth.
    """
    return by_score(cells, {key: score}, truth)[key]


def by_score(
    cells: Sequence[Cell], scores: Mapping[str, Score], truth: str = ACCURACY
) -> Mapping[str, ByTarget]:
    """Judge several scores on every target; `by_target` judges one score.

    Args:
        cells: Cells of the networks to order.
        scores: Direction of each score, by its key in the cells.
        truth: Key of the truth.

    Returns:
        Qualities by target, for each key.
    """
    found: dict[str, dict[str, Judged]] = {key: {} for key in scores}
    for target, own in grouped(cells, truth).items() if scores else ():
        known = np.array([cell.value(truth) for cell in own])
        values = np.stack([signed(own, key, score) for key, score in scores.items()])
        qualities = np.nan_to_num(row_qualities(values, np.tile(known, (len(values), 1))))
        facts = {name: signed(own, name, fact) for name, fact in BASELINES.items()}
        for key, row, (weighted, tau, _, regret) in zip(scores, values, qualities, strict=True):
            others = [fact for name, fact in facts.items() if name != key]
            left = residual_correlation(row, known, others)
            found[key][target] = Judged(weighted, tau, regret, 0.0 if math.isnan(left) else left)
    return found


def grouped(cells: Sequence[Cell], truth: str = ACCURACY) -> dict[str, list[Cell]]:
    """Return the cells with a known truth by target; targets with too few networks are left out.

    Args:
        cells: Cells of one number of images.
        truth: Key of the truth.
    """
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if math.isfinite(cell.value(truth)):
            found.setdefault(cell.target, []).append(cell)
    return {target: own for target, own in found.items() if len(own) >= LEAST_NETWORKS}


def signed(cells: Sequence[Cell], key: str, score: Score) -> Values:
    """Return a score of cells, the greater the better; minus infinity where it is undefined.

    Args:
        cells: Cells.
        key: Key of the score.
        score: Its direction.
    """
    values = np.array([score.better * cell.value(key) for cell in cells], dtype=np.float64)
    return np.where(np.isnan(values), -np.inf, values)


def residual_correlation(scores: Values, truth: Values, facts: Sequence[Values]) -> float:
    """Return Spearman's partial correlation: of ranks, after a linear fit of the facts' ranks.

    Args:
        scores: Scores, one a network.
        truth: True values.
        facts: Static baselines, each with a value a network.

    Returns:
        The correlation; NaN if nothing of the score or of the truth is left.

    Example:
        >>> fact = np.array([1.0, 2.0, 3.0, 4.0])
        >>> residual_correlation(fact[::-1], fact, [np.array([1.0, 1.0, 2.0, 2.0])])
        -1.0
    """
    ranked = ranks(np.stack([scores, truth, *facts]))
    base = np.column_stack([np.ones(len(truth)), *ranked[2:]])
    kept = ranked[:2].T - base @ np.linalg.lstsq(base, ranked[:2].T, rcond=None)[0]
    sizes = np.linalg.norm(kept, axis=0)
    if sizes.min() < 1e-9 * len(truth) ** 1.5:
        return math.nan
    return float(kept[:, 0] @ kept[:, 1] / sizes.prod())


def over_targets(found: ByTarget, quality: str = "weighted_tau") -> Interval | None:
    """Return the mean over targets of a quality with its 95 % interval (Student's t).

    Args:
        found: Qualities by target.
        quality: Field of `Judged`.
    """
    bounds = (0.0, 1.0) if quality == "regret" else (-1.0, 1.0)
    return mean_interval([getattr(each, quality) for each in found.values()], bounds=bounds)


def mean_quality(found: ByTarget, quality: str = "weighted_tau") -> float:
    """Return the mean over targets of a quality; NaN if there is no target.

    Args:
        found: Qualities by target.
        quality: Field of `Judged`.
    """
    values = [getattr(each, quality) for each in found.values()]
    return sum(values) / len(values) if values else math.nan


def gains(ours: ByTarget, theirs: ByTarget, quality: str = "weighted_tau") -> list[float]:
    """Return the difference between two scores on each target.

    Args:
        ours: Qualities of the one.
        theirs: Qualities of the other.
        quality: Field of `Judged`.
    """
    return [getattr(ours[target], quality) - getattr(theirs[target], quality) for target in ours]


def bootstrap_gain(
    cells: Sequence[Cell],
    ours: tuple[str, Score],
    theirs: tuple[str, Score],
    *,
    seed: int,
    resamples: int = 1000,
    truth: str = ACCURACY,
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean gain in weighted tau, over networks.

    Networks are drawn with replacement within each architecture, the same for all targets. The
    interval says what another draw of networks could change; that over targets is `over_targets`.

    Args:
        cells: Cells of one number of images.
        ours: Key and direction of the one score.
        theirs: Key and direction of the other.
        seed: Seed of the draws.
        resamples: Number of draws.
        truth: Key of the truth.
    """
    members: dict[str, list[str]] = {}
    for cell in cells:
        names = members.setdefault(cell.architecture, [])
        if cell.network not in names:
            names.append(cell.network)
    counts = _drawn_counts(members, resamples, seed)
    columns = []
    for own in grouped(cells, truth).values():
        known = np.array([cell.value(truth) for cell in own])
        values = np.stack([signed(own, *ours), signed(own, *theirs)])
        times = np.column_stack([counts[cell.network] for cell in own])
        columns.append(_gains_in(times, values, known))
    # A resample may have none of the networks that are known on a target, or on any.
    table = np.column_stack(columns)
    means = [row[~np.isnan(row)].mean() for row in table if not np.isnan(row).all()]
    low, high = np.percentile(means, _LEVEL)
    return float(low), float(high)


def _drawn_counts(
    members: Mapping[str, Sequence[str]], resamples: int, seed: int
) -> dict[str, NDArray[np.int64]]:
    """Return how often each network is in each resample, drawn within its architecture."""
    draws = np.random.default_rng(seed)
    counts = {name: np.zeros(resamples, np.int64) for names in members.values() for name in names}
    for at in range(resamples):
        for names in members.values():
            for place in draws.integers(0, len(names), len(names)):
                counts[names[place]][at] += 1
    return counts


def _gains_in(times: NDArray[np.int64], values: Values, truth: Values) -> Values:
    """Return the gain in weighted tau of the first of two rows over the second, by resample.

    Args:
        times: Number of times that each resample has each network.
        values: Values of two scores for each network.
        truth: Truth of each network.

    Returns:
        The gains; NaN for a resample without any of the networks.
    """
    gained = np.full(len(times), np.nan)
    lengths = times.sum(1)
    for length in np.unique(lengths[lengths > 0]):
        of_length = np.nonzero(lengths == length)[0]
        for start in range(0, len(of_length), _BLOCK):
            block = of_length[start : start + _BLOCK]
            places = np.stack([np.repeat(np.arange(len(truth)), times[at]) for at in block])
            taus = [
                np.nan_to_num(row_qualities(row[places], truth[places])[:, 0]) for row in values
            ]
            gained[block] = taus[0] - taus[1]
    return gained
