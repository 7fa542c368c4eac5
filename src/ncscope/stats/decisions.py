"""Second pass over the features: decisions of the nearest class mean and of the classifier."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from ncscope.devices import moved
from ncscope.math.powers import GATHERED, exponent_of, largest_magnitude, times_power
from ncscope.math.scores import LinearScores, float32_centre, head_scores, nearest_mean_scores
from ncscope.stats.processes import ALL, Processes


@dataclass(frozen=True)
class Hits:
    """Samples, and how many of them a classifier assigns to their class.

    Attributes:
        samples: Number of samples.
        correct: Number of hits; an estimate may be no integer.
    """

    samples: int
    correct: float


@dataclass(frozen=True)
class DecisionCounts:
    """Counts of how samples were decided; additive over batches.

    Attributes:
        samples: Number of samples.
        nearest_hits: Samples whose nearest class mean is that of their class.
        head_hits: Samples that the classifier assigns to their class; None without a classifier.
        disagreements: Samples for which the nearest class mean and the classifier choose
            different classes; None without a classifier.

    The last three are integers, unless they are estimated from a sample.
    """

    samples: int
    nearest_hits: float
    head_hits: float | None
    disagreements: float | None

    @property
    def hits(self) -> Hits | None:
        """The classifier's hits; None without a classifier."""
        return None if self.head_hits is None else Hits(self.samples, self.head_hits)

    def __radd__(self, other: int) -> "DecisionCounts":
        """Return the counts if the other summand is 0, with which `sum` begins."""
        return self if other == 0 else NotImplemented

    def __add__(self, other: "DecisionCounts") -> "DecisionCounts":
        """Add the counts of two sets of samples."""
        return DecisionCounts(
            self.samples + other.samples,
            self.nearest_hits + other.nearest_hits,
            _sum(self.head_hits, other.head_hits),
            _sum(self.disagreements, other.disagreements),
        )


@dataclass(frozen=True)
class DecisionTally:
    """Decision counts that stay on their device; additive over batches.

    Attributes:
        samples: Number of samples.
        hits: Hits of the nearest class mean; with a classifier also its hits, and disagreements.
    """

    samples: int
    hits: Int[Tensor, " m"]

    def __add__(self, other: "DecisionTally") -> "DecisionTally":
        """Add the counts of two sets of samples."""
        return DecisionTally(self.samples + other.samples, self.hits + other.hits)

    def read(self) -> DecisionCounts:
        """Return the counts as numbers. Cost: one wait."""
        nearest, *by_head = self.hits.tolist()
        return DecisionCounts(self.samples, nearest, *(by_head or (None, None)))

    def over_all_processes(
        self, device: torch.device, processes: Processes = ALL
    ) -> DecisionCounts:
        """Sum the counts over all processes; a single process returns its counts.

        Args:
            device: Device on which to add the counts.
            processes: Processes that measure together; by default those of the default group.
        """
        samples = self.hits.new_full((1,), self.samples)
        total = processes.sum(torch.cat([samples, self.hits]).to(device))
        return DecisionTally(int(total[0]), total[1:]).read()


class Decider:
    r"""Nearest-class-mean and classifier decisions, exact to float64 (see `LinearScores`).

    Args:
        classes: Labels of the class means.
        means: $\mu_c$, one a row, float64.
        weight: $W$ of any float type, one row for every class, present or not; None without a
            classifier.
        bias: $b$, or None.
        exponent: Unit e of features and means: the classifier takes features $2^e$ times as large.
    """

    def __init__(
        self,
        classes: Int[Tensor, " k"],
        means: Float[Tensor, "k d"],
        weight: Float[Tensor, "heads d"] | None = None,
        bias: Float[Tensor, " heads"] | None = None,
        *,
        exponent: int = 0,
    ) -> None:
        self.classes, centre = classes, float32_centre(means)
        self.nearest = nearest_mean_scores(means, centre)
        self.head = None
        if weight is not None:
            self.head = head_scores(*_in_range(weight, bias, exponent), centre)

    def none(self) -> DecisionTally:
        """Return the counts before the first batch."""
        return DecisionTally(0, self.classes.new_zeros(1 if self.head is None else 3))

    def __call__(self, features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"]) -> DecisionTally:
        """Count the decisions on a batch. Cost: one product with means and weights."""
        return decide_layers({"": self}, {"": features}, labels)[""]


def decide_layers(
    deciders: Mapping[str, Decider],
    features: Mapping[str, Shaped[Tensor, "n _d"]],
    labels: Int[Tensor, " n"],
) -> dict[str, DecisionTally]:
    """Count the decisions of several layers on a batch. Cost: at most two waits for all layers.

    Args:
        deciders: Decider of each layer, all on one device.
        features: Features of at least these layers.
        labels: Class of each sample.
    """
    chosen = {name: _first_choices(decide, features[name]) for name, decide in deciders.items()}
    _settle([choice for choices in chosen.values() for choice in choices])
    return {
        name: _tally(deciders[name].classes, moved(labels, deciders[name].classes.device), choices)
        for name, choices in chosen.items()
    }


class _Choice(NamedTuple):
    """Classes that one set of scores chooses for a batch, some of them doubtful."""

    scores: LinearScores
    features: Tensor
    winner: Int[Tensor, " n"]
    doubtful: Bool[Tensor, " n"]


def _first_choices(decide: Decider, features: Shaped[Tensor, "n d"]) -> list[_Choice]:
    rows = moved(features, decide.classes.device)
    scores = [decide.nearest] if decide.head is None else [decide.nearest, decide.head]
    return [_Choice(each, rows, *each.first_choice(rows)) for each in scores]


def _settle(choices: Sequence[_Choice]) -> None:
    """Score the doubtful features of all choices again; they are read from the device together."""
    if not choices:
        return
    doubtful = torch.nonzero(torch.stack([choice.doubtful for choice in choices]))
    if not len(doubtful):
        return
    which, rows = doubtful.unbind(1)
    counts = Counter(which.tolist())
    parts = rows.split([counts[index] for index in range(len(choices))])
    for choice, part in zip(choices, parts, strict=True):
        choice.scores.settle_(choice.winner, choice.features, part)


def _tally(
    classes: Int[Tensor, " k"], labels: Int[Tensor, " n"], choices: Sequence[_Choice]
) -> DecisionTally:
    nearest = classes[choices[0].winner]
    hits = [nearest == labels]
    for choice in choices[1:]:
        hits += [choice.winner == labels, choice.winner != nearest]
    return DecisionTally(len(labels), torch.stack([hit.sum() for hit in hits]))


def _in_range(
    weight: Float[Tensor, "heads d"], bias: Float[Tensor, " heads"] | None, exponent: int
) -> tuple[Float[Tensor, "heads d"], Float[Tensor, " heads"] | None]:
    """Divide weight and bias by one power of two, so that products and sums stay in range.

    The common factor does not change which score is the largest.

    Args:
        weight: $W$.
        bias: $b$.
        exponent: Exponent of 2 of the features' unit. The bias is divided by this unit, which
            multiplies all scores by the same factor.
    """
    limit = GATHERED
    divided = exponent_of(weight, limit)
    if bias is None:
        return times_power(weight, -divided), None
    # A bias beyond the range sets the divisor of both. Digits that the weights then lose to
    # underflow change the scores by less than the rounding of such a bias.
    largest = math.frexp(largest_magnitude(bias))[1]
    divided = max(divided, largest - exponent - limit)
    scaled = times_power(bias.to(torch.float64), -exponent - divided)
    return times_power(weight, -divided), scaled


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
