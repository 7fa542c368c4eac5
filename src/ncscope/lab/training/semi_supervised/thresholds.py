"""Rules that decide which pseudo-labels to trust: FixMatch's and FreeMatch's thresholds."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ncscope.lab.training.semi_supervised.settings import FewLabels
from ncscope.losses.pseudo_labels import class_thresholds, trusted
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
        return PseudoLabels(probabilities.argmax(dim=1), trusted(probabilities, self.thresholds))


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
        return PseudoLabels(probabilities.argmax(dim=1), trusted(probabilities, thresholds))

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


Trust = FixedThreshold | AdaptiveThresholds


def trust(settings: FewLabels, num_classes: int) -> Trust:
    """Return the rule that the settings select, in its initial state.

    Args:
        settings: Settings of the run.
        num_classes: Number of classes of the data.
    """
    if settings.method == "fixmatch":
        return FixedThreshold(num_classes, settings.threshold)
    limits = settings.least_threshold, settings.most_threshold
    return AdaptiveThresholds(num_classes, settings.memory, limits, settings.mask_first)
