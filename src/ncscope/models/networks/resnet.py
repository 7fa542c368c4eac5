"""ResNets of He et al. from torchvision, with a stem for small images."""

from functools import partial

from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

from ncscope.models.networks.stems import is_small, stem_convolution

BLOCKS = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}


def resnet(num_classes: int, in_channels: int, image_size: int, *, depth: int) -> nn.Module:
    """Build a ResNet-18, -34 or -50.

    Source: He, Zhang, Ren, Sun 2016, table 1, in torchvision's form: the stride of a bottleneck is
    in its 3 x 3 convolution ("v1.5"), as VCI 6.1 says. For small images the stem is that of their
    CIFAR networks: 3 x 3 at stride 1, no pooling. Convolutions are initialised from He's normal
    distribution over the fan out, batch norms with the identity.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels.
        depth: 18, 34 or 50.

    Example:
        >>> import torch
        >>> resnet(10, 1, 28, depth=18)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    block, layers = BLOCKS[depth]
    model = ResNet(block, list(layers), num_classes=num_classes)
    model.conv1 = stem_convolution(in_channels, model.conv1.out_channels, image_size)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    if is_small(image_size):
        model.maxpool = nn.Identity()
    return model


BUILDERS = {f"resnet{depth}": partial(resnet, depth=depth) for depth in BLOCKS}
"""Networks by name."""
