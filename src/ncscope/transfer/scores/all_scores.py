"""All scores of one checkpoint on one downstream set, and the reasons for those left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from ncscope.array_checks import as_tensor
from ncscope.errors import library_error
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import cdnv, cosine_within, fuzziness, nc1_quotient, vci
from ncscope.stats.statistics import ClassStatistics
from ncscope.transfer.samples import DownstreamSamples
from ncscope.transfer.scores.explained_entropy import explained_entropy
from ncscope.transfer.scores.gbc import gbc
from ncscope.transfer.scores.h_score import h_score, regularised_h_score
from ncscope.transfer.scores.leep import check_probabilities, leep
from ncscope.transfer.scores.log_me import log_me
from ncscope.transfer.scores.nce import check_predictions, nce
from ncscope.transfer.scores.ncti import NctiParts, ncti_parts
from ncscope.transfer.scores.nleep import COMPONENTS_PER_CLASS, nleep
from ncscope.transfer.scores.parc import parc
from ncscope.transfer.scores.sfda import sfda
from ncscope.transfer.scores.transrate import transrate, transrate_listing, transrate_projected
from ncscope.transfer.uneven_scales import check_scale

NLEEP_LIMIT = 20_000
PARC_LIMIT = 2_000
"""Samples times classes for NLEEP, and samples for PARC, above which they run on request only."""

_ROUNDING = 1e-12  # of a share from 0 to 1


class SourceOutputs(NamedTuple):
    """Outputs of a checkpoint's own head for the downstream samples.

    Attributes:
        predictions: Predicted source class of each sample.
        probabilities: Probabilities of the source classes; None if only predictions are known.
    """

    predictions: Int[Tensor, " n"]
    probabilities: Float[Tensor, "n z"] | None

    def select(self, rows: Tensor) -> "SourceOutputs":
        """Return the outputs for some of the samples.

        Args:
            rows: Mask or indices of samples.
        """
        probabilities = None if self.probabilities is None else self.probabilities[rows]
        return SourceOutputs(self.predictions[rows], probabilities)


def check_source_outputs(outputs: Any, labels: Int[Tensor, " n"]) -> SourceOutputs:
    """Check source probabilities, or source predictions, for LEEP and NCE.

    Args:
        outputs: Probabilities of the source classes, n x Z; or n predicted source classes.
        labels: Labels of the samples.

    Raises:
        InputError: If they do not fit the samples, or rows of probabilities do not sum to one.
    """
    rows = as_tensor(outputs, "source probabilities").to(labels.device)
    if rows.ndim == 1:
        return SourceOutputs(check_predictions(rows, labels), None)
    probabilities = check_probabilities(rows, len(labels))
    return SourceOutputs(probabilities.argmax(1), probabilities)


@dataclass(frozen=True)
class SampleScores:
    """Scores that read the samples themselves.

    Attributes:
        values: Score by key of `SCORES`; a score that was left out is missing.
        parts: Parts of NCTI, whose index needs all checkpoints.
        omissions: Reason for each score that was left out, by its name.
        errors: Standard error by key of the scores that have one.
    """

    values: Mapping[str, float]
    parts: NctiParts
    omissions: Mapping[str, str]
    errors: Mapping[str, float]


def moment_scores(stats: ClassStatistics) -> dict[str, float]:
    """Compute the scores that read class moments, from one decomposition of the discriminants.

    Args:
        stats: Statistics with scatter and directions, under the empirical prior.

    Raises:
        InputError: If the squares of the features leave the range of float64.
    """
    check_scale(stats)
    decomposition = discriminants(stats)
    values = {
        "vci": vci(stats, decomposition),
        "fuzziness": fuzziness(stats, decomposition),
        "nc1_quotient": nc1_quotient(stats),
        "cosine_within": cosine_within(stats),
        "cdnv": cdnv(stats),
        "h_score": h_score(stats, decomposition),
        "log_me": log_me(stats),
    }
    return {key: float(value) for key, value in values.items()}


def sample_scores(
    samples: DownstreamSamples,
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
    omissions: dict[str, str] = {}
    if source is None:
        omissions["LEEP and NCE"] = "no source probabilities"
    else:
        values["nce"] = float(nce(samples, source.predictions))
        if source.probabilities is None:
            omissions["LEEP"] = "source predictions without probabilities"
        else:
            values["leep"] = float(leep(samples, source.probabilities))
    n, k = len(samples.labels), len(samples.classes)
    no_nleep = None
    if n * k > NLEEP_LIMIT:
        no_nleep = f"{n:,} samples of {k:,} classes: ask for expensive scores"
    elif n < COMPONENTS_PER_CLASS * k:
        no_nleep = f"fewer than {COMPONENTS_PER_CLASS} samples for each class"
    elif find_spec("sklearn") is None:
        no_nleep = f"scikit-learn is not installed: {library_error(name='sklearn').fix}"
    if expensive is True or (expensive is None and no_nleep is None):
        values["nleep"] = float(nleep(samples, seed=seed))
    elif no_nleep is not None and expensive is None:
        omissions["NLEEP"] = no_nleep
    if expensive is True or (expensive is None and n <= PARC_LIMIT):
        values["parc"] = float(parc(samples))
    elif expensive is None:
        omissions["PARC"] = f"{n:,} samples: ask for expensive scores"
    cheap = (sfda, gbc, transrate, transrate_listing, transrate_projected, regularised_h_score)
    values |= {score.__name__: float(score(samples)) for score in cheap}
    entropy = explained_entropy(samples)
    values["explained_entropy"] = entropy.value
    # Of a value that does not vary with the samples the error is rounding: no digit of it is true.
    certain = entropy.standard_error <= _ROUNDING
    errors = {} if certain else {"explained_entropy": entropy.standard_error}
    return SampleScores(values, ncti_parts(samples), omissions, errors)
