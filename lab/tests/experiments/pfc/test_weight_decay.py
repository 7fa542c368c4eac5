"""The bound of PFC III-C: the proof's constant holds for one layer, and there is none for two."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.models.resnet import BasicBlock

from ncscope.models.networks.residual import ResidualBlock
from ncscope_lab.experiments.pfc.paths import block_energy


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(-3, 3))
def test_the_proof_s_constant_bounds_one_layer(seed: int, weight: float, size: float) -> None:
    torch.manual_seed(seed)
    block, x = ResidualBlock(4).double(), 10**size * torch.randn(6, 4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.mul_(10**weight)
        found = block_energy(block, x, block(x))
    assert found["energy_constant"] <= (1 + 1e-9) * found["energy_bound"]


def test_the_bound_is_reached_by_a_weight_of_rank_one_along_the_features() -> None:
    block = ResidualBlock(3).double()
    with torch.no_grad():
        block.linear.weight.zero_()[0, 0] = 2.0
        block.linear.bias.zero_()[0] = 1.0
        x = torch.tensor([[2.0, 0, 0]]).double()
        found = block_energy(block, x, block(x))
    # (W, b) is parallel to (x, 1), so Cauchy and Schwarz's inequality is an equality.
    assert found == {"weight_norm": 5, "energy_constant": pytest.approx(5), "energy_bound": 5}


def basic(norm: bool) -> BasicBlock:
    torch.manual_seed(0)
    return BasicBlock(2, 2, norm_layer=nn.BatchNorm2d if norm else nn.Identity).double()


def constant_at(block: nn.Module, scale: float) -> float:
    """Energy over weights with all convolutions scaled."""
    x = torch.rand(4, 2, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for module in block.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.mul_(scale)
        found = block_energy(block, x.flatten(1), block(x).flatten(1))
    assert "energy_bound" not in found
    return found["energy_constant"]


def test_two_layers_have_no_constant() -> None:
    """The energy grows like the fourth power of the scale, up to rectification of the sum."""
    small, large = constant_at(basic(norm=False), 1e3), constant_at(basic(norm=False), 1e4)
    assert large / small == pytest.approx(100, rel=0.05)


def test_batch_normalisation_leaves_no_constant() -> None:
    """The block's energy is independent of the scale of its convolutions, while their decay is not.

    Its own scale and shift keep their size; they are 1 and 0 here.
    """
    blocks = [basic(norm=True).train() for _ in range(2)]
    for block in blocks:
        for module in block.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 1e-15
                nn.init.constant_(module.weight, 1e-3)
    small, usual = (
        constant_at(block, scale) for block, scale in zip(blocks, (1e-2, 1), strict=True)
    )
    assert small > 1000 * usual


def test_a_block_without_weights_has_no_constant() -> None:
    x = torch.ones(2, 3)
    found = block_energy(nn.Identity(), x, x + 1)
    assert found["weight_norm"] == 0
    assert math.isnan(found["energy_constant"])
