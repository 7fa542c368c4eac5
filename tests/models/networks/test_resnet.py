"""ResNets: torchvision's for large images, CIFAR's stem for small ones."""

import pytest
import torch
import torchvision
from torch import nn

from ncscope.models.networks.resnet import resnet


@pytest.mark.parametrize("depth", [18, pytest.param(50, marks=pytest.mark.slow)])
def test_large_images_get_torchvisions_network(depth: int) -> None:
    ours = resnet(7, 3, 224, depth=depth)
    theirs = getattr(torchvision.models, f"resnet{depth}")(weights=None, num_classes=7)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_small_images_keep_their_resolution_in_the_stem() -> None:
    model = resnet(10, 1, 28, depth=18)
    shapes = []
    model.layer1.register_forward_hook(lambda module, args, out: shapes.append(out.shape))
    model(torch.zeros(2, 1, 28, 28))
    assert shapes == [(2, 64, 28, 28)]
    deviation = float(model.conv1.weight.detach().std())
    assert deviation == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)
    assert isinstance(model.maxpool, nn.Identity)


def test_stl10_counts_as_large() -> None:
    assert resnet(10, 3, 96, depth=18).conv1.stride == (2, 2)
