"""Intervals of a probe's accuracy, and of the difference between the accuracies of two probes.

The intervals are over the held-out samples, with the probes as they were fitted.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ncscope.arguments import Count, Level, check_arguments
from ncscope.errors import InputError
from ncscope.transfer.probes.linear_probe import Measure


@check_arguments
class Answers(NamedTuple):
    """Held-out samples that a probe decided right: a byte for each.

    Attributes:
        correct: True where the prediction was right; the samples sorted by class, and as given
            within a class.
        counts: Number of held-out samples of each class that has any.
    """

    correct: Bool[Tensor, " n"]
    counts: Int[Tensor, " k"]


class Gap(NamedTuple):
    """Difference of two accuracies on the same samples, with its interval.

    Attributes:
        value: Accuracy of the first less that of the second.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float
    high: float

    @property
    def is_separable(self) -> bool:
        """True if the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


@check_arguments
def sort_answers(predictions: Int[Tensor, " n"], labels: Int[Tensor, " n"]) -> Answers:
    """Return which predictions are right, sorted by class.

    Args:
        predictions: Predicted label of each held-out sample.
        labels: Label of each held-out sample.
    """
    order = labels.argsort(stable=True)
    correct = (predictions == labels)[order]
    return Answers(correct.cpu(), labels.unique(return_counts=True)[1].cpu())


@check_arguments
def accuracy_interval(
    answers: Answers, measure: Measure, *, level: Level = 0.95
) -> tuple[float, float]:
    r"""Compute the interval of a probe's accuracy.

    For top-1 accuracy $\hat p$ on $n$ samples it is Wilson's interval (1927),
    $\frac n{n+z^2}\left(\hat p+\frac{z^2}{2n}
    \pm z\sqrt{\frac{\hat p(1-\hat p)}n+\frac{z^2}{4n^2}}\right)$. For the mean per class $n$ is
    the number of samples that gives one share of that value the variance of the mean, as for
    stratified surveys (Korn and
    Graubard 1998): $\hat p(1-\hat p)/v$ with $v=\frac1{K^2}\sum_c s_c^2/n_c$. The variance $s_c^2$
    of the answers of a class is that of the class with one more sample, which has the mean of all
    classes, divided by $1-n_c/(n_c+1)^2$: so no class of a few samples that are all right counts as
    certain, and $s_c^2$ is unbiased where the classes are alike.

    Args:
        answers: Answers of the probe.
        measure: Kind of accuracy.
        level: Share of the intervals that contain the accuracy on all samples that might be drawn.

    Example:
        >>> answers = sort_answers(torch.tensor([0] * 10), torch.tensor([0] * 8 + [1] * 2))
        >>> [round(end, 3) for end in accuracy_interval(answers, "top-1")]
        [0.49, 0.943]
    """
    z = _quantile(level, 1)
    share = _mean_shares(answers.correct.double(), answers.counts, measure)
    n = _effective_size(answers.correct.double(), answers.counts, measure)
    centre = share + z**2 / (2 * n)
    reach = z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    # With all answers alike rounding would leave the end beside 0 or 1.
    low = 0.0 if share == 0 else (centre - reach) / (1 + z**2 / n)
    high = 1.0 if share == 1 else (centre + reach) / (1 + z**2 / n)
    return low, high


@check_arguments
def accuracy_gap(first: Answers, second: Answers, measure: Measure, *, pairs: Count = 1) -> Gap:
    r"""Compute by how much the first probe's accuracy is above the second's, on the same samples.

    The comparison is sample by sample: only samples that one probe decides right and the other
    wrong count. With $b$ and $c$ the shares of samples that only the first and only the second
    decides right, the 95 % interval is that of Bonett and Price (2012):
    $\tilde b-\tilde c\pm z\sqrt{(\tilde b+\tilde c-(\tilde b-\tilde c)^2)/(n+2)}$ with
    $\tilde b=(nb+1)/(n+2)$, $\tilde c=(nc+1)/(n+2)$. For the mean per class $b$ and $c$ are means
    over the classes, and $n$ is as for `accuracy_interval`. With several pairs $z$ is that of a
    level of $1-0.05/\text{pairs}$ (Bonferroni).

    Args:
        first: Answers of one probe.
        second: Answers of the other.
        measure: Kind of accuracy.
        pairs: Number of pairs of which the intervals are to hold at once, in 95 % of all sets.

    Raises:
        InputError: If the two are not of the same held-out samples.

    Example:
        >>> labels = torch.arange(60) % 2
        >>> right, half = sort_answers(labels, labels), sort_answers(0 * labels, labels)
        >>> [round(each, 3) for each in accuracy_gap(right, half, "top-1")]
        [0.5, 0.352, 0.616]
    """
    if not torch.equal(first.counts, second.counts):
        sizes = [f"{len(each.correct)} in {len(each.counts)} classes" for each in (first, second)]
        raise InputError(
            expected="probes judged on the same held-out samples",
            found=" and ".join(sizes),
            fix="hold out the same samples of every checkpoint",
        )
    z = _quantile(0.95, pairs)
    difference = first.correct.double() - second.correct.double()
    value = _mean_shares(difference, first.counts, measure)
    n = _effective_size(difference, first.counts, measure)
    above, below = (
        (n * _mean_shares((difference == sign).double(), first.counts, measure) + 1) / (n + 2)
        for sign in (1, -1)
    )
    centre = above - below
    reach = z * math.sqrt((above + below - centre**2) / (n + 2))
    return Gap(value, centre - reach, centre + reach)


def _quantile(level: float, pairs: int) -> float:
    return NormalDist().inv_cdf(1 - (1 - level) / (2 * pairs))


def _class_means(values: Tensor, counts: Tensor) -> Tensor:
    return torch.segment_reduce(values, "mean", lengths=counts)


def _mean_shares(values: Tensor, counts: Tensor, measure: Measure) -> float:
    """Return the mean over samples, or over classes of the means within them."""
    return float((values if measure == "top-1" else _class_means(values, counts)).mean())


def _effective_size(values: Tensor, counts: Tensor, measure: Measure) -> float:
    """Return the number of samples whose plain mean would vary as the mean of the values does."""
    if measure == "top-1":
        return float(len(values))
    n = counts.double()
    means, squares = _class_means(values, counts), _class_means(values.square(), counts)
    pooled = float(squares.mean() - means.mean().square())
    if pooled <= 0:  # all alike: classes of equal variance
        return float(len(n) ** 2 / n.reciprocal().sum())
    larger_means = (n * means + means.mean()) / (n + 1)
    larger_squares = (n * squares + squares.mean()) / (n + 1)
    variances = (larger_squares - larger_means.square()) / (1 - n / (n + 1).square())
    return pooled / float((variances / n).sum() / len(n) ** 2)
