"""Second pass over the features: decisions of the nearest class mean and of the classifier."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.devices import move_to
from ncscope.math.powers import STREAM_LIMIT, exponent_of, largest_magnitude, times_power
from ncscope.math.scores import float32_centre, head_scores, nearest_mean_scores
from ncscope.stats.processes import ALL, Processes


@dataclass(frozen=True)
class Hits:
    """Samples, and how many of them a classifier assigns to their class.

    Attributes:
        samples: Number of samples.
        correct: Number of hits; an estimate may be no integer.
        by_class: Number of hits of each class, present or not; None for an estimate.
    """

    samples: int
    correct: float
    by_class: Int[Tensor, " k"] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class DecisionCounts:
    """Counts of how samples were decided; additive over batches.

    Attributes:
        samples: Number of samples.
        nearest_hits: Samples whose nearest class mean is that of their class.
        head_hits: Samples that the classifier assigns to their class; None without a classifier.
        disagreements: Samples for which the nearest class mean and the classifier choose
            different classes; None without a classifier.
        by_class: The last three counts of the samples of each class, present or not, one count a
            row, on the CPU; None for counts that are estimated.

    The counts are integers, unless they are estimated from a sample.
    """

    samples: int
    nearest_hits: float
    head_hits: float | None
    disagreements: float | None
    by_class: Int[Tensor, "m k"] | None = field(default=None, compare=False, repr=False)

    @property
    def hits(self) -> Hits | None:
        """The classifier's hits; None without a classifier."""
        if self.head_hits is None:
            return None
        by_class = None if self.by_class is None else self.by_class[1]
        return Hits(self.samples, self.head_hits, by_class)

    def __radd__(self, other: int) -> "DecisionCounts":
        """Return the counts if the other summand is 0, with which `sum` begins."""
        return self if other == 0 else NotImplemented

    def __add__(self, other: "DecisionCounts") -> "DecisionCounts":
        """Add the counts of two sets of samples, of which one may have fewer classes."""
        by_class = None
        if self.by_class is not None and other.by_class is not None:
            wide, narrow = self.by_class, other.by_class
            if wide.shape[1] < narrow.shape[1]:
                wide, narrow = narrow, wide
            by_class = wide.clone()
            by_class[:, : narrow.shape[1]] += narrow
        return DecisionCounts(
            self.samples + other.samples,
            self.nearest_hits + other.nearest_hits,
            _add(self.head_hits, other.head_hits),
            _add(self.disagreements, other.disagreements),
            by_class,
        )


@dataclass(frozen=True)
class DecisionTally:
    """Decision counts by class that stay on their device; additive over batches.

    Attributes:
        samples: Number of samples.
        hits: Hits of the nearest class mean; with a classifier also its hits, and disagreements.
            A column counts the samples of one class.
    """

    samples: int
    hits: Int[Tensor, "m k"]

    def __add__(self, other: "DecisionTally") -> "DecisionTally":
        """Add the counts of two sets of samples."""
        return DecisionTally(self.samples + other.samples, self.hits + other.hits)

    def read(self) -> DecisionCounts:
        """Return the counts as numbers. Cost: one wait."""
        by_class = self.hits.cpu()
        nearest, head, others = [*by_class.sum(1).tolist(), None, None][:3]
        return DecisionCounts(self.samples, nearest, head, others, by_class)

    def sum_over_processes(
        self, device: torch.device, processes: Processes = ALL
    ) -> DecisionCounts:
        """Sum the counts over all processes; a single process returns its counts.

        Args:
            device: Device on which to add the counts.
            processes: Processes that measure together; by default those of the default group.
        """
        # One tensor, so that one communication sums everything.
        samples = self.hits.new_full((1,), self.samples)
        total = processes.sum(torch.cat([samples, self.hits.flatten()]).to(device))
        return DecisionTally(int(total[0]), total[1:].view_as(self.hits)).read()


