"""Structure of a method for unlabelled images, and quantities that change over a run."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ncscope_lab.training.semi_supervised.settings import Annealing
from ncscope_lab.training.semi_supervised.thresholds import Trust
from ncscope_lab.training.semi_supervised.views import Strength


@dataclass(frozen=True)
class Outputs:
    """Logits of a step's views.

    Attributes:
        labelled: Logits on the labelled images.
        labels: Labels of the labelled images.
        target: Logits on the first view of each unlabelled image, without gradient.
        trained: Logits on the last view of each unlabelled image.
        images: Index of each unlabelled image in the set of unlabelled images.
    """

    labelled: Float[Tensor, "b k"]
    labels: Int[Tensor, " b"]
    target: Float[Tensor, "n k"]
    trained: Float[Tensor, "n k"]
    images: Int[Tensor, " n"]


class Step(NamedTuple):
    """Result of a method for one step.

    Attributes:
        loss: Loss of the method, without information terms.
        labels: Pseudo-label of each unlabelled image.
        trusted: Mask of the pseudo-labels that enter the information terms.
    """

    loss: Float[Tensor, ""]
    labels: Int[Tensor, " n"]
    trusted: Bool[Tensor, " n"]


class Method(nn.Module, ABC):
    """Method for unlabelled images. Its buffers are its whole state, which checkpoints save.

    Attributes:
        views: Strength of each view of an unlabelled image.
        averaged_teacher: True if targets come from the moving average of the network.
        trust: Rule that decides which pseudo-labels to trust.

    Args:
        trust: The rule.
        weight: Weight of the unlabelled loss.
    """

    views: ClassVar[tuple[Strength, ...]] = ("weak", "strong")
    averaged_teacher: ClassVar[bool] = False
    trust: Trust

    def __init__(self, trust: Trust, weight: float) -> None:
        super().__init__()
        self.trust, self._weight = trust, weight

    @property
    def thresholds(self) -> Float[Tensor, " k"]:
        """Return the confidence from which on a pseudo-label of each class is fully trusted."""
        return self.trust.thresholds

    @abstractmethod
    def forward(self, outputs: Outputs) -> Step:
        """Return the loss of a step, and update the state.

        Args:
            outputs: Logits of the step.
        """


class Progress(nn.Module):
    """Count of the batches that a run has seen.

    Attributes:
        seen: Number of batches so far.

    Args:
        total: Number of batches in the whole run.
    """

    seen: Tensor

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self.register_buffer("seen", torch.tensor(0))

    def forward(self) -> float:
        """Return the share of the run's batches before this one, and count this one."""
        share = int(self.seen) / self._total
        self.seen += 1
        return share


def ramp(progress: float, length: float) -> float:
    """Return a weight that rises linearly from 0 to 1 and then stays.

    Args:
        progress: Share of the run that has passed.
        length: Share of the run over which the weight rises.

    Example:
        >>> [ramp(progress, 0.4) for progress in (0.0, 0.1, 0.4, 0.9)]
        [0.0, 0.25, 1.0, 1.0]
    """
    return min(progress / length, 1.0)


_ANNEALINGS: Mapping[Annealing, Callable[[float], float]] = {
    "none": lambda progress: 1.0,
    "linear": lambda progress: progress,
    "log": lambda progress: 1 - math.exp(-5 * progress),
    "exp": lambda progress: math.exp(5 * (progress - 1)),
}


def anneal_threshold(annealing: Annealing, progress: float, num_classes: int) -> float:
    r"""Return $\eta=\alpha(1-\frac1C)+\frac1C$, UDA's limit on the confidence in labelled images.

    With $t$ the progress, $\alpha$ is 1, $t$, $1-e^{-5t}$ or $e^{5(t-1)}$. Source: training signal
    annealing of UDA (Xie et al. 2020).

    Args:
        annealing: Schedule of $\alpha$.
        progress: $t$, share of the run that has passed.
        num_classes: $C$.

    Example:
        >>> anneal_threshold("linear", 0.5, num_classes=4)
        0.625
    """
    least = 1 / num_classes
    return _ANNEALINGS[annealing](progress) * (1 - least) + least
