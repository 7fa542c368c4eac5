"""Quality of the order in which scores put the networks of the zoo, by target, with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ncscope.lab.evidence.judging import mean_interval
from ncscope.lab.zoo.results import ACCURACY, Cell
from ncscope.report.claims import Interval
from ncscope.transfer.correlations import Values, ranks
from ncscope.transfer.quality import row_qualities
from ncscope.transfer.records import BASELINES, Score

LEAST_NETWORKS = 3
"""Networks that a target needs at least."""

_LEVEL = (2.5, 97.5)


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


def by_target(
    cells: Sequence[Cell], key: str, score: Score, truth: str = ACCURACY
) -> dict[str, Judged]:
    """Judge a score on every target; cells without the truth are left out.

    A coefficient that is undefined, as for equal scores, counts as 0: such a score orders nothing.

    Args:
        cells: Cells of the networks to order.
        key: Key of the score in the cells.
        score: Its direction.
        truth: Key of the truth.
    """
    found = {}
    for target, own in grouped(cells, truth).items():
        known = np.array([cell.value(truth) for cell in own])
        values = signed(own, key, score)
        weighted, tau, _, regret = np.nan_to_num(row_qualities(values[None], known[None])[0])
        facts = [signed(own, name, fact) for name, fact in BASELINES.items() if name != key]
        left = residual_correlation(values, known, facts)
        found[target] = Judged(weighted, tau, regret, 0.0 if math.isnan(left) else left)
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
    draws = np.random.default_rng(seed)
    members: dict[str, list[str]] = {}
    for cell in cells:
        names = members.setdefault(cell.architecture, [])
        if cell.network not in names:
            names.append(cell.network)
    groups = grouped(cells, truth)
    drawn = []
    for _ in range(resamples):
        chosen = np.concatenate([draws.choice(names, len(names)) for names in members.values()])
        counts = dict(zip(*np.unique(chosen, return_counts=True), strict=True))
        differences = []
        for own in groups.values():
            again = [cell for cell in own for _ in range(counts.get(cell.network, 0))]
            if not again:  # none of the networks that are known on the target was drawn
                continue
            known = np.array([cell.value(truth) for cell in again])
            pair = np.stack([signed(again, *ours), signed(again, *theirs)])
            taus = np.nan_to_num(row_qualities(pair, np.stack([known, known]))[:, 0])
            differences.append(taus[0] - taus[1])
        if differences:
            drawn.append(np.mean(differences))
    low, high = np.percentile(drawn, _LEVEL)
    return float(low), float(high)
