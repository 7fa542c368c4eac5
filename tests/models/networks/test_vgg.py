"""VGG: torchvision's convolutions, batch norm for dropout, poolings that fit."""

import pytest
import torch
import torchvision
from torch import nn

from ncscope.models.networks.vgg import SMALL_PLAN, vgg

PLAN = torchvision.models.vgg.cfgs["A"]


def test_large_images_get_torchvisions_network() -> None:
    """But for the norms in place of dropout: with those set to the identity it is the same."""
    with torch.device("meta"):
        ours = vgg(1000, 3, 224, plan=PLAN)
        theirs = torchvision.models.vgg11_bn(weights=None, init_weights=False)
    norms = 2 * 2 * 4096
    assert count(ours) == count(theirs) + norms == 132_868_840 + norms
    kinds = [type(layer) for layer in theirs.classifier]
    ours_kinds = [type(layer) for layer in ours.classifier]
    assert ours_kinds == [nn.BatchNorm1d if kind is nn.Dropout else kind for kind in kinds]
    assert [type(layer) for layer in ours.features] == [type(layer) for layer in theirs.features]


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("size", "poolings"), [(32, 5), (28, 4), (8, 3), (1, 0)])
def test_single_pixels_are_not_pooled(size: int, poolings: int) -> None:
    model = vgg(10, 1, size, plan=PLAN)
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in model.features) == poolings
    assert model(torch.zeros(2, 1, size, size)).shape == (2, 10)
    assert model.classifier[0].in_features == 512


def test_stl10_has_a_map_of_nine_pixels() -> None:
    with torch.device("meta"):
        model = vgg(10, 3, 96, plan=PLAN)
    assert model.classifier[0].in_features == 512 * 9
    assert model.classifier[-1].in_features == 4096


def test_initialisation() -> None:
    model = vgg(10, 1, 32, plan=SMALL_PLAN, hidden=300)
    convolution, linear = model.features[7], model.classifier[3]
    assert float(linear.weight.detach().std()) == pytest.approx(0.01, rel=0.05)
    assert float(convolution.weight.detach().std()) == pytest.approx((2 / 288) ** 0.5, rel=0.05)
    assert (linear.bias == 0).all()
    assert (convolution.bias == 0).all()
