"""VGG networks with batch normalisation, from torchvision's layers."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import nn
from torchvision.models.vgg import cfgs, make_layers

from ncscope.models.networks.stems import is_small

POOLED_SIDE = 7  # largest side of the map that the fully connected layers read
SMALL_PLAN = (16, "M", 32, 32, "M")

Plan = Sequence[int | str]


def vgg(
    num_classes: int, in_channels: int, image_size: int, *, plan: Plan, hidden: int | None = None
) -> nn.Module:
    """Build a VGG: convolutions and pooling, two hidden fully connected layers, the classifier.

    Source: Simonyan and Zisserman 2015, table 1, with batch normalisation after every convolution
    and in place of the dropout layers. Papyan, Han and Donoho 2020 made this replacement, and MSE
    A.2 follows them. Small images have maps of one pixel at the end: a pooling layer whose input
    has one pixel is left out, and the hidden layers have 512 units instead of 4096. Convolutions
    are initialised from He's normal distribution over the fan out, linear layers from a normal
    distribution of standard deviation 0.01, as in torchvision.

    Args:
        num_classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels.
        plan: Channels of the convolutions in order, "M" for a pooling layer.
        hidden: Units of each hidden layer; None for 512 or 4096, by the image size.

    Example:
        >>> import torch
        >>> vgg(10, 1, 8, plan=SMALL_PLAN, hidden=64)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    steps: list[int | str] = []  # the plan without pooling of single pixels
    side = image_size
    for step in plan:
        if step != "M" or side > 1:
            steps.append(step)
            side = side // 2 if step == "M" else side
    side = min(side, POOLED_SIDE)
    hidden = hidden or (512 if is_small(image_size) else 4096)
    channels = [step for step in steps if isinstance(step, int)]
    features = make_layers(steps, batch_norm=True)
    features[0] = nn.Conv2d(in_channels, channels[0], 3, padding=1)
    classifier: list[nn.Module] = []
    for width in (channels[-1] * side**2, hidden):
        classifier += [nn.Linear(width, hidden), nn.ReLU(), nn.BatchNorm1d(hidden)]
    layers = OrderedDict[str, nn.Module](
        features=features,
        pool=nn.AdaptiveAvgPool2d(side),
        flatten=nn.Flatten(),
        classifier=nn.Sequential(*classifier, nn.Linear(hidden, num_classes)),
    )
    model = nn.Sequential(layers)
    model.apply(_initialise)
    return model


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


BUILDERS = {
    "vgg11": partial(vgg, plan=cfgs["A"]),
    "vgg13": partial(vgg, plan=cfgs["B"]),
    "small-vgg": partial(vgg, plan=SMALL_PLAN, hidden=64),
}
"""Networks by name."""
