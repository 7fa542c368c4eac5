"""Ranking of checkpoints on one downstream set as a plain record, with notes for its reader."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ncscope.transfer.advice import Advice, describe_size, list_conditions, read_evidence
from ncscope.transfer.correlations import Correlation, correlations
from ncscope.transfer.intervals import Answers, Gap, accuracy_gap, accuracy_interval
from ncscope.transfer.probes.linear_probe import Measure
from ncscope.transfer.quality import RankingQuality, ranking_quality
from ncscope.transfer.scores.ncti import NctiParts, ncti


class Score(NamedTuple):
    """A score that is said to predict transfer.

    Attributes:
        name: Name in a table or on an axis.
        better: 1 if a greater score is said to mean better transfer, -1 if a smaller one.
    """

    name: str
    better: Literal[1, -1]


VARIABILITY_SCORES: Mapping[str, Score] = {
    "vci": Score("VCI", -1),
    "fuzziness": Score("fuzziness", -1),
    "nc1_quotient": Score("squared distance", -1),
    "cosine_within": Score("cosine distance", -1),
    "cdnv": Score("CDNV", -1),
}
"""Scores of the variation within the classes, which is noise on downstream samples."""

FIELD_SCORES: Mapping[str, Score] = {
    "h_score": Score("H-score", 1),
    "regularised_h_score": Score("regularised H", 1),
    "log_me": Score("LogME", 1),
    "leep": Score("LEEP", 1),
    "nce": Score("NCE", 1),
    "nleep": Score("NLEEP", 1),
    "sfda": Score("SFDA", 1),
    "ncti": Score("NCTI", 1),
    "gbc": Score("GBC", 1),
    "transrate": Score("TransRate", 1),
    "transrate_listing": Score("TransRate, listing", 1),
    "transrate_projected": Score("TransRate, projected", 1),
    "parc": Score("PARC", 1),
}
"""Scores that were published to predict transfer, on downstream samples."""

OWN_SCORES: Mapping[str, Score] = {"explained_entropy": Score("explained entropy", 1)}
"""Score of our own, on downstream samples; see `explained_entropy`."""

SCORES: Mapping[str, Score] = {**VARIABILITY_SCORES, **FIELD_SCORES, **OWN_SCORES}
"""All scores on downstream samples."""

BASELINES: Mapping[str, Score] = {
    "parameters": Score("parameters", 1),
    "source_accuracy": Score("source accuracy", 1),
    "other_sets": Score("other sets", 1),
}
"""Facts of a checkpoint that do not depend on the downstream set: number of parameters, accuracy on
the pretraining set, and mean z-score of the accuracy on other sets."""

PRETRAINING = "pretraining_"
PRETRAINING_SCORES: Mapping[str, Score] = {
    PRETRAINING + key: Score(f"{SCORES[key].name}, pretraining", 1)
    for key in ("vci", "fuzziness", "nc1_quotient", "cosine_within", "cdnv")
}
"""Scores on pretraining samples, where variation within the classes may be of use downstream."""


ALL_SCORES: Mapping[str, Score] = {**SCORES, **PRETRAINING_SCORES, **BASELINES}
"""All scores and baselines, in the order of the tables."""


@dataclass(frozen=True)
class CheckpointResult:
    """Result of a checkpoint on the downstream set.

    Attributes:
        name: Name of the checkpoint.
        scores: Scores by key of `SCORES`, and of `PRETRAINING_SCORES` if samples of the pretraining
            set were given, and of `BASELINES` if they are known.
        accuracy: Accuracy of the linear probe on held-out samples.
        strength: Strength of the probe's penalty, chosen on validation samples.
        answers: Held-out samples that the probe decides right.
        parts: Parts of NCTI; `rank_results` adds the index itself to the scores.
        omissions: Reason for each score that was left out, by its name.
        errors: Standard error by key of the scores that have one.
        size: Numbers of samples, classes and features that the scores read; None if unknown.
    """

    name: str
    scores: Mapping[str, float]
    accuracy: float
    strength: float
    answers: Answers = field(repr=False, compare=False)
    parts: NctiParts | None = None
    omissions: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    size: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Ranking:
    """Checkpoints on one downstream set, the best probe first.

    Attributes:
        checkpoints: Result of each checkpoint.
        correlations: Correlations of each score with the accuracy; see `correlations`. A score that
            is not finite for every checkpoint has none, and two checkpoints have none at all.
        measure: Kind of accuracy.
        qualities: Quality of each score's order of the checkpoints, NaN last; none for fewer than
            three checkpoints.
    """

    checkpoints: Sequence[CheckpointResult]
    correlations: Mapping[str, Mapping[str, Correlation]]
    measure: Measure
    qualities: Mapping[str, RankingQuality] = field(default_factory=dict)

    def __repr__(self) -> str:
        widest = max(map(len, self.order))
        lines = []
        for rank, each, (low, high), gap in zip(
            self.ranks, self.checkpoints, self.intervals, self.gaps, strict=True
        ):
            word = "" if gap is None or gap.is_separable else ", not separable from the first"
            number = f"{each.accuracy:.3f} ({low:.3f} to {high:.3f})"
            lines.append(f"  {rank} {each.name:<{widest}} {number}{word}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join([f"Ranking: {self.verdict}", *lines])

    @property
    def ranks(self) -> list[int]:
        """Rank of each checkpoint from 1; checkpoints of the same accuracy share one."""
        accuracies = [each.accuracy for each in self.checkpoints]
        return [1 + accuracies.index(accuracy) for accuracy in accuracies]

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """95 % interval of the accuracy of each checkpoint; see `accuracy_interval`."""
        return [accuracy_interval(each.answers, self.measure) for each in self.checkpoints]

    @property
    def gaps(self) -> list[Gap | None]:
        """Accuracy that each checkpoint lacks to the first, None for the first itself.

        The intervals of 95 % hold for all pairs of checkpoints at once, not only for the pairs
        with the first: which is first was found on the same samples. See `accuracy_gap`.
        """
        first, *others = self.checkpoints
        pairs = math.comb(len(self.checkpoints), 2)
        return [
            None,
            *(
                accuracy_gap(first.answers, each.answers, self.measure, pairs=pairs)
                for each in others
            ),
        ]

    @property
    def verdict(self) -> str:
        """Sentence that says which checkpoint is best, and from which it is not separable."""
        first = self.checkpoints[0]
        low, high = self.intervals[0]
        number = f"{self.measure} accuracy {first.accuracy:.3f} ({low:.3f} to {high:.3f})"
        if len(self.checkpoints) == 1:
            return f"{first.name}: {number}."
        best = [name for name, rank in zip(self.order, self.ranks, strict=True) if rank == 1]
        near = [
            (name, rank)
            for name, rank, gap in zip(self.order, self.ranks, self.gaps, strict=True)
            if rank > 1 and gap is not None and not gap.is_separable
        ]
        said = "separable from all others"
        if max((len(name) for name, _ in near), default=0) > _LONGEST_NAME:
            # Long names stand in the table once, beside their ranks.
            numbers = sorted({rank for _, rank in near})
            low, high = numbers[0], numbers[-1]
            listed = _enumerate(list(map(str, numbers)))
            if len(near) > 2 and len(near) == high - low + 1:
                listed = f"{low} to {high}"
            said = f"not separable from rank{'s' * (len(numbers) > 1)} {listed}"
        elif near:
            said = f"not separable from {_enumerate([name for name, _ in near])}"
        elif len(best) == len(self.checkpoints):
            said = "not separable from each other"
        return f"{_enumerate(best)} {'are' if best[1:] else 'is'} best: {number}; {said}."

    @property
    def order(self) -> list[str]:
        """Names of the checkpoints, the best probe first."""
        return [each.name for each in self.checkpoints]

    @property
    def scores(self) -> Mapping[str, Score]:
        """Scores that were computed, by key."""
        return {key: ALL_SCORES[key] for key in self.checkpoints[0].scores}

    @property
    def advice(self) -> Advice | None:
        """Evidence of the zoo on which scores to trust; None if the size is unknown."""
        sizes = [each.size for each in self.checkpoints if each.size is not None]
        if len(sizes) < len(self.checkpoints):
            return None
        samples, classes, _ = sizes[0]
        dims = [dim for _, _, dim in sizes]
        conditions = list_conditions(samples, classes, dims)
        return Advice(conditions, read_evidence(), describe_size(samples, classes, dims))

    @property
    def has_redundant_h_score(self) -> bool:
        """True if VCI and the H-score order the checkpoints alike, as H = rank (1 - VCI)."""
        pairs = [(each.scores.get("vci"), each.scores.get("h_score")) for each in self.checkpoints]
        scores = [(-v, h) for v, h in pairs if v is not None and h is not None]
        orders = [sorted(scores, key=lambda pair: pair[side]) for side in (0, 1)]
        return len(scores) == len(pairs) > 1 and orders[0] == orders[1]

    @property
    def notes(self) -> list[str]:
        """Sentences on the limits of the scores, for example why one has no correlation."""
        notes = []
        count = len(self.checkpoints)
        if count == 1:
            notes.append("One checkpoint: there is nothing to correlate.")
        elif count == 2:
            notes.append(
                "Two checkpoints: any score would have a correlation of 1 or -1, so there is none."
            )
        elif count <= _FEW:
            once = f"once in {math.factorial(count)} times"
            alone = f"A useless score puts {count} checkpoints in the right order {once} by chance"
            notes.append(f"{alone}, and there are several scores: the coefficients say little.")
        if count >= _LEAST:
            notes += _note_undefined_correlations(self)
        collapsed = [
            each.name for each in self.checkpoints if each.scores.get("vci", 1) < _LEAST_VCI
        ]
        if collapsed:
            notes.append(
                f"VCI is 0 for {_enumerate(collapsed)}: its classes do not vary, or its features "
                "have as many dimensions as there are samples. VCI, the H-score and SFDA cannot "
                "rank these."
            )
        by_reason: dict[str, list[str]] = {}
        for each in self.checkpoints:
            for name, reason in each.omissions.items():
                by_reason.setdefault(f"{name} ({reason})", []).append(each.name)
        if by_reason:
            parts = [
                reason if len(names) == count else f"{reason} for {_enumerate(names)}"
                for reason, names in by_reason.items()
            ]
            notes.append(f"Left out: {'; '.join(parts)}.")
        return notes


_LONGEST_NAME = 16
"""Letters of a name that a verdict repeats."""

_LEAST_VCI = 1e-9  # a smaller VCI is rounding error
_MOST_NAMES = 3
"""Largest number of checkpoints that a note names."""
_LEAST, _FEW = 3, 5
"""Fewest checkpoints with correlations, and largest number for which a note warns of chance."""


def _note_undefined_correlations(ranking: Ranking) -> list[str]:
    """Return notes on scores and accuracies without a correlation."""
    checkpoints = ranking.checkpoints
    notes = []
    if checkpoints[0].accuracy == checkpoints[-1].accuracy:
        notes = ["All probes have the same accuracy: no score can correlate with it."]
    for key, score in ranking.scores.items():
        unscored = [
            each.name
            for each in checkpoints
            if not math.isfinite(each.scores[key])
            and not any(score.name in name.split() for name in each.omissions)
        ]
        if unscored and key in BASELINES:
            last = "it has no correlation, and in the weighted tau these checkpoints come last"
            notes.append(f"{score.name} is unknown for {_enumerate(unscored)}: {last}.")
        elif unscored:
            names = _enumerate(unscored)
            notes.append(f"{score.name} is not finite for {names}: it has no correlation.")
    return notes


def _enumerate(names: Sequence[str]) -> str:
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    *first, last = [*names[:_MOST_NAMES], *more]
    return f"{', '.join(first)} and {last}" if first else last


def rank_results(
    results: Sequence[CheckpointResult], measure: Measure = "top-1", seed: int = 0
) -> Ranking:
    """Sort the results of checkpoints by accuracy, and compare the orders of the scores with it.

    NCTI, which is relative to the checkpoints ranked, is computed here. A score that only some of
    the checkpoints have is NaN for the others. A baseline that is the same for several checkpoints
    orders nothing and is dropped.

    Args:
        results: Results of the checkpoints on the same downstream set.
        measure: Kind of accuracy.
        seed: Seed of the resamples for the intervals.
    """
    tables = [dict(each.scores) for each in results]
    parts = [each.parts for each in results if each.parts is not None]
    if len(parts) == len(results) > 1:
        for scores, index in zip(tables, ncti(parts), strict=True):
            scores["ncti"] = index

    def is_constant(key: str) -> bool:
        return len(tables) > 1 and len({scores.get(key) for scores in tables}) == 1

    keys = [
        key
        for key in ALL_SCORES
        if any(key in scores for scores in tables) and not (key in BASELINES and is_constant(key))
    ]
    whole = [
        replace(each, scores={key: scores.get(key, math.nan) for key in keys})
        for each, scores in zip(results, tables, strict=True)
    ]
    best_first = sorted(whole, key=lambda each: each.accuracy, reverse=True)
    if len(best_first) < _LEAST:
        return Ranking(best_first, {}, measure)
    accuracies = [each.accuracy for each in best_first]
    by_key = {key: [each.scores[key] for each in best_first] for key in keys}
    coefficients = {
        key: correlations(values, accuracies, seed=seed)
        for key, values in by_key.items()
        if all(map(math.isfinite, values))
    }
    qualities = {
        key: ranking_quality(values, accuracies, better=ALL_SCORES[key].better, seed=seed)
        for key, values in by_key.items()
    }
    return Ranking(best_first, coefficients, measure, qualities)
