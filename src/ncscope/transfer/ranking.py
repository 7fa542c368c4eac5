"""Checkpoints side by side on one downstream set: what predicts the probe, and what it came to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ncscope.errors import InputError
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import cdnv, cosine_within, fuzziness, nc1_quotient, vci
from ncscope.stats.batch import as_tensor, check_labels
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope.transfer.correlations import Correlation, correlations
from ncscope.transfer.inputs import checked_labelled
from ncscope.transfer.probes.probe import MEASURES, Measure, checked_measure
from ncscope.transfer.probes.selection import choose_probe
from ncscope.transfer.scores import h_score, log_me


class Score(NamedTuple):
    """A score that is to predict transfer.

    Attributes:
        name: As a table or an axis shows it.
        better: 1 if the greater is said to transfer better, -1 if the smaller.
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
"""Scores on downstream samples: there variation within the classes is noise."""

PRETRAINING = "pretraining_"
PRETRAINING_SCORES: Mapping[str, Score] = {
    PRETRAINING + key: Score(f"{SCORES[key].name}, pretraining", 1)
    for key in ("vci", "fuzziness", "nc1_quotient", "cosine_within", "cdnv")
}
"""Scores on pretraining samples: there variation within the classes is what may be of use."""


@dataclass(frozen=True)
class Ranked:
    """A checkpoint on the downstream set.

    Attributes:
        name: Of the checkpoint.
        scores: By key of `SCORES`, and of `PRETRAINING_SCORES` where its samples were given.
        accuracy: Of the linear probe on held-out samples.
        strength: Of the probe's penalty, chosen on validation samples.
    """

    name: str
    scores: Mapping[str, float]
    accuracy: float
    strength: float


@dataclass(frozen=True)
class Ranking:
    """Checkpoints on one downstream set, the best probe first.

    Attributes:
        checkpoints: What each came to.
        correlations: By score, of the score with the accuracy: see `correlations`. Scores that
            are not finite for every checkpoint have none.
        measure: Which accuracy.
    """

    checkpoints: Sequence[Ranked]
    correlations: Mapping[str, Mapping[str, Correlation]]
    measure: Measure

    @property
    def scores(self) -> Mapping[str, Score]:
        """The scores that were computed, by key."""
        known = {**SCORES, **PRETRAINING_SCORES}
        return {key: known[key] for key in self.checkpoints[0].scores}


def rank(
    features: Mapping[str, Any],
    labels: Any,
    *,
    test_features: Mapping[str, Any] | None = None,
    test_labels: Any = None,
    pretraining: Mapping[str, tuple[Any, Any]] | None = None,
    measure: str = "top-1",
    seed: int = 0,
    on_checkpoint: Callable[[str], None] = lambda name: None,
) -> Ranking:
    """Score checkpoints on a downstream set, probe them, and compare.

    The probe's strength is chosen on a fifth of the training samples, split class by class.
    Scores see training samples only.

    Args:
        features: By checkpoint, of the same samples in the same order, n x d with a d of its own.
        labels: Of the samples.
        test_features: Of held-out samples; by default a fifth of the samples is held out.
        test_labels: Of those.
        pretraining: By checkpoint, features and labels of its pretraining set, on which VCI and
            its rivals are measured as in VCI 6.3.
        measure: The accuracy: ``"top-1"`` or ``"mean per class"``.
        seed: Of the splits.
        on_checkpoint: Called with the name of each checkpoint before its turn.

    Raises:
        InputError: If something does not fit.
    """
    accuracy = checked_measure(measure)
    train, test = _halves(features, labels, test_features, test_labels, seed)
    if pretraining is not None:
        _check_names("pretraining samples", pretraining, features)
    found = []
    for name in features:
        on_checkpoint(name)
        own = None if pretraining is None else pretraining[name]
        found.append(_ranked(name, train(name), test(name), own, accuracy, seed))
    found.sort(key=lambda each: each.accuracy, reverse=True)
    return Ranking(found, _correlations(found, seed), accuracy)


_Samples = tuple[Tensor, Tensor]


