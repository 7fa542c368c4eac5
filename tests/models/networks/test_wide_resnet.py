"""Wide residual networks against their formulas."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, leaky_relu, linear

from ncscope.errors import InputError
from ncscope.models.networks.catalogue import build
from ncscope.models.networks.wide_resnet import ORIGINAL, SEMI_SUPERVISED, WideResNet, WideStyle


def convolutions(width: int, stages: int = 3, blocks: int = 4) -> list[tuple[int, int, int]]:
    """In, out and kernel size of each, from the paper's table 1."""
    found, before = [(3, 16, 3)], 16
    for stage in range(stages):
        channels = 16 * width * 2**stage
        found += [(before, channels, 3), (channels, channels, 3), (before, channels, 1)]
        found += [(channels, channels, 3)] * (2 * (blocks - 1))
        before = channels
    return found


@pytest.mark.parametrize(("width", "classes"), [(2, 10), (8, 100)])
def test_number_of_parameters_by_hand(width: int, classes: int) -> None:
    kernels = sum(a * b * side**2 for a, b, side in convolutions(width))
    # one norm before each 3 x 3 convolution but the stem, and one at the end
    norms = 2 * (sum(a for a, _, side in convolutions(width)[1:] if side == 3) + 64 * width)
    model = WideResNet(28, width, classes)
    expected = kernels + norms + (64 * width + 1) * classes
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def reference(model: WideResNet, x: Tensor, style: WideStyle, first_stride: int) -> Tensor:
    """The forward pass written out, in evaluation mode."""

    def active(layer: nn.Module, x: Tensor) -> Tensor:
        norm = layer[0]
        mean, var = norm.running_mean, norm.running_var
        return leaky_relu(batch_norm(x, mean, var, norm.weight, norm.bias, eps=style.eps), slope)

    slope = style.slope
    x = conv2d(x, model.stem.weight, model.stem.bias, padding=1)
    for s, stage in enumerate(model.stages):
        for b, block in enumerate(stage):
            changes, stride = b == 0, 1
            if changes:
                stride = 2 if s else first_stride
            bare = changes and s > 0 and style is SEMI_SUPERVISED
            a = x if bare else active(block.activation, x)
            one, norm, two = block.branch
            h = conv2d(a, one.weight, one.bias, stride, 1)
            h = conv2d(active(norm, h), two.weight, two.bias, 1, 1)
            if changes:
                x = conv2d(a, block.shortcut.weight, block.shortcut.bias, stride)
            x = x + h
    return linear(active(model.norm_relu, x).mean(dim=(2, 3)), model.fc.weight, model.fc.bias)


@pytest.mark.parametrize(
    ("style", "stages", "first_stride"), [(ORIGINAL, 3, 1), (SEMI_SUPERVISED, 4, 2)]
)
def test_forward_pass_is_the_published_one(
    style: WideStyle, stages: int, first_stride: int
) -> None:
    torch.manual_seed(0)
    model = WideResNet(16, 2, 5, stages=stages, first_stride=first_stride, style=style)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for vector in (module.weight, module.bias, module.running_mean):
                nn.init.normal_(vector)
            nn.init.uniform_(module.running_var, 0.5, 2)
    model.eval()
    x = torch.randn(2, 3, 16, 16)
    expected = reference(model, x, style, first_stride)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_initialisation() -> None:
    model = WideResNet(28, 8, 100)
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            deviation = float(module.weight.detach().std())
            assert deviation == pytest.approx((2 / fan_out) ** 0.5, rel=0.05), name
    assert (model.fc.bias == 0).all()


@pytest.mark.parametrize("depth", [4, 9, 27])
def test_depth_that_does_not_fit(depth: int) -> None:
    with pytest.raises(InputError, match=f"a depth of 10, 16, 22, 28, ..., found {depth}"):
        WideResNet(depth, 1, 10)


def test_initialisation_and_statistics_of_semi_supervised_code() -> None:
    model = build("wrn-37-2", 10)
    assert float(model.fc.weight.detach().std()) == pytest.approx((2 / 266) ** 0.5, rel=0.1)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(norm.momentum, norm.eps) for norm in norms} == {(0.001, 1e-3)}


def test_first_stage_for_stl10_halves_the_resolution() -> None:
    strides = [stage[0].branch[0].stride[0] for stage in build("wrn-37-2", 10).stages]
    assert strides == [2, 2, 2, 2]
    assert [stage[0].branch[0].stride[0] for stage in build("wrn-28-2", 10).stages] == [1, 2, 2]
