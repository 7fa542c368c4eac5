"""The fully connected residual network does what PFC (3) writes."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.models.networks.residual import ResidualBlock, ResidualNet


def test_block_is_the_papers() -> None:
    block, x = ResidualBlock(4), torch.randn(5, 4)
    velocity = (x @ block.linear.weight.T + block.linear.bias).clamp(min=0)
    assert (velocity == 0).any()
    torch.testing.assert_close(block(x), x + velocity)


def test_network_is_stem_blocks_classifier() -> None:
    model, x = ResidualNet(12, 5, depth=3, num_classes=4), torch.randn(6, 3, 2, 2)
    h = model.stem(x.flatten(1))
    for block in model.blocks:
        h = block(h)
    torch.testing.assert_close(model(x), model.classifier(h))
    assert len(model.blocks) == 3


def test_table_one_sizes() -> None:
    model = ResidualNet(784, 1000, depth=10, num_classes=10)
    weights = 785 * 1000 + 10 * 1001 * 1000 + 1001 * 10
    assert sum(parameter.numel() for parameter in model.parameters()) == weights


def test_bias_is_the_classifiers() -> None:
    model = ResidualNet(4, 3, depth=1, num_classes=2, bias=False)
    assert model.classifier.bias is None
    assert model.stem.bias is not None


@pytest.mark.parametrize("name", ["in_features", "width", "depth", "num_classes"])
def test_sizes_are_checked(name: str) -> None:
    sizes = {"in_features": 4, "width": 3, "depth": 2, "num_classes": 2, name: 0}
    with pytest.raises(InputError, match=f"{name} of at least 1, found 0"):
        ResidualNet(**sizes)
