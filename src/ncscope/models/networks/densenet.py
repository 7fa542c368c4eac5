"""DenseNets of Huang et al.: with bottlenecks and compression (from torchvision), and plain."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchvision.models.densenet import DenseNet

from ncscope.models.networks.stems import is_small, stem_convolution


def densenet(
    num_classes: int,
    in_channels: int,
    image_size: int,
    *,
    growth: int,
    layers: tuple[int, ...],
    stem: int,
    saves_memory: bool = False,
) -> nn.Module:
    """Build a DenseNet-BC, with bottleneck layers and transitions that halve the channels.

    Source: Huang, Liu, van der Maaten, Weinberger 2017, table 1 and section 3, from torchvision.
    For small images the stem is that of their CIFAR networks: one 3 x 3 convolution, nothing else.
    There is no dropout (Papyan, Han and Donoho 2020). Convolutions are initialised from He's normal
    distribution over the fan in.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels.
        growth: Channels that each layer adds.
        layers: Number of layers of each dense block.
        stem: Channels after the first convolution.
        saves_memory: Compute concatenations again for the backward pass if True.

    Example:
        >>> net = densenet(10, 1, 8, growth=8, layers=(3, 3), stem=16)
        >>> net(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    model = DenseNet(growth, layers, stem, num_classes=num_classes, memory_efficient=saves_memory)
    model.features.conv0 = stem_convolution(in_channels, stem, image_size)
    nn.init.kaiming_normal_(model.features.conv0.weight)
    if is_small(image_size):
        for name in ("norm0", "relu0", "pool0"):
            delattr(model.features, name)
    return model


class PlainDenseLayer(nn.Module):
    """Layer that appends channels: batch norm, ReLU and one convolution of all channels before.

    Source: Huang et al. 2017, section 3.

    Args:
        in_channels: Channels of the input.
        growth: Channels to append.
    """

    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(in_channels),
            nn.ReLU(),
            nn.Conv2d(in_channels, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h w"]:
        """Append the new channels to the input."""
        return torch.cat([x, self.new(x)], dim=1)


class PlainDenseBlock(nn.ModuleDict):
    """Layers at one resolution, each of which reads the outputs of all layers before.

    Args:
        in_channels: Channels of the input.
        growth: Channels that each layer adds.
        layers: Number of layers.
    """

    def __init__(self, in_channels: int, growth: int, layers: int) -> None:
        chain = (PlainDenseLayer(in_channels + i * growth, growth) for i in range(layers))
        super().__init__({f"layer{i + 1}": layer for i, layer in enumerate(chain)})

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c2 h w"]:
        """Append the channels of every layer to the input."""
        for layer in self.values():
            x = layer(x)
        return x


class PlainDenseNet(nn.Module):
    """DenseNet without bottlenecks or compression, for small images.

    Source: Huang et al. 2017, table 2, first of the DenseNets: depth 40 and growth 12, "1.0M"
    parameters. Initialised as `densenet`.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        growth: Channels that each layer adds.
        layers: Layers of each of the three dense blocks.
    """

    def __init__(self, num_classes: int, in_channels: int, growth: int, layers: int) -> None:
        super().__init__()
        channels = 16
        self.stem = nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
        self.features = nn.Sequential()
        for block in range(3):
            if block:
                convolution = nn.Conv2d(channels, channels, 1, bias=False)
                transition = nn.BatchNorm2d(channels), nn.ReLU(), convolution, nn.AvgPool2d(2)
                self.features.append(nn.Sequential(*transition))
            self.features.append(PlainDenseBlock(channels, growth, layers))
            channels += layers * growth
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        self.apply(_initialise)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Compute the logits from the last map, normalised, rectified and averaged over space."""
        maps = torch.relu(self.norm(self.features(self.stem(x))))
        logits: Tensor = self.classifier(maps.mean(dim=(2, 3)))
        return logits


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight)
    elif isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def _densenet40(num_classes: int, in_channels: int, image_size: int) -> nn.Module:
    """Build a network of depth 40: stem, three blocks of 12, two transitions, classifier."""
    return PlainDenseNet(num_classes, in_channels, growth=12, layers=12)


BUILDERS = {
    "densenet40": _densenet40,
    "densenet100": partial(densenet, growth=12, layers=(16,) * 3, stem=24),
    "densenet201": partial(densenet, growth=32, layers=(6, 12, 48, 32), stem=64, saves_memory=True),
    "densenet250": partial(densenet, growth=24, layers=(41,) * 3, stem=48, saves_memory=True),
    "small-densenet": partial(densenet, growth=8, layers=(3, 3), stem=16),
}
"""Networks by name."""
