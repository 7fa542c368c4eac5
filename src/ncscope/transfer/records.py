"""Plain record of checkpoints ranked on one downstream set, with notes for its reader."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ncscope.transfer.correlations import Correlation, correlations
from ncscope.transfer.probes.probe import Measure


class Score(NamedTuple):
    """A score that is said to predict transfer.

    Attributes:
        name: Name in a table or on an axis.
        better: 1 if a greater score is said to mean better transfer, -1 if a smaller one.
    """

    name: str
    better: int


SCORES: Mapping[str, Score] = {
    "vci": Score("VCI", -1),
    "fuzziness": Score("fuzziness", -1),
    "nc1_quotient": Score("squared distance", -1),
    "cosine_within": Score("cosine distance", -1),
    "cdnv": Score("CDNV", -1),
    "h_score": Score("H-score", 1),
    "log_me": Score("LogME", 1),
}
"""Scores on downstream samples, where variation within the classes is noise."""

PRETRAINING = "pretraining_"
PRETRAINING_SCORES: Mapping[str, Score] = {
    PRETRAINING + key: Score(f"{SCORES[key].name}, pretraining", 1)
    for key in ("vci", "fuzziness", "nc1_quotient", "cosine_within", "cdnv")
}
"""Scores on pretraining samples, where variation within the classes may be of use downstream."""


@dataclass(frozen=True)
class Ranked:
    """Result of a checkpoint on the downstream set.

    Attributes:
        name: Name of the checkpoint.
        scores: Scores by key of `SCORES`, and of `PRETRAINING_SCORES` if samples of the pretraining
            set were given.
        accuracy: Accuracy of the linear probe on held-out samples.
        strength: Strength of the probe's penalty, chosen on validation samples.
    """

    name: str
    scores: Mapping[str, float]
    accuracy: float
    strength: float


@dataclass(frozen=True)
class Ranking:
    """Checkpoints on one downstream set, the best probe first.

    Attributes:
        checkpoints: Result of each checkpoint.
        correlations: Correlations of each score with the accuracy; see `correlations`. A score that
            is not finite for every checkpoint has none, and two checkpoints have none at all.
        measure: Kind of accuracy.
    """

    checkpoints: Sequence[Ranked]
    correlations: Mapping[str, Mapping[str, Correlation]]
    measure: Measure

    @property
    def order(self) -> list[str]:
        """Names of the checkpoints, the best probe first."""
        return [each.name for each in self.checkpoints]

    @property
    def scores(self) -> Mapping[str, Score]:
        """Scores that were computed, by key."""
        scores = {**SCORES, **PRETRAINING_SCORES}
        return {key: scores[key] for key in self.checkpoints[0].scores}

    @property
    def notes(self) -> list[str]:
        """Sentences on the limits of the correlations, for example why a score has none."""
        return [*_too_few(len(self.checkpoints)), *_undefined(self), *_saturated(self)]


def ranking_of(found: Sequence[Ranked], measure: Measure = "top-1", seed: int = 0) -> Ranking:
    """Sort the results of checkpoints by accuracy, and correlate scores with accuracies.

    Args:
        found: Results of the checkpoints on the same downstream set, with the same scores.
        measure: Kind of accuracy.
        seed: Seed of the resamples for the intervals.
    """
    best_first = sorted(found, key=lambda each: each.accuracy, reverse=True)
    return Ranking(best_first, _correlations(best_first, seed), measure)


_LEAST_VCI = 1e-9  # a smaller VCI is rounding error
_MOST_LISTED = 3
"""Largest number of checkpoints that a note names."""
_LEAST, _FEW = 3, 5
"""Fewest checkpoints with correlations, and largest number for which a note warns of chance."""


def _too_few(count: int) -> list[str]:
    if count == 1:
        return ["One checkpoint: there is nothing to correlate."]
    if count == 2:
        return ["Two checkpoints: any score would have a correlation of 1 or -1, so there is none."]
    if count <= _FEW:
        once = f"once in {math.factorial(count)} times"
        alone = f"A useless score puts {count} checkpoints in the right order {once} by chance"
        return [f"{alone}, and there are several scores: the coefficients say little."]
    return []


def _undefined(ranking: Ranking) -> list[str]:
    """Return notes on scores and accuracies without a correlation."""
    checkpoints = ranking.checkpoints
    if len(checkpoints) < _LEAST:
        return []
    notes = []
    if checkpoints[0].accuracy == checkpoints[-1].accuracy:
        notes = ["All probes have the same accuracy: no score can correlate with it."]
    for key, score in ranking.scores.items():
        lacking = [each.name for each in checkpoints if not math.isfinite(each.scores[key])]
        if lacking:
            notes.append(f"{score.name} is not finite for {lacking[0]}: it has no correlation.")
    return notes


def _saturated(ranking: Ranking) -> list[str]:
    """Return a note on checkpoints with a VCI of 0, as with more dimensions than samples."""
    least = [each.name for each in ranking.checkpoints if each.scores.get("vci", 1) < _LEAST_VCI]
    if not least:
        return []
    why = "its classes do not vary, or its features have as many dimensions as there are samples"
    return [f"VCI is 0 for {_listed(least)}: {why}. VCI and the H-score cannot rank these."]


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
    *first, last = [*names[:_MOST_LISTED], *more]
    return f"{', '.join(first)} and {last}" if first else last


def _correlations(found: Sequence[Ranked], seed: int) -> dict[str, dict[str, Correlation]]:
    if len(found) < _LEAST:
        return {}
    accuracies = [each.accuracy for each in found]
    by_score = {key: [each.scores[key] for each in found] for key in found[0].scores}
    return {
        key: correlations(values, accuracies, seed=seed)
        for key, values in by_score.items()
        if torch.isfinite(torch.tensor(values)).all()
    }