class Decider:
    r"""Nearest-class-mean and classifier decisions, exact to float64 (see `LinearScores`).

    Args:
        classes: Labels of the class means.
        means: $\mu_c$, one a row, float64.
        weight: $W$ of any float type, one row for every class, present or not; None without a
            classifier.
        bias: $b$, or None.
        exponent: Unit e of features and means: the classifier takes features $2^e$ times as large.
        num_classes: Number of classes that labels may have; by default the number of rows of the
            weight, else the largest label of a class mean + 1.
    """

    def __init__(
        self,
        classes: Int[Tensor, " k"],
        means: Float[Tensor, "k d"],
        weight: Float[Tensor, "heads d"] | None = None,
        bias: Float[Tensor, " heads"] | None = None,
        *,
        exponent: int = 0,
        num_classes: int | None = None,
    ) -> None:
        self.classes, centre = classes, float32_centre(means)
        if num_classes is None:
            num_classes = int(classes[-1]) + 1 if weight is None else len(weight)
        self.num_classes = num_classes
        self.nearest = nearest_mean_scores(means, centre)
        self.head = None
        if weight is not None:
            self.head = head_scores(*_scale_head(weight, bias, exponent), centre)

    def start_tally(self) -> DecisionTally:
        """Return the counts before the first batch."""
        return DecisionTally(
            0, self.classes.new_zeros(1 if self.head is None else 3, self.num_classes)
        )

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
    rows = {name: move_to(features[name], each.classes.device) for name, each in deciders.items()}
    scorers = [
        (name, scores)
        for name, decide in deciders.items()
        for scores in (decide.nearest, decide.head)
        if scores is not None
    ]
    choices = [scores.choose(rows[name]) for name, scores in scorers]
    # To read which features are doubtful is to wait for an accelerator. All layers wait once, after
    # their products have been queued; usually few features or none are left to be scored again.
    if choices and len(doubtful := torch.nonzero(torch.stack([marks for _, marks in choices]))):
        which, indices = doubtful.unbind(1)
        counts = Counter(which.tolist())
        parts = indices.split([counts[index] for index in range(len(choices))])
        for (name, scores), (winner, _), part in zip(scorers, choices, parts, strict=True):
            scores.settle_(winner, rows[name], part)
    winners = iter(winner for winner, _ in choices)
    tallies = {}
    for name, decide in deciders.items():
        classes = move_to(labels, decide.classes.device)
        nearest = decide.classes[next(winners)]
        hits = [nearest == classes]
        if decide.head is not None:
            predicted = next(winners)
            hits += [predicted == classes, predicted != nearest]
        by_class = count_by_class(torch.stack(hits), classes, decide.num_classes)
        tallies[name] = DecisionTally(len(classes), by_class)
    return tallies


def count_by_class(
    marks: Shaped[Tensor, "m n"], labels: Int[Tensor, " n"], num_classes: int
) -> Int[Tensor, "m k"]:
    """Count the marked samples of each class, without waiting for an accelerator.

    Args:
        marks: True or 1 for a sample that counts; several marks of each sample, one a row.
        labels: Class of each sample.
        num_classes: Number of classes, present or not.

    Example:
        >>> count_by_class(torch.tensor([[True, False, True]]), torch.tensor([2, 2, 0]), 3).tolist()
        [[1, 0, 1]]
    """
    counts = torch.zeros(len(marks), num_classes, dtype=torch.int64, device=marks.device)
    # A label that is no class, such as one that a second pass over shards meets first, must not end
    # the process on an accelerator; its sample counts in the total.
    return counts.index_add_(1, labels.clamp(0, num_classes - 1), marks.to(torch.int64))


def _scale_head(
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
    limit = STREAM_LIMIT
    divided = exponent_of(weight, limit)
    if bias is None:
        return times_power(weight, -divided), None
    # A bias beyond the range sets the divisor of both. Digits that the weights then lose to
    # underflow change the scores by less than the rounding of such a bias.
    largest = math.frexp(largest_magnitude(bias))[1]
    divided = max(divided, largest - exponent - limit)
    scaled = times_power(bias.to(torch.float64), -exponent - divided)
    return times_power(weight, -divided), scaled


def _add(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b