def _ranked(
    name: str,
    train: _Samples,
    test: _Samples,
    pretraining: tuple[Any, Any] | None,
    measure: Measure,
    seed: int,
) -> Ranked:
    held_out = hold_out(train[1], seed)
    fitted = train[0][~held_out], train[1][~held_out]
    chosen = choose_probe(*fitted, train[0][held_out], train[1][held_out], measure=measure)
    accuracy = MEASURES[measure](chosen.probe.predict(test[0]), test[1])
    scores = transfer_scores(_statistics(*train))
    if pretraining is not None:
        source = transfer_scores(_statistics(*checked_labelled(*pretraining)[:2]))
        scores |= {key: source[key.removeprefix(PRETRAINING)] for key in PRETRAINING_SCORES}
    return Ranked(name, scores, accuracy, chosen.strength)


def transfer_scores(stats: ClassStatistics) -> dict[str, float]:
    """Every score of `SCORES`, from one decomposition.

    Args:
        stats: With scatter and directions, under the empirical prior.
    """
    found = discriminants(stats)
    values = {
        "vci": vci(stats, found),
        "fuzziness": fuzziness(stats, found),
        "nc1_quotient": nc1_quotient(stats),
        "cosine_within": cosine_within(stats),
        "cdnv": cdnv(stats),
        "h_score": h_score(stats, found),
        "log_me": log_me(stats),
    }
    return {key: float(values[key]) for key in SCORES}


def hold_out(labels: Int[Tensor, " n"], seed: int, share: float = 0.2) -> Tensor:
    """A mask of a share of each class's samples, drawn by the seed; of one sample none.

    Args:
        labels: Of all samples.
        seed: Of the draw.
        share: Of each class, rounded, but one at least.

    Example:
        >>> hold_out(torch.tensor([0] * 5 + [1] * 10 + [2]), seed=0).sum()
        tensor(3)
    """
    draws = torch.Generator().manual_seed(seed)
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        members = torch.nonzero(labels.cpu() == label.cpu()).flatten()
        members = members[torch.randperm(len(members), generator=draws)]
        count = max(1, round(share * len(members))) if len(members) > 1 else 0
        mask[members[:count]] = True
    return mask.to(labels.device)


def _statistics(features: Tensor, labels: Tensor) -> ClassStatistics:
    moments = ClassMoments(int(labels.max()) + 1, features.shape[1], device=features.device)
    moments.update(features, labels)
    return finish(moments)


def _halves(
    features: Mapping[str, Any],
    labels: Any,
    test_features: Mapping[str, Any] | None,
    test_labels: Any,
    seed: int,
) -> tuple[Callable[[str], _Samples], Callable[[str], _Samples]]:
    """Training and held-out samples of each checkpoint by name, checked when they are asked for."""
    if not features:
        fix = "pass the features of each by its name"
        raise InputError(expected="at least one checkpoint", found="none", fix=fix)
    if (test_features is None) != (test_labels is None):
        found, fix = "one of the two", "pass both or neither"
        raise InputError(expected="held-out features with their labels", found=found, fix=fix)
    if test_features is not None:
        _check_names("held-out samples", test_features, features)
        given = test_features
        return (
            lambda name: _pair(features[name], labels),
            lambda name: _pair(given[name], test_labels),
        )
    known = as_tensor(labels, "labels")
    held_out = hold_out(check_labels(known, len(known)), seed)

    def half(name: str, mask: Tensor) -> _Samples:
        rows, classes = _pair(features[name], labels)
        return rows[mask.to(rows.device)], classes[mask.to(rows.device)]

    return lambda name: half(name, ~held_out), lambda name: half(name, held_out)


def _pair(features: Any, labels: Any) -> _Samples:
    return checked_labelled(features, labels)[:2]


def _check_names(what: str, given: Mapping[str, Any], features: Mapping[str, Any]) -> None:
    missing = [name for name in features if name not in given]
    if missing:
        fix = "name them as the features are named"
        expected = f"{what} of every checkpoint"
        raise InputError(expected=expected, found=f"none of {missing[0]!r}", fix=fix)


def _correlations(found: Sequence[Ranked], seed: int) -> dict[str, dict[str, Correlation]]:
    if len(found) < 2:
        return {}
    accuracies = [each.accuracy for each in found]
    by_score = {key: [each.scores[key] for each in found] for key in found[0].scores}
    return {
        key: correlations(values, accuracies, seed=seed)
        for key, values in by_score.items()
        if torch.isfinite(torch.tensor(values)).all()
    }
