r"""Group jackknife with class sizes held: replicates of a sample, and what they estimate.

A replicate leaves out one of G groups of the samples and counts as many others of the same classes
twice, so every replicate has the class sizes of the sample. To leave a group out alone, as Shao and
Tu (The Jackknife and Bootstrap, 1995, section 2.3) do, changes the shares of the classes wherever a
class size is no multiple of G: a metric that depends on the shares then varies for that reason, and
its error comes out up to several times too large.

With weights 0, 1 and 2 of the samples in replicate g, $\delta_{gi}=(w_{gi}-1)/n_c$ sums to zero
over the samples of each class and over the replicates, and $\sum_g\delta_{gi}^2=2/n_c^2$. To first
order $\theta_g-\theta=\sum_i\delta_{gi}\psi_i$ with the influence $\psi_i$ of sample i, whose
variance is twice that of $\theta$; to second order the mean of $\theta_g-\theta$ is $2/G$ times
the bias of $\theta$ (Efron and Stein, Annals of Statistics 1981).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.stats.directions import Batches
from ncscope.stats.moments import ClassMoments

GROUPS = 20
"""Number of groups G."""

T_QUANTILE = 2.160369
"""0.975 quantile of Student's t with 13 degrees of freedom.

The errors have between 2G/3, where one block of samples decides, and G - 1.
"""


class Estimate(NamedTuple):
    """Standard error of a value, and the value with its estimate of bias removed."""

    standard_error: float
    bias_corrected: float


def jackknife(value: float, replicates: Sequence[float]) -> Estimate:
    r"""Estimate standard error and bias of a value from the values of G replicates.

    $\widehat{se}^2=\frac12\sum_g(\theta_g-\bar\theta)^2$, and corrected value
    $\theta-\frac G2(\bar\theta-\theta)$.

    Args:
        value: $\theta$, the value of all samples.
        replicates: $\theta_g$, the value of each replicate.

    Example:
        >>> estimate = jackknife(2.0, [1.0, 2.0, 3.0])
        >>> round(estimate.standard_error, 6), estimate.bias_corrected
        (1.0, 2.0)
    """
    count = len(replicates)
    mean = sum(each / count for each in replicates)
    # hypot, and not a sum of squares: a value near the largest number would overflow. The mean is
    # made of quotients for the same reason.
    spread = math.hypot(*(each - mean for each in replicates))
    return Estimate(math.sqrt(0.5) * spread, value + count / 2 * (value - mean))


class Dealer:
    r"""Assignment of each sample of a stream to two replicates: one without it, one with it twice.

    The samples of a class are dealt in blocks of G, one sample to each group. Within block b of
    class c, the replicate that leaves out position a counts position $a+1+b+c$ twice, with both
    counted round the block and never equal. One replicate leaves a sample out and one counts it
    twice; a sample that is alone in its block is in every replicate, once.

    Args:
        counts: Number of samples of each class, in all processes.
        before: Number of samples of each class in the processes whose samples come before.
        groups: Number of groups G.
        random_sizes: True to deal all samples in random order, as if they were of one class: the
            class sizes of the replicates then vary as if samples were drawn with their classes.

    Example:
        >>> deal = Dealer(torch.tensor([3, 2]), groups=3)
        >>> left_out, twice = deal(torch.tensor([0, 0, 1, 0, 1]))
        >>> left_out.tolist(), twice.tolist()
        ([0, 1, 1, 2, 2], [2, 0, 2, 1, 1])
    """

    def __init__(
        self,
        counts: Int[Tensor, " k"],
        before: Int[Tensor, " k"] | None = None,
        groups: int = GROUPS,
        *,
        random_sizes: bool = False,
    ) -> None:
        counts = counts.cpu()
        start = torch.zeros_like(counts) if before is None else before.cpu()
        self.groups, self._order = groups, None
        if random_sizes:
            counts, start = counts.sum(0, keepdim=True), start.sum(0, keepdim=True)
            # The samples may be sorted by class, and dealing in turn would then hold the sizes.
            self._order = torch.randperm(
                int(counts), generator=torch.Generator().manual_seed(0), device="cpu"
            )
        self._counts, self._next = counts, start.clone()

    def __call__(self, labels: Int[Tensor, " n"]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """Return the replicate that leaves out each sample, and the one that counts it twice."""
        labels = labels.cpu() if self._order is None else torch.zeros_like(labels, device="cpu")
        order = torch.argsort(labels, stable=True)
        counts = torch.bincount(labels, minlength=len(self._next))
        starts = counts.cumsum(0) - counts
        # Position of each sample among those of its class, counted from the first of all processes.
        position = torch.empty_like(labels)
        position[order] = torch.arange(len(labels), device="cpu") - starts[labels[order]]
        position += self._next[labels]
        self._next += counts
        if self._order is not None:
            position = self._order[position]
        block, place = position // self.groups, position % self.groups
        # The last block of a class may have fewer samples than groups: a smaller circle.
        size = (self._counts[labels] - block * self.groups).clamp(max=self.groups)
        # Another shift for each block and class: if each replicate counted its neighbour's group
        # twice, the errors would have the spread of 13 degrees of freedom, and not of 19.
        shift = 1 + (block + labels) % (size - 1).clamp(min=1)
        # Class c begins with group c, so that the last blocks of all classes don't meet in group 0.
        return (labels + place) % self.groups, (labels + (place - shift) % size) % self.groups


class Replicate:
    """Batches of one replicate; they can be iterated repeatedly.

    Args:
        batches: Features and labels of all samples of this process.
        deal: Function that returns a dealer for the first of these samples.
        group: Number of the replicate.
    """

    def __init__(self, batches: Batches, deal: Callable[[], Dealer], group: int) -> None:
        self.batches, self.deal, self.group = batches, deal, group

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        deal = self.deal()
        for features, labels in self.batches:
            left_out, twice = deal(labels)
            rows = [torch.nonzero(left_out != self.group), torch.nonzero(twice == self.group)]
            yield take_rows(features, labels, torch.cat(rows).squeeze(1))

    def doubles(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the samples that the replicate counts twice, once."""
        deal = self.deal()
        for features, labels in self.batches:
            _, twice = deal(labels)
            yield take_rows(features, labels, torch.nonzero(twice == self.group).squeeze(1))


def take_rows(
    features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"], rows: Int[Tensor, " m"]
) -> tuple[Shaped[Tensor, "m d"], Int[Tensor, " m"]]:
    """Select samples by their indices, which are on the CPU."""
    return features[rows.to(features.device)], labels[rows.to(labels.device)]


def leave_one_out(
    parts: Sequence[ClassMoments], rest: ClassMoments | None = None
) -> Iterator[ClassMoments]:
    """Yield the moments without each part, in order.

    All results of one half share the sum of the other half, and so on within each half: each part
    is merged log2(G) times, and log2(G) sums are alive. To subtract a part from the total would
    cancel digits.

    Args:
        parts: Moments of the groups, under the empirical prior.
        rest: Moments that are in every result.
    """
    if len(parts) == 1:
        assert rest is not None
        yield rest
        return
    half = len(parts) // 2
    for inside, outside in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
        others = [*([] if rest is None else [rest]), *outside]
        total = others[0].like()
        for each in others:
            total.merge(each)
        yield from leave_one_out(inside, total)
        del total  # before the other half allocates its own
