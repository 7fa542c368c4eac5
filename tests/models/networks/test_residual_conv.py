"""The convolutional networks of PFC's table I have its dimensions."""

import pytest
import torch
from torch import nn

from ncscope.models.networks.catalogue import build
from ncscope.models.networks.residual_conv import ConvResidualNet
from ncscope.models.taps import Taps
from tests.pace import others_slow

# Data's channels and side; channels, side and blocks of each stage.
TABLE_ONE = {
    "pfc-fashion-mnist": (1, 28, [(32, 14, 5), (64, 7, 4)]),
    "pfc-cifar10": (3, 32, [(64, 16, 2), (128, 8, 3), (256, 4, 4)]),
    "pfc-stl10": (3, 96, [(64, 48, 5), (128, 24, 5), (256, 12, 5), (512, 6, 5)]),
    "pfc-cifar100": (3, 32, [(64, 32, 3), (128, 16, 3), (256, 8, 4), (512, 4, 4)]),
}


@pytest.mark.parametrize("name", others_slow(TABLE_ONE, "pfc-fashion-mnist", "pfc-cifar10"))
def test_dimensions_are_those_of_table_one(name: str) -> None:
    channels, side, stages = TABLE_ONE[name]
    model = build(name, 10, in_channels=channels, image_size=side)
    names, expected = [], []
    for i, (width, pixels, blocks) in enumerate(stages):
        names += [f"stages.{i}.entry", *(f"stages.{i}.blocks.{b}" for b in range(blocks))]
        expected += [width * pixels**2] * (blocks + 1)
    assert [len(stage.blocks) for stage in model.stages] == [blocks for _, _, blocks in stages]
    with Taps(model.eval(), names, "classifier") as taps, torch.no_grad():
        model(torch.randn(1, channels, side, side))
    assert [taps.features[layer].shape[1] for layer in names] == expected


def test_mnist_is_the_fully_connected_one() -> None:
    model = build("pfc-mnist", 10, in_channels=1, image_size=28)
    weights = 785 * 1000 + 10 * 1001 * 1000 + 1001 * 10
    assert sum(parameter.numel() for parameter in model.parameters()) == weights


def test_network_is_stages_average_classifier() -> None:
    model, x = ConvResidualNet([(4, 1), (8, 2)], 3, in_channels=1).eval(), torch.randn(2, 1, 8, 8)
    h = x
    for stage in model.stages:
        h = stage.entry(h)
        assert (h >= 0).all()
        for block in stage.blocks:
            h = block(h)
    assert h.shape == (2, 8, 4, 4)
    expected = h.mean(dim=(2, 3)) @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(x), expected)


def test_without_norm_blocks_start_as_the_identity() -> None:
    model = ConvResidualNet([(4, 3)], 3, in_channels=1, norm=False)
    entered = model.stages[0].entry(torch.randn(2, 1, 8, 8))
    assert torch.equal(model.stages[0].blocks(entered), entered)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


def test_deviations_at_the_start() -> None:
    model = ConvResidualNet([(64, 2)], 3)
    deviation = float(model.stages[0].blocks[0].conv1.weight.detach().std())
    assert deviation == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)
