"""MixUp and CutMix of whole batches, as in the training recipe of the vision transformers."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torchvision.transforms import v2

from ncscope.data.draws import seeded

_MIXUP_ALPHA, _CUTMIX_ALPHA = 0.8, 1.0


class Mixed(NamedTuple):
    """Mixed images, and the class shares of each image."""

    images: Float[Tensor, "b c h w"]
    shares: Float[Tensor, "b k"]


def mixed(
    images: Float[Tensor, "b c h w"],
    labels: Int[Tensor, " b"],
    num_classes: int,
    seed: int,
    step: int,
) -> Mixed:
    """Mix each image with its neighbour in the batch, by MixUp or CutMix with probability 1/2 each.

    Source: VCI 6.1, which refers to the recipe of DeiT; the parameters of the Beta distributions
    are 0.8 for MixUp and 1.0 for CutMix.

    Args:
        images: Batch of images, on any device.
        labels: Labels of the images.
        num_classes: $K$.
        seed: Seed of the run.
        step: Step of the run; seed and step determine the mixture.

    Example:
        >>> import torch
        >>> batch = torch.rand(4, 3, 8, 8)
        >>> mixed(batch, torch.arange(4), num_classes=4, seed=0, step=5).shares.sum(1)
        tensor([1., 1., 1., 1.])
    """
    either = v2.RandomChoice(
        [
            v2.MixUp(alpha=_MIXUP_ALPHA, num_classes=num_classes),
            v2.CutMix(alpha=_CUTMIX_ALPHA, num_classes=num_classes),
        ]
    )
    with seeded(seed, step):
        return Mixed(*either(images, labels))
