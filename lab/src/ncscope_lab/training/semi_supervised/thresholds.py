"""Rules that decide which pseudo-labels to trust, or how much: thresholds and weights."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ncscope.losses.pseudo_labels import class_thresholds, mark_trusted
from ncscope.stats.processes import ALL


class PseudoLabels(NamedTuple):
    """Pseudo-labels of weak views.

    Attributes:
        labels: Most probable class of each view.
        trusted: Mask of the pseudo-labels to train on.
    """

    labels: Int[Tensor, " n"]
    trusted: Bool[Tensor, " n"]


class FixedThreshold(nn.Module):
    """FixMatch's rule: one constant confidence threshold for all classes, without state.

    Attributes:
        thresholds: Threshold of each class.

    Args:
        num_classes: Number of classes of the data.
        threshold: The least confidence that is trusted.

    Example:
        >>> FixedThreshold(2)(torch.tensor([[0.97, 0.03], [0.4, 0.6]])).trusted
        tensor([ True, False])
    """

    thresholds: Tensor

    def __init__(self, num_classes: int, threshold: float = 0.95) -> None:
        super().__init__()
        constant = torch.full((num_classes,), threshold)
        self.register_buffer("thresholds", constant, persistent=False)

    def forward(self, probabilities: Float[Tensor, "n k"]) -> PseudoLabels:
        """Return pseudo-labels from softmax outputs on weak views."""
        return PseudoLabels(
            probabilities.argmax(dim=1), mark_trusted(probabilities, self.thresholds)
        )


class AdaptiveThresholds(nn.Module):
    r"""FreeMatch's rule: class thresholds from moving averages of the network's outputs.

    All averages start at $1/C$. After each batch, with decay $m$:
    $\tau_t=m\tau_{t-1}+(1-m)\frac1n\sum_i\max_cq_{ic}$,
    $\tilde p_t=m\tilde p_{t-1}+(1-m)\frac1n\sum_iq_i$,
    $\tilde h_t=m\tilde h_{t-1}+(1-m)\operatorname{Hist}_n(\hat q)$.
    Source: FreeMatch (5), (6), (10); TorchSSL also starts at $1/C$. Batch means are taken over all
    processes; a batch without samples changes nothing. With ``limits``, $\tau_t$ is clipped after
    each update, as in USB: the next update starts from the clipped average.

    Attributes:
        confidence: $\tau$.
        probabilities: $\tilde p$.
        histogram: $\tilde h$.

    Args:
        num_classes: $C$.
        decay: $m$.
        limits: Least and largest $\tau$.
        mask_first: Apply the thresholds from before the batch's update if True.

    Example:
        >>> adaptive = AdaptiveThresholds(2, decay=0.5)
        >>> adaptive(torch.tensor([[0.9, 0.1], [0.6, 0.4]])).trusted
        tensor([ True, False])
        >>> adaptive.thresholds
        tensor([0.6250, 0.3750])
    """

    confidence: Tensor
    probabilities: Tensor
    histogram: Tensor

    def __init__(
        self,
        num_classes: int,
        decay: float = 0.999,
        limits: tuple[float, float] = (0.0, 1.0),
        mask_first: bool = False,
    ) -> None:
        super().__init__()
        self._decay, self._limits, self._mask_first = decay, limits, mask_first
        start = torch.full((num_classes,), 1 / num_classes)
        self.register_buffer("confidence", start[0].clone())
        self.register_buffer("probabilities", start.clone())
        self.register_buffer("histogram", start.clone())

    @property
    def thresholds(self) -> Float[Tensor, " k"]:
        """Return the threshold of each class."""
        # The confidence is also clipped here: before the first update it is 1/C, unclipped.
        return class_thresholds(self.confidence.clamp(*self._limits), self.probabilities)

    @torch.no_grad()
    def forward(self, probabilities: Float[Tensor, "n k"]) -> PseudoLabels:
        """Update the averages and return pseudo-labels from softmax outputs on weak views.

        Without ``mask_first`` the averages are updated before the thresholds are applied, as in
        the paper's algorithm and in public code.
        """
        before = self.thresholds
        self._update(probabilities)
        thresholds = before if self._mask_first else self.thresholds
        return PseudoLabels(probabilities.argmax(dim=1), mark_trusted(probabilities, thresholds))

    def _update(self, probabilities: Float[Tensor, "n k"]) -> None:
        confidence, labels = probabilities.max(dim=1)
        given = F.one_hot(labels, probabilities.shape[1]).to(probabilities)
        count = confidence.new_tensor([len(confidence)])
        sums = [confidence.sum()[None], probabilities.sum(dim=0), given.sum(dim=0), count]
        total = ALL.sum(torch.cat(sums), guarded=False)
        weight = (1 - self._decay) * (total[-1] > 0).to(total)
        means = (total[:-1] / total[-1].clamp(min=1)).split([1, *2 * [probabilities.shape[1]]])
        for average, mean in zip(self.buffers(), means, strict=True):
            average.lerp_(mean.reshape(average.shape), weight)
        self.confidence.clamp_(*self._limits)


class CurriculumThresholds(nn.Module):
    r"""FlexMatch's rule: class thresholds from the numbers of confident pseudo-labels so far.

    An image's label $\hat u_i$ is the class of its last prediction with confidence of at least
    $\tau$, or $-1$ before the first. Among the $N$ unlabelled images, $\sigma(c)$ have label $c$.
    With $\beta(c)=\sigma(c)/\max\{\max_j\sigma(j),N-\sum_j\sigma(j)\}$, the threshold of a class is
    $\tau\beta(c)/(2-\beta(c))$. A batch is selected by the thresholds from before it, and then its
    labels are stored. Source: FlexMatch (Zhang et al. 2021), sections 3.1 to 3.3 and algorithm 1.

    An image that occurs twice in a batch keeps one of its confident labels. With several processes
    all of them store the labels of the whole batch; TorchSSL's processes store their own shares.

    Attributes:
        labels: $\hat u$.

    Args:
        num_classes: Number of classes of the data.
        count: $N$.
        threshold: $\tau$.

    Example:
        >>> curriculum = CurriculumThresholds(num_classes=2, count=4, threshold=0.9)
        >>> sure = torch.tensor([[0.95, 0.05], [0.05, 0.95], [0.92, 0.08]])
        >>> curriculum(sure, torch.tensor([0, 1, 2])).trusted  # all thresholds are still 0
        tensor([True, True, True])
        >>> curriculum.thresholds  # of 2 and 1 images of 4: beta is 1 and 1/2
        tensor([0.9000, 0.3000])
    """

    labels: Tensor

    def __init__(self, num_classes: int, count: int, threshold: float = 0.95) -> None:
        super().__init__()
        self._num_classes, self._threshold = num_classes, threshold
        self.register_buffer("labels", torch.full((count,), -1))

    @property
    def counts(self) -> Int[Tensor, " k"]:
        r"""Return $\sigma$, the number of images with a confident label of each class."""
        return (self.labels + 1).bincount(minlength=self._num_classes + 1)[1:]

    @property
    def thresholds(self) -> Float[Tensor, " k"]:
        """Return the threshold of each class."""
        counts = self.counts
        most = torch.maximum(counts.max(), len(self.labels) - counts.sum())
        learnt = counts / most
        return self._threshold * learnt / (2 - learnt)

    @torch.no_grad()
    def forward(
        self, probabilities: Float[Tensor, "n k"], images: Int[Tensor, " n"]
    ) -> PseudoLabels:
        """Return pseudo-labels from softmax outputs on weak views, and store the confident ones.

        Args:
            probabilities: Softmax outputs on weak views.
            images: Index of each view's image among the unlabelled images.
        """
        confidence, labels = probabilities.max(dim=1)
        chosen = PseudoLabels(labels, mark_trusted(probabilities, self.thresholds))
        stored = labels.where(confidence >= self._threshold, -1)
        at, new = _of_all_processes(torch.stack([images, stored])).unbind()
        self.labels[at[new >= 0]] = new[new >= 0]
        return chosen


def _of_all_processes(columns: Int[Tensor, "2 n"]) -> Int[Tensor, "2 m"]:
    """Join the columns of all processes, which are equally many, in order of rank."""
    if not ALL.several:
        return columns
    shares = columns.new_zeros(ALL.count, *columns.shape)
    shares[ALL.index] = columns
    return torch.cat(list(ALL.sum(shares, guarded=False)), dim=1)


class GaussianWeights(nn.Module):
    r"""SoftMatch's rule: a weight that falls with the distance of the confidence below its mean.

    The aligned outputs are $a_i\propto q_i/\tilde p$, with sums 1, where $\tilde p$ is the moving
    average of the softmax outputs $q$. The confidences $\max_ca_{ic}$ have moving averages $\mu$ of
    their mean and $\sigma^2$ of their unbiased variance, all with decay $m$. The weight is
    $\exp\left(-\frac{\min(\max_ca_{ic}-\mu,0)^2}{2(\sigma/2)^2}\right)$. Initially $\tilde p$ and
    $\mu$ are $1/C$, and $\sigma^2$ is 1. Averages are updated before the weights are computed, over
    all processes. Source: SoftMatch (Chen et al. 2023), section 3; the 2 below $\sigma$ is USB's.

    Attributes:
        mean: $\mu$.
        variance: $\sigma^2$.
        probabilities: $\tilde p$.

    Args:
        num_classes: $C$.
        decay: $m$.

    Example:
        >>> soft = GaussianWeights(2, decay=0.5)
        >>> weights = soft(torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]]))
        >>> weights
        tensor([1.0000, 1.0000, 0.9347])
    """

    mean: Tensor
    variance: Tensor
    probabilities: Tensor

    def __init__(self, num_classes: int, decay: float = 0.999) -> None:
        super().__init__()
        self._decay = decay
        self.register_buffer("mean", torch.tensor(1 / num_classes))
        self.register_buffer("variance", torch.tensor(1.0))
        self.register_buffer("probabilities", torch.full((num_classes,), 1 / num_classes))

    @property
    def thresholds(self) -> Float[Tensor, " k"]:
        """Return the confidence from which on the weight is 1, for each class."""
        return self.mean.expand(len(self.probabilities))

    @torch.no_grad()
    def forward(self, probabilities: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        """Update the averages and return weights from softmax outputs on weak views."""
        count = probabilities.new_tensor([len(probabilities)])
        *sums, count = ALL.sum(torch.cat([probabilities.sum(dim=0), count]), guarded=False)
        self.probabilities.lerp_(torch.stack(sums) / count, 1 - self._decay)
        aligned = probabilities / self.probabilities
        confidence = (aligned / aligned.sum(dim=1, keepdim=True)).amax(dim=1)
        mean = ALL.sum(confidence.sum(), guarded=False) / count
        squares = ALL.sum((confidence - mean).square().sum(), guarded=False)
        self.mean.lerp_(mean, 1 - self._decay)
        self.variance.lerp_(squares / (count - 1).clamp(min=1), 1 - self._decay)
        below = (confidence - self.mean).clamp(max=0)
        return (-2 * below.square() / self.variance).exp()


Trust = FixedThreshold | AdaptiveThresholds | CurriculumThresholds | GaussianWeights
"""Rule that decides which pseudo-labels a method trusts."""
