"""Wide residual networks: the original, and the variant of public semi-supervised code."""

from dataclasses import dataclass
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError


@dataclass(frozen=True)
class WideStyle:
    """Differences between the two variants of wide residual networks.

    Attributes:
        slope: Slope of the leaky ReLU below zero; 0 for a ReLU.
        momentum: Share of the new batch in the batch norms' running statistics.
        eps: Number added to the batch norms' variance.
        conv_bias: Give convolutions a bias if True.
        bare_changes: If True, blocks that change the width read their input without batch norm and
            ReLU, except in the first stage.
        xavier_head: Initialise the classifier from Glorot's normal distribution if True.
    """

    slope: float
    momentum: float
    eps: float
    conv_bias: bool
    bare_changes: bool
    xavier_head: bool


ORIGINAL = WideStyle(0.0, 0.1, 1e-5, conv_bias=False, bare_changes=False, xavier_head=False)
"""Zagoruyko and Komodakis 2016 and their code."""

SEMI_SUPERVISED = WideStyle(0.1, 0.001, 1e-3, conv_bias=True, bare_changes=True, xavier_head=True)
"""TorchSSL (Zhang et al. 2021), ``models/nets/wrn.py`` and ``wrn_var.py``: FreeMatch and INFO.
The slow running statistics of the batch norms are meant for a million steps of training."""


class WideBlock(nn.Module):
    r"""Pre-activation block: $x+F(a(x))$, or $S(a(x))+F(a(x))$ if the width changes.

    $a$ is batch norm and ReLU, $F$ two 3 x 3 convolutions with batch norm and ReLU between them,
    $S$ a 1 x 1 convolution.

    Source: Zagoruyko and Komodakis 2016, figure 1(c), section 2.

    Args:
        in_channels: Channels of the input.
        channels: Channels of the output.
        stride: Stride of the first convolution and of $S$.
        style: Variant of the network.
        bare: Leave $a$ out if True.
    """

    def __init__(
        self, in_channels: int, channels: int, stride: int, style: WideStyle, bare: bool
    ) -> None:
        super().__init__()
        changes = stride > 1 or in_channels != channels
        convolution = partial(nn.Conv2d, bias=style.conv_bias)
        self.activation = nn.Identity() if bare else _norm_relu(in_channels, style)
        self.branch = nn.Sequential(
            convolution(in_channels, channels, 3, stride, 1),
            _norm_relu(channels, style),
            convolution(channels, channels, 3, 1, 1),
        )
        self.shortcut = convolution(in_channels, channels, 1, stride) if changes else None

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h2 w2"]:
        """Return the block's output."""
        active = self.activation(x)
        stream = x if self.shortcut is None else self.shortcut(active)
        return stream + self.branch(active)


class WideResNet(nn.Module):
    """WRN-depth-width: a stem of 16 channels, stages of wide blocks, norm, pooling, classifier.

    Source: Zagoruyko and Komodakis 2016, table 1. Stages have (depth - 4) / 6 blocks. The first
    stage has 16 x width channels, each later stage twice as many at half the resolution.
    Convolutions are initialised from He's normal distribution over the fan out, the classifier's
    bias with zero.

    Args:
        depth: Number of layers with three stages: a multiple of 6, plus 4.
        width: Factor on the channels.
        num_classes: Number of classes.
        in_channels: Channels of the images.
        stages: Number of stages, three in the paper.
        first_stride: Stride of the first stage.
        style: Variant of the network.

    Raises:
        InputError: If the depth is not a multiple of 6, plus 4, of at least 10.

    Example:
        >>> import torch
        >>> WideResNet(10, 1, num_classes=5)(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        depth: int,
        width: int,
        num_classes: int,
        in_channels: int = 3,
        stages: int = 3,
        first_stride: int = 1,
        style: WideStyle = ORIGINAL,
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise InputError(
                expected="a depth of 10, 16, 22, 28, ...", found=str(depth), fix="pass another one"
            )
        self.stem = nn.Conv2d(in_channels, 16, 3, padding=1, bias=style.conv_bias)
        self.stages = nn.Sequential()
        before = 16
        for stage in range(stages):
            channels = 16 * width * 2**stage
            stride = 2 if stage else first_stride
            bare = style.bare_changes and stage > 0
            self.stages.append(_stage((depth - 4) // 6, before, channels, stride, style, bare))
            before = channels
        self.norm_relu = _norm_relu(before, style)
        self.fc = nn.Linear(before, num_classes)
        _initialise(self, style)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Compute the logits from the last map, averaged over space."""
        maps = self.norm_relu(self.stages(self.stem(x)))
        logits: Tensor = self.fc(maps.mean(dim=(2, 3)))
        return logits


def _norm_relu(channels: int, style: WideStyle) -> nn.Sequential:
    norm = nn.BatchNorm2d(channels, eps=style.eps, momentum=style.momentum)
    return nn.Sequential(norm, nn.LeakyReLU(style.slope) if style.slope else nn.ReLU())


def _stage(
    blocks: int, before: int, channels: int, stride: int, style: WideStyle, bare: bool
) -> nn.Sequential:
    first = WideBlock(before, channels, stride, style, bare)
    rest = (WideBlock(channels, channels, 1, style, bare=False) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)


def _initialise(model: WideResNet, style: WideStyle) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(model.fc.bias)
    if style.xavier_head:
        nn.init.xavier_normal_(model.fc.weight)


def _original(
    num_classes: int, in_channels: int, image_size: int, *, depth: int, width: int, stride: int = 1
) -> nn.Module:
    """Build an original network; it does not depend on the image size."""
    return WideResNet(depth, width, num_classes, in_channels, first_stride=stride)


def _semi_supervised(
    num_classes: int, in_channels: int, image_size: int, *, width: int, stages: int, stride: int
) -> nn.Module:
    return WideResNet(28, width, num_classes, in_channels, stages, stride, SEMI_SUPERVISED)


BUILDERS = {
    "wrn-28-2": partial(_original, depth=28, width=2),
    "wrn-28-8": partial(_original, depth=28, width=8),
    "wrn-28-2-ssl": partial(_semi_supervised, width=2, stages=3, stride=1),
    "wrn-28-8-ssl": partial(_semi_supervised, width=8, stages=3, stride=1),
    "wrn-37-2": partial(_semi_supervised, width=2, stages=4, stride=2),
    "small-wrn": partial(_original, depth=10, width=1),
    "small-wrn-256": partial(_original, depth=10, width=4, stride=2),
}
"""Networks by name."""
