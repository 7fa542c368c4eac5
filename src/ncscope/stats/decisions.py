"""Second pass over the features: decisions of the nearest class mean and of the classifier."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.math.powers import GATHERED, exponent_of, largest_magnitude, times_power
from ncscope.math.scores import float32_centre, head_scores, nearest_mean_scores
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

    def __add__(self, other: "DecisionCounts") -> "DecisionCounts":
        """Add the counts of two sets of samples."""
        return DecisionCounts(
            self.samples + other.samples,
            self.nearest_hits + other.nearest_hits,
            _sum(self.head_hits, other.head_hits),
            _sum(self.disagreements, other.disagreements),
        )

    def over_all_processes(
        self, device: torch.device, processes: Processes = ALL
    ) -> "DecisionCounts":
        """Sum the counts over all processes; a single process returns its counts.

        Args:
            device: Device on which to add the counts.
            processes: Processes that measure together; by default those of the default group.
        """
        local = (self.samples, self.nearest_hits, self.head_hits or 0, self.disagreements or 0)
        total = processes.sum(torch.tensor(local, device=device)).tolist()
        if self.head_hits is None:
            return DecisionCounts(total[0], total[1], None, None)
        return DecisionCounts(*total)


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

    def none(self) -> DecisionCounts:
        """Return the counts before the first batch."""
        by_head = None if self.head is None else 0
        return DecisionCounts(0, 0, by_head, by_head)

    def __call__(
        self, features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"]
    ) -> DecisionCounts:
        """Count the decisions on a batch. Cost: one product with means and weights."""
        features, labels = features.to(self.classes.device), labels.to(self.classes.device)
        nearest = self.classes[self.nearest.argmax(features)]
        hits = int((nearest == labels).sum())
        if self.head is None:
            return DecisionCounts(len(labels), hits, None, None)
        chosen = self.head.argmax(features)
        correct, differ = int((chosen == labels).sum()), int((chosen != nearest).sum())
        return DecisionCounts(len(labels), hits, correct, differ)


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
    limit = GATHERED[torch.float64]
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
