"""Truth, scores and facts of a network on a target, from its features alone."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.data.draws import generator
from ncscope.errors import InputError
from ncscope.lab.zoo.ingredients import variants
from ncscope.transfer.ranking import score_checkpoint
from ncscope.transfer.samples import DownstreamSamples, check_downstream
from ncscope.transfer.scores.all_scores import SourceOutputs

FEW = 5
"""Training images of each class where only a few are used."""

NCTI = "ncti_"
"""Prefix of the keys of NCTI's parts, whose index needs all networks."""


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
        chosen = few_of(self.labels)
        own = None if self.probabilities is None else self.probabilities[chosen]
        return replace(
            self,
            features=self.features[chosen],
            labels=self.labels[chosen],
            probabilities=own,
        )


def few_of(labels: Int[Tensor, " n"]) -> Int[Tensor, " m"]:
    """Return the indices of `FEW` random samples of each class, or of all if there are fewer.

    Args:
        labels: Labels of all samples.

    Example:
        >>> few_of(torch.arange(30) % 3).shape
        torch.Size([15])
    """
    draws = generator(0)
    chosen = []
    for label in labels.unique():
        members = torch.nonzero(labels == label).flatten()
        chosen.append(members[torch.randperm(len(members), generator=draws)[:FEW]])
    return torch.cat(chosen).sort().values


def measured(sample: Sample, test: DownstreamSamples) -> dict[str, float]:
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
        **variants(train),
        **{NCTI + key: value for key, value in parts.items()},
    }
