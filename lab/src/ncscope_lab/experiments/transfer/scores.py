"""Scores of a network on a target: the sample that a score may read, all scores, their times."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.data.draws import generator
from ncscope.errors import InputError
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import cdnv, cosine_within, fuzziness, nc1_quotient
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope.transfer import (
    explained_entropy,
    gbc,
    h_score,
    leep,
    log_me,
    nce,
    ncti_parts,
    nleep,
    parc,
    regularised_h_score,
    sfda,
    transrate,
    transrate_listing,
    transrate_projected,
)
from ncscope.transfer.probes.selection import choose_for_samples, scale_strengths
from ncscope.transfer.ranking import gather_moments, hold_out, score_checkpoint
from ncscope.transfer.records import Score
from ncscope.transfer.samples import DownstreamSamples, check_downstream
from ncscope.transfer.scores.all_scores import SourceOutputs
from ncscope.transfer.scores.explained_entropy import STRENGTHS, RidgeRegressions, entropy_share

FEW = 5
"""Training images of each class where only a few are used."""

NCTI = "ncti_"
"""Prefix of the keys of NCTI's parts, whose index needs all networks."""

INDEX = "explained_entropy"
"""Key of our index."""

PREFIX = "index_"

VARIANTS: Mapping[str, Score] = {
    f"{PREFIX}fitted": Score("without leaving out", 1),
    f"{PREFIX}permuted": Score("chance by permuted labels, not left out", 1),
    f"{PREFIX}no_penalty": Score("without penalty", 1),
    f"{PREFIX}one_penalty": Score("one strength for all", 1),
    f"{PREFIX}variance": Score("variance, not entropy", 1),
    f"{PREFIX}accuracy": Score("accuracy, not entropy", 1),
}
"""Our index with one ingredient left out or replaced."""

_ONE_STRENGTH = 10.0**-2.5


@dataclass(frozen=True)
class Sample:
    """Features and labels that a score may read of a network on a target.

    Attributes:
        features: Features of the target's training images.
        labels: Their labels.
        probabilities: Probabilities of the network's own classes for these images; None if it has
            no classifier.
        source_features: Features of the images that the network was trained on.
        source_labels: Their labels.
    """

    features: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]
    probabilities: Float[Tensor, "n z"] | None
    source_features: Float[Tensor, "m d"]
    source_labels: Int[Tensor, " m"]

    def few(self) -> "Sample":
        """Return the sample with only `FEW` images of each class, the same for every network."""
        chosen = choose_few(self.labels)
        own = None if self.probabilities is None else self.probabilities[chosen]
        return replace(
            self,
            features=self.features[chosen],
            labels=self.labels[chosen],
            probabilities=own,
        )


def choose_few(labels: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
    """Return the indices of `FEW` random samples of each class, or of all if there are fewer.

    Example:
        >>> choose_few(torch.arange(30) % 3).shape
        torch.Size([15])
    """
    draws = generator(0)
    chosen = []
    for label in labels.unique():
        members = torch.nonzero(labels == label).flatten()
        chosen.append(members[torch.randperm(len(members), generator=draws)[:FEW]])
    return torch.cat(chosen).sort().values


def score_sample(sample: Sample, test: DownstreamSamples) -> dict[str, float]:
    """Return the accuracy of the probe, all scores of the package, and parts of two of them.

    NLEEP and PARC are missing if NLEEP is undefined, as for features that do not vary.

    Args:
        sample: Training images of the target.
        test: Features of its held-out images.
    """
    train = check_downstream(sample.features, sample.labels)
    own = sample.probabilities
    outputs = None if own is None else SourceOutputs(own.argmax(1), own)
    try:
        found = score_checkpoint("", train, test, source=outputs, expensive=True)
    except InputError:
        found = score_checkpoint("", train, test, source=outputs, expensive=False)
    parts = {} if found.parts is None else found.parts._asdict()
    return {
        "accuracy": found.accuracy,
        "classes": len(train.classes),
        "dim": train.features.shape[1],
        **found.scores,
        **score_variants(train),
        **{NCTI + key: value for key, value in parts.items()},
    }


def score_variants(samples: DownstreamSamples) -> dict[str, float]:
    r"""Return the values of `VARIANTS`.

    *Chance by permuted labels* is the share $R^2$ of the variance of the one-hot labels that the
    fit itself explains, with its mean over random labels, $E=\frac1{n-1}\sum_ja_j(2-a_j)$ for the
    factors $a_j$ of `RidgeRegressions`, taken off: $\frac{R^2-E}{1-E}$.
    """
    ridge = RidgeRegressions(samples)
    strength = ridge.choose_strength()
    whole, others = ridge.predict(strength)
    total = float((ridge.labels - ridge.shares).square().sum())
    factors = ridge.variances / (ridge.variances + strength)
    chance = float((factors * (2 - factors)).sum()) / (len(samples.labels) - 1)
    explained = 1 - ridge.squared_error(whole) / total

    def share(strength: float) -> float:
        return entropy_share(ridge.predict(strength)[1], samples.class_indices)[0]

    right = others.argmax(1) == samples.class_indices
    values = (
        entropy_share(whole, samples.class_indices)[0],
        (explained - chance) / (1 - chance) if chance < 1 else 0.0,
        share(STRENGTHS[0]),
        share(_ONE_STRENGTH),
        1 - ridge.squared_error(others) / total,
        float(right.double().mean()),
    )
    return dict(zip(VARIANTS, values, strict=True))


PROBE = "probe"
"""Key of the time of the probe that the scores save."""

_OF_SAMPLES: Mapping[str, Callable[[DownstreamSamples], Any]] = {
    "explained_entropy": explained_entropy,
    "regularised_h_score": regularised_h_score,
    "nleep": nleep,
    "sfda": sfda,
    "ncti": ncti_parts,
    "gbc": gbc,
    "transrate": transrate,
    "transrate_listing": transrate_listing,
    "transrate_projected": transrate_projected,
    "parc": parc,
}

_OF_MOMENTS: Mapping[str, Callable[[ClassStatistics], Any]] = {
    "h_score": h_score,
    "log_me": log_me,
    "fuzziness": lambda stats: fuzziness(stats, discriminants(stats)),
    "nc1_quotient": nc1_quotient,
    "cosine_within": cosine_within,
    "cdnv": cdnv,
}


def time_scores(sample: Sample, clock: Callable[[], float]) -> dict[str, float]:
    """Return the seconds of each score, and of a probe with the choice of its penalty.

    Args:
        sample: Training images of a target.
        clock: Function that returns the time in seconds.
    """
    samples = check_downstream(sample.features, sample.labels)
    work: dict[str, Callable[[], Any]] = {
        key: lambda score=score: score(samples)  # type: ignore[misc]
        for key, score in _OF_SAMPLES.items()
    }
    for key, score in _OF_MOMENTS.items():
        work[key] = lambda score=score: score(finish(gather_moments(samples)))  # type: ignore[misc]
    own = sample.probabilities
    if own is not None:
        work["leep"] = lambda: leep(samples, own)
        work["nce"] = lambda: nce(samples, own.argmax(1))
    validation = hold_out(samples.labels, 0)
    fitted, held_out = samples.select(~validation), samples.select(validation)
    work[PROBE] = lambda: choose_for_samples(
        fitted, held_out, "top-1", scale_strengths(fitted.features)
    )
    found = {}
    for key, run in work.items():
        start = clock()
        run()
        found[key] = clock() - start
    return found
