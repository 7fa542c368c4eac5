"""The first convolution of a network, by the size of the images it is for."""

from torch import nn

# ImageNet's stems shrink the image by four, to 8 pixels a side of CIFAR's 32, which are then
# halved three times, but to 24 of STL-10's 96.
SMALL_IMAGE = 64


def is_small(image_size: int) -> bool:
    """Return whether images of that many pixels a side get CIFAR's stem rather than ImageNet's."""
    return image_size < SMALL_IMAGE


def stem_convolution(in_channels: int, channels: int, image_size: int) -> nn.Conv2d:
    """3 x 3 at stride 1 for small images (He et al. 2016, section 4.2), else 7 x 7 at stride 2.

    Args:
        in_channels: Channels of the images.
        channels: Channels of the output.
        image_size: Pixels a side.

    Example:
        >>> stem_convolution(3, 64, image_size=32)
        Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)
    """
    if is_small(image_size):
        return nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
    return nn.Conv2d(in_channels, channels, 7, stride=2, padding=3, bias=False)
