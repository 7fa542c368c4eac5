"""Networks of the experiments by name. The library of a network is imported when it is built."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Literal, get_args

import torch
from torch import nn

from ncscope.errors import InputError
from ncscope.models.layers import find_repeated_blocks
from ncscope.models.networks.simplex_head import SimplexHead

Builder = Callable[[int, int, int], nn.Module]
HeadKind = Literal["linear", "simplex"]

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "resnet": ("resnet18", "resnet34", "resnet50"),
    "vgg": ("vgg11", "vgg13", "small-vgg"),
    "densenet": ("densenet40", "densenet100", "densenet201", "densenet250", "small-densenet"),
    "wide_resnet": (
        "wrn-28-2",
        "wrn-28-8",
        "wrn-28-2-ssl",
        "wrn-28-8-ssl",
        "wrn-37-2",
        "small-wrn",
        "small-wrn-256",
    ),
    "vision_transformer": ("deit-tiny", "deit-small", "small-vit"),
    "residual_conv": (
        "pfc-mnist",
        "pfc-fashion-mnist",
        "pfc-cifar10",
        "pfc-stl10",
        "pfc-cifar100",
        "small-residual",
        "small-conv",
        "small-resnet",
        "small-resnet-long",
        "small-resnet-no-norm",
        "small-resnet-384",
        "small-resnet-32",
    ),
}
"""Names of networks by the module of ``ncscope.models.networks`` that has their ``BUILDERS``."""

NAMES: Mapping[str, str] = {name: family for family, names in FAMILIES.items() for name in names}
"""Module of each name."""


def build(
    name: str,
    num_classes: int,
    *,
    in_channels: int = 3,
    image_size: int = 32,
    head: HeadKind = "linear",
    bias: bool = True,
) -> nn.Module:
    """Build a network of the papers, or a small network of the same kind, with initial weights.

    The weights are drawn from torch's global generator.

    Args:
        name: One of `NAMES`.
        num_classes: Number of classes.
        in_channels: Channels of the images.
        image_size: Height and width of the images in pixels. ResNets, VGGs and DenseNets for images
            below 64 pixels have the stem, and VGGs the classifier, of networks for CIFAR.
        head: ``"linear"``, or ``"simplex"`` for `SimplexHead`, a classifier that is not
            trained.
        bias: Give a linear head a bias if True; a fixed head never has one.

    Returns:
        A network that returns logits; see `layers_to_tap` for its layers to measure.

    Raises:
        InputError: If the name or the head is unknown, a size is below 1, the images do not divide
            into a transformer's patches, or the features are too few for a simplex.

    Example:
        >>> net = build("small-resnet", 10, in_channels=1, image_size=8, bias=False)
        >>> net(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    _check(name, head, num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    builders: Mapping[str, Builder] = import_module(
        f"ncscope.models.networks.{NAMES[name]}"
    ).BUILDERS
    model = builders[name](num_classes, in_channels, image_size)
    # Every network here registers its classifier as its last linear layer.
    linear = [(name, module) for name, module in model.named_modules() if type(module) is nn.Linear]
    path, classifier = linear[-1]
    if head == "simplex":
        # torch's global generator, as for all other weights
        sizes = classifier.in_features, classifier.out_features
        parent, _, child = path.rpartition(".")
        simplex = SimplexHead(*sizes, torch.default_generator)
        setattr(model.get_submodule(parent), child, simplex)
    elif not bias:
        classifier.register_parameter("bias", None)
    return model


def layers_to_tap(model: nn.Module) -> list[str]:
    """Return the layers to measure besides the head's input: the blocks or the pooling layers.

    Returns:
        Names that `find_repeated_blocks` returns, in forward order; for a network without blocks,
        such as VGG, the names of its max-pooling layers, each of which ends a group of
        convolutions.

    Example:
        >>> layers_to_tap(build("small-vgg", 10, image_size=8))
        ['features.3', 'features.10']
    """
    blocks = find_repeated_blocks(model)
    pooling = (name for name, module in model.named_modules() if isinstance(module, nn.MaxPool2d))
    return blocks or list(pooling)


def _check(name: str, head: str, **sizes: int) -> None:
    for kind, value, known in (("network", name, list(NAMES)), ("head", head, get_args(HeadKind))):
        if value not in known:
            (nearest,) = get_close_matches(value.lower(), known, n=1, cutoff=0.0)
            expected = f"a {kind} of {', '.join(known)}"
            raise InputError(expected=expected, found=repr(value), fix=f"the nearest is {nearest}")
    for what, size in sizes.items():
        if size < 1:
            raise InputError(
                expected=f"{what} of at least 1", found=str(size), fix=f"pass a positive {what}"
            )
