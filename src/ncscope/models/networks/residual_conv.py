"""Convolutional residual networks of PFC's table I, and small networks of this kind."""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock

from ncscope.models.networks.residual import ResidualNet

Stages = Sequence[tuple[int, int]]

SMALL_STAGES = ((8, 2), (16, 2), (32, 2))
FLARED_STAGES = ((8, 1), (32, 1))


class Stage(nn.Module):
    """Entry layer that sets channels and resolution, then residual blocks that keep both.

    The outputs of ``entry`` and of the blocks therefore have one dimension, and PFC's path length
    and geodesic are defined on them.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the output.
        blocks: Number of residual blocks.
        stride: Stride of the entry.
        norm: Use batch normalisation if True; otherwise the entry has a bias.
    """

    def __init__(
        self, in_channels: int, channels: int, blocks: int, stride: int, norm: bool
    ) -> None:
        super().__init__()
        layer = nn.BatchNorm2d if norm else nn.Identity
        self.entry = nn.Sequential(
            nn.Conv2d(in_channels, channels, 3, stride, 1, bias=not norm),
            layer(channels),
            nn.ReLU(),
        )
        chain = (BasicBlock(channels, channels, norm_layer=layer) for _ in range(blocks))
        self.blocks = nn.Sequential(*chain)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        """Return the last block's output."""
        maps: Tensor = self.blocks(self.entry(x))
        return maps


class ConvResidualNet(nn.Module):
    """Stages of residual blocks at one resolution each, average pooling, linear classifier.

    Source: PFC table I, which gives the dimensions and the number of blocks of each stage, and
    IV-A: the inputs of all blocks of the last stage have one dimension, so a separate layer changes
    the dimension. The table does not specify the rest. Here the blocks are He et al.'s basic
    blocks, the layers between stages are a convolution with batch norm and ReLU, the classifier
    reads the last map averaged over space, and convolutions are initialised from He's normal
    distribution over the fan out. PFC's $H^0$ is ``stages[-1].entry``, $H^l$ its block $l$.

    Without batch normalisation the last convolution of each block is initialised to zero, so that
    the block starts as the identity on its rectified input (as in Zhang, Dauphin, Ma 2019).
    Otherwise the variance would double at every block.

    Args:
        stages: Channels and number of blocks of each stage. The number may be 0; every stage but
            the first halves the resolution.
        num_classes: Number of classes.
        in_channels: Channels of the images.
        first_stride: Stride of the first stage's entry.
        norm: Use batch normalisation if True.

    Example:
        >>> net = ConvResidualNet([(8, 2), (16, 4)], num_classes=10, in_channels=1)
        >>> net(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        stages: Stages,
        num_classes: int,
        in_channels: int = 3,
        first_stride: int = 1,
        norm: bool = True,
    ) -> None:
        super().__init__()
        self.stages = nn.Sequential()
        before, stride = in_channels, first_stride
        for channels, blocks in stages:
            self.stages.append(Stage(before, channels, blocks, stride, norm))
            before, stride = channels, 2
        self.classifier = nn.Linear(before, num_classes)
        _initialise(self, norm)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Compute the logits from the last map, averaged over space."""
        logits: Tensor = self.classifier(self.stages(x).mean(dim=(2, 3)))
        return logits


def _initialise(model: nn.Module, norm: bool) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    if not norm:
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, BasicBlock):
                    module.conv2.weight.zero_()


def _conv(
    num_classes: int,
    in_channels: int,
    image_size: int,
    *,
    stages: Stages,
    stride: int = 1,
    norm: bool = True,
) -> nn.Module:
    """Build a convolutional network; it does not depend on the image size."""
    return ConvResidualNet(stages, num_classes, in_channels, stride, norm)


def _fully_connected(
    num_classes: int, in_channels: int, image_size: int, *, width: int, depth: int
) -> nn.Module:
    return ResidualNet(in_channels * image_size**2, width, depth, num_classes)


BUILDERS = {
    "pfc-mnist": partial(_fully_connected, width=1000, depth=10),
    "pfc-fashion-mnist": partial(_conv, stages=((32, 5), (64, 4)), stride=2),
    "pfc-cifar10": partial(_conv, stages=((64, 2), (128, 3), (256, 4)), stride=2),
    "pfc-stl10": partial(_conv, stages=((64, 5), (128, 5), (256, 5), (512, 5)), stride=2),
    "pfc-cifar100": partial(_conv, stages=((64, 3), (128, 3), (256, 4), (512, 4))),
    "small-residual": partial(_fully_connected, width=128, depth=8),
    "small-conv": partial(_conv, stages=((8, 0), (16, 0), (32, 0))),
    "small-resnet": partial(_conv, stages=SMALL_STAGES),
    "small-resnet-long": partial(_conv, stages=((8, 0), (8, 0), (10, 7))),
    "small-resnet-no-norm": partial(_conv, stages=SMALL_STAGES, norm=False),
    "small-resnet-384": partial(_conv, stages=(*FLARED_STAGES, (384, 0)), stride=2),
    "small-resnet-32": partial(_conv, stages=(*FLARED_STAGES, (32, 0)), stride=2),
}
"""Networks by name."""
