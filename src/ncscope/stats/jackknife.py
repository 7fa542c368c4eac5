r"""Delete-a-group jackknife: moments of a sample without one of its groups, and what they estimate.

Source: Efron and Stein, The jackknife estimate of variance, Annals of Statistics 1981; groups as in
Shao and Tu, The Jackknife and Bootstrap, 1995, section 2.3.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ncscope.stats.directions import Batches
from ncscope.stats.moments import ClassMoments

GROUPS = 20
"""Number of groups G."""

T_QUANTILE = 2.093024
"""0.975 quantile of Student's t with G - 1 = 19 degrees of freedom."""


class Estimate(NamedTuple):
    """Standard error of a value, and the value with its estimate of bias removed."""

    standard_error: float
    bias_corrected: float

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval, not clipped to the range of the value."""
        half = T_QUANTILE * self.standard_error
        return self.bias_corrected - half, self.bias_corrected + half


def jackknife(value: float, without: Sequence[float]) -> Estimate:
    r"""Estimate standard error and bias of a value from the values without each group.

    $\widehat{se}^2=\frac{G-1}G\sum_g(\theta_{-g}-\bar\theta)^2$, and corrected value
    $G\theta-(G-1)\bar\theta$.

    Args:
        value: $\theta$, the value of all samples.
        without: $\theta_{-g}$, the value without group g, for each group.

    Example:
        >>> estimate = jackknife(2.0, [1.0, 2.0, 3.0])
        >>> round(estimate.standard_error, 6), estimate.bias_corrected
        (1.154701, 2.0)
    """
    count = len(without)
    mean = sum(each / count for each in without)
    # Not a sum of squares: a value near the largest number would overflow.
    spread = math.hypot(*(each - mean for each in without))
    return Estimate(math.sqrt((count - 1) / count) * spread, value + (count - 1) * (value - mean))


class Dealer:
    """Dealing of the samples of a stream to groups, each class in turn.

    The j-th sample of class c belongs to group (j + c) mod G, so every group holds nearly the same
    number of samples of each class, and classes of few samples do not all begin with group 0.

    Args:
        num_classes: Number of classes.
        groups: Number of groups G.
        first: Group of the first sample of class 0.

    Example:
        >>> deal = Dealer(num_classes=2, groups=3)
        >>> deal(torch.tensor([0, 0, 1, 0])).tolist(), deal(torch.tensor([0, 1])).tolist()
        ([0, 1, 1, 2], [0, 2])
    """

    def __init__(self, num_classes: int, groups: int = GROUPS, first: int = 0) -> None:
        self.groups = groups
        self._next = torch.arange(num_classes) + first

    def __call__(self, labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Return the group of each sample, and count the samples as dealt."""
        labels = labels.cpu()
        order = torch.argsort(labels, stable=True)
        counts = torch.bincount(labels, minlength=len(self._next))
        starts = counts.cumsum(0) - counts
        position = torch.empty_like(labels)
        position[order] = torch.arange(len(labels)) - starts[labels[order]]
        groups = (self._next[labels] + position) % self.groups
        self._next += counts
        return groups


class Dealt:
    """Batches without the samples of one group; they can be iterated repeatedly.

    Args:
        batches: Features and labels of all samples.
        num_classes: Number of classes.
        group: Group to leave out.
        first: Group of the first sample of class 0.
    """

    def __init__(self, batches: Batches, num_classes: int, group: int, first: int = 0) -> None:
        self.batches, self.num_classes, self.group, self.first = batches, num_classes, group, first

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        deal = Dealer(self.num_classes, first=self.first)
        for features, labels in self.batches:
            kept = torch.nonzero(deal(labels) != self.group).squeeze(1)
            yield features[kept.to(features.device)], labels[kept.to(labels.device)]


def leave_one_out(
    parts: Sequence[ClassMoments], rest: ClassMoments | None = None
) -> Iterator[ClassMoments]:
    """Yield the moments without each part, in order.

    Halves are merged into what is left out of the other half, so that each part is merged
    log2(G) times and log2(G) sums are alive. To subtract a part from the total would cancel digits.

    Args:
        parts: Moments of the groups, under the empirical prior.
        rest: Moments that are in every result.
    """
    if len(parts) == 1:
        assert rest is not None
        yield rest
        return
    half = len(parts) // 2
    left, right = parts[:half], parts[half:]
    yield from leave_one_out(left, _merged(right, rest))
    yield from leave_one_out(right, _merged(left, rest))


def _merged(parts: Iterable[ClassMoments], rest: ClassMoments | None) -> ClassMoments:
    given = [*([] if rest is None else [rest]), *parts]
    total = given[0].like()
    for each in given:
        total.merge(each)
    return total
