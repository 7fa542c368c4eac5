"""How well scores order the networks of the zoo: by target, with intervals over targets."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ncscope.lab.evidence.judging import mean_interval
from ncscope.report.claims import Interval
from ncscope.transfer.correlations import ranks
from ncscope.transfer.quality import ranking_quality

Truth = str
"""Key of the truth: ``"accuracy"`` of the probe or ``"tuned_accuracy"``."""


@dataclass(frozen=True)
class Cell:
    """A network on a target.

    Attributes:
        network: Name of the network.
        architecture: Name of its architecture.
        source: Name of the set that it was trained on.
        target: Name of the target.
        values: Truth, scores and facts, by key; a value that is unknown is missing or NaN.
    """

    network: str
    architecture: str
    source: str
    target: str
    values: Mapping[str, float]

    def value(self, key: str) -> float:
        """Return a value; NaN if it is unknown."""
        return self.values.get(key, math.nan)


ScoreOf = Callable[[Cell], float]
"""A score: the greater, the better the transfer that it promises."""


class Judged(NamedTuple):
    """Quality of a score's order on one target, or the means over targets.

    Attributes:
        weighted_tau: Weighted Kendall tau.
        tau: Kendall's tau b.
        regret: Best truth less the truth of the network that the score puts first.
        residual: Spearman correlation with the truth after the static baselines, see
            `residual_correlation`.
    """

    weighted_tau: float
    tau: float
    regret: float
    residual: float


def by_target(
    cells: Sequence[Cell], score: ScoreOf, static: Sequence[ScoreOf], truth: Truth = "accuracy"
) -> dict[str, Judged]:
    """Judge a score on every target; cells without the truth are left out.

    Args:
        cells: Cells of the networks to order.
        score: Score to judge.
        static: Static baselines, for the residual correlation.
        truth: Key of the truth.
    """
    found = {}
    for target in dict.fromkeys(cell.target for cell in cells):
        own = [c for c in cells if c.target == target and math.isfinite(c.value(truth))]
        if len(own) > 2:
            scores, known = [score(cell) for cell in own], [cell.value(truth) for cell in own]
            quality = ranking_quality(scores, known, resamples=0)
            facts = [[fact(cell) for cell in own] for fact in static]
            found[target] = Judged(
                quality.weighted_kendall.value,
                quality.kendall.value,
                quality.regret.value,
                residual_correlation(scores, known, facts),
            )
    return found


def residual_correlation(
    scores: Sequence[float], truth: Sequence[float], facts: Sequence[Sequence[float]]
) -> float:
    """Return Spearman's partial correlation: of ranks, after a linear fit of the facts' ranks.

    Args:
        scores: Scores, one a network; NaN counts as the lowest.
        truth: True values.
        facts: Static baselines, each with a value a network.

    Returns:
        The correlation; NaN if nothing of the score or of the truth is left.
    """
    columns = [np.nan_to_num(np.asarray(each, float), nan=-np.inf) for each in (scores, truth)]
    columns += [np.nan_to_num(np.asarray(each, float), nan=-np.inf) for each in facts]
    ranked = ranks(np.stack(columns))
    base = np.column_stack([np.ones(len(truth)), *ranked[2:]])
    kept = ranked[:2].T - base @ np.linalg.lstsq(base, ranked[:2].T, rcond=None)[0]
    sizes = np.linalg.norm(kept, axis=0)
    if sizes.min() < 1e-9 * len(truth) ** 1.5:
        return math.nan
    return float(kept[:, 0] @ kept[:, 1] / sizes.prod())


def over_targets(found: Mapping[str, Judged]) -> dict[str, Interval | None]:
    """Return the mean over targets of each quality with its 95 % interval (Student's t)."""
    return {
        key: mean_interval([getattr(each, key) for each in found.values()])
        for key in Judged._fields
    }


def gain(
    ours: Mapping[str, Judged], theirs: Mapping[str, Judged], key: str = "weighted_tau"
) -> Interval | None:
    """Return the mean over targets of the difference between two scores, with its interval."""
    return mean_interval([getattr(ours[t], key) - getattr(theirs[t], key) for t in ours])


def mean_of_others(
    cells: Sequence[Cell], truth: Truth = "accuracy"
) -> dict[tuple[str, str], float]:
    """Return each network's mean standardised truth on the other targets, by network and target.

    Truth is standardised by target over all networks. This is what a table of past results tells.

    Args:
        cells: Cells; those of all targets whose results count as known.
        truth: Key of the truth.
    """
    known = [cell for cell in cells if math.isfinite(cell.value(truth))]
    standard: dict[str, dict[str, float]] = {}
    for target in dict.fromkeys(cell.target for cell in known):
        own = {cell.network: cell.value(truth) for cell in known if cell.target == target}
        values = np.array(list(own.values()))
        spread = float(values.std()) or 1.0
        for network, value in own.items():
            standard.setdefault(network, {})[target] = (value - float(values.mean())) / spread
    means = {}
    for cell in cells:
        others = [v for t, v in standard.get(cell.network, {}).items() if t != cell.target]
        means[cell.network, cell.target] = float(np.mean(others)) if others else math.nan
    return means
