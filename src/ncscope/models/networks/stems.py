"""First convolution of a network, by the size of its images."""

from torch import nn

# ImageNet's stems divide the side of an image by four, and three more halvings follow. CIFAR's 32
# pixels would shrink to 8 in the stem; STL-10's 96 pixels shrink to 24, which is enough.
SMALL_IMAGE = 64


def is_small(image_size: int) -> bool:
    """Return whether images of this height and width get CIFAR's stem instead of ImageNet's."""
    return image_size < SMALL_IMAGE


def stem_convolution(in_channels: int, channels: int, image_size: int) -> nn.Conv2d:
    """Build the stem: 3 x 3 at stride 1 for small images, else 7 x 7 at stride 2.

    Source: He et al. 2016, section 4.2, for small images.

    Args:
        in_channels: Channels of the images.
        channels: Channels of the output.
        image_size: Height and width of the images in pixels.

    Example:
        >>> stem_convolution(3, 64, image_size=32)
        Conv2d(3, 64, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)
    """
    if is_small(image_size):
        return nn.Conv2d(in_channels, channels, 3, padding=1, bias=False)
    return nn.Conv2d(in_channels, channels, 7, stride=2, padding=3, bias=False)
