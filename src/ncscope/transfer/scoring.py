"""All scores of one checkpoint on one downstream set, and the reasons for those left out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from ncscope.errors import library_error
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import cdnv, cosine_within, fuzziness, nc1_quotient, vci
from ncscope.stats.batch import as_tensor
from ncscope.stats.statistics import ClassStatistics
from ncscope.transfer.empirical_predictions import (
    COMPONENTS_PER_CLASS,
    checked_predictions,
    checked_probabilities,
    leep,
    nce,
    nleep,
)
from ncscope.transfer.explained_entropy import explained_entropy
from ncscope.transfer.fisher import NctiParts, ncti_parts, regularised_h_score, sfda
from ncscope.transfer.inputs import LabelledSamples
from ncscope.transfer.scores import check_scale, h_score, log_me
from ncscope.transfer.separability import (
    gbc,
    transrate,
    transrate_listing,
    transrate_projected,
)
from ncscope.transfer.similarity import parc

NLEEP_LIMIT = 20_000
PARC_LIMIT = 2_000
"""Samples times classes for NLEEP, and samples for PARC, above which they run on request only."""


class SourceOutputs(NamedTuple):
    """Outputs of a checkpoint's own head for the downstream samples.

    Attributes:
        predictions: Predicted source class of each sample.
        probabilities: Probabilities of the source classes; None if only predictions are known.
    """

    predictions: Int[Tensor, " n"]
    probabilities: Float[Tensor, "n z"] | None

    def subset(self, chosen: Tensor) -> "SourceOutputs":
        """Return the outputs for some of the samples.

        Args:
            chosen: Mask or indices of samples.
        """
        rows = None if self.probabilities is None else self.probabilities[chosen]
        return SourceOutputs(self.predictions[chosen], rows)


def checked_source(given: Any, labels: Int[Tensor, " n"]) -> SourceOutputs:
    """Check source probabilities, or source predictions, for LEEP and NCE.

    Args:
        given: Probabilities of the source classes, n x Z; or n predicted source classes.
        labels: Labels of the samples.

    Raises:
        InputError: If they do not fit the samples, or rows of probabilities do not sum to one.
    """
    rows = as_tensor(given, "source probabilities").to(labels.device)
    if rows.ndim == 1:
        return SourceOutputs(checked_predictions(rows, labels), None)
    probabilities = checked_probabilities(rows, len(labels))
    return SourceOutputs(probabilities.argmax(1), probabilities)


@dataclass(frozen=True)
class SampleScores:
    """Scores that read the samples themselves.

    Attributes:
        values: Score by key of `SCORES`; a score that was left out is missing.
        parts: Parts of NCTI, whose index needs all checkpoints.
        left_out: Reason for each score that was left out, by its name.
        errors: Standard error by key of the scores that have one.
    """

    values: Mapping[str, float]
    parts: NctiParts
    left_out: Mapping[str, str]
    errors: Mapping[str, float]


def moment_scores(stats: ClassStatistics) -> dict[str, float]:
    """Compute the scores that read class moments, from one decomposition of the discriminants.

    Args:
        stats: Statistics with scatter and directions, under the empirical prior.

    Raises:
        InputError: If the squares of the features leave the range of float64.
    """
    check_scale(stats)
    decomposed = discriminants(stats)
    values = {
        "vci": vci(stats, decomposed),
        "fuzziness": fuzziness(stats, decomposed),
        "nc1_quotient": nc1_quotient(stats),
        "cosine_within": cosine_within(stats),
        "cdnv": cdnv(stats),
        "h_score": h_score(stats, decomposed),
        "log_me": log_me(stats),
    }
    return {key: float(value) for key, value in values.items()}


def sample_scores(
    samples: LabelledSamples,
    source: SourceOutputs | None = None,
    *,
    expensive: bool | None = None,
    seed: int = 0,
) -> SampleScores:
    """Compute the scores that read the samples themselves.

    Args:
        samples: Downstream samples.
        source: Outputs of the source head for these samples, for LEEP and NCE.
        expensive: True for NLEEP and PARC whatever they cost, False for neither; by default those
            whose cost is within `NLEEP_LIMIT` and `PARC_LIMIT`.
        seed: Seed of NLEEP's mixture.

    Raises:
        InputError: If a score was asked for that cannot be computed.
    """
    values: dict[str, float] = {}
    left_out: dict[str, str] = {}
    if source is None:
        left_out["LEEP and NCE"] = "no source probabilities"
    else:
        values["nce"] = float(nce(samples, source.predictions))
        if source.probabilities is None:
            left_out["LEEP"] = "source predictions without probabilities"
        else:
            values["leep"] = float(leep(samples, source.probabilities))
    for key, name, reason, score in _expensive(samples, seed):
        if expensive is True or (expensive is None and reason is None):
            values[key] = float(score(samples))
        elif expensive is None:
            assert reason is not None
            left_out[name] = reason
    for key, cheap in _CHEAP.items():
        values[key] = float(cheap(samples))
    own = explained_entropy(samples)
    values["explained_entropy"] = own.value
    errors = {"explained_entropy": own.standard_error}
    return SampleScores(values, ncti_parts(samples), left_out, errors)


_CHEAP: Mapping[str, Callable[[LabelledSamples], Float[Tensor, ""]]] = {
    "sfda": sfda,
    "gbc": gbc,
    "transrate": transrate,
    "transrate_listing": transrate_listing,
    "transrate_projected": transrate_projected,
    "regularised_h_score": regularised_h_score,
}


class _Expensive(NamedTuple):
    """A score that is computed on request, or if there is no reason against it."""

    key: str
    name: str
    reason: str | None
    score: Callable[[LabelledSamples], Float[Tensor, ""]]


def _expensive(samples: LabelledSamples, seed: int) -> list[_Expensive]:
    n, k = len(samples.labels), len(samples.classes)
    mixture = None
    if n * k > NLEEP_LIMIT:
        mixture = f"{n:,} samples of {k:,} classes: ask for expensive scores"
    elif n < COMPONENTS_PER_CLASS * k:
        mixture = f"fewer than {COMPONENTS_PER_CLASS} samples for each class"
    elif find_spec("sklearn") is None:
        mixture = f"scikit-learn is not installed: {library_error(name='sklearn').fix}"
    pairs = f"{n:,} samples: ask for expensive scores" if n > PARC_LIMIT else None
    return [
        _Expensive("nleep", "NLEEP", mixture, lambda rows: nleep(rows, seed=seed)),
        _Expensive("parc", "PARC", pairs, parc),
    ]
