"""DenseNets: the plain layer, torchvision's for large images, the stem for small ones."""

import pytest
import torch
import torchvision

from ncscope.models.networks.catalogue import build
from ncscope.models.networks.densenet import PlainDenseBlock, PlainDenseLayer, PlainDenseNet


def test_layer_appends_channels() -> None:
    layer, x = PlainDenseLayer(5, 3).eval(), torch.randn(2, 5, 4, 4)
    out = layer(x)
    assert torch.equal(out[:, :5], x)
    norm, _, convolution = layer.new
    torch.testing.assert_close(out[:, 5:], convolution(torch.relu(norm(x))))


def test_block_is_its_layers() -> None:
    block, x = PlainDenseBlock(5, 3, layers=4).eval(), torch.randn(2, 5, 4, 4)
    h = x
    for i, layer in enumerate(block.values()):
        h = layer(h)
        assert h.shape == (2, 5 + 3 * (i + 1), 4, 4)
    assert len(block) == 4
    torch.testing.assert_close(block(x), h)


def test_plain_channels_are_not_compressed() -> None:
    model = PlainDenseNet(10, 1, growth=12, layers=12)
    assert model.classifier.in_features == 16 + 3 * 12 * 12
    assert model.features[1][2].out_channels == 16 + 12 * 12
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.slow
def test_large_images_get_torchvisions_network() -> None:
    ours = build("densenet201", 7, image_size=224)
    theirs = torchvision.models.densenet201(weights=None, num_classes=7)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_small_images_have_a_stem_of_one_convolution() -> None:
    model = build("densenet100", 10, image_size=32)
    assert list(dict(model.features.named_children()))[:2] == ["conv0", "denseblock1"]
    shapes = []
    model.features.denseblock1.register_forward_hook(
        lambda module, args, out: shapes.append(out.shape)
    )
    model(torch.zeros(1, 3, 32, 32)[[0, 0]])
    assert shapes == [(2, 24 + 16 * 12, 32, 32)]
    # Huang et al. halve the 216 channels
    assert model.features.transition1.conv.out_channels == 108


@pytest.mark.parametrize("name", ["densenet201", "densenet250"])
def test_deep_ones_save_memory(name: str) -> None:
    model = build(name, 10)
    assert model.features.denseblock1.denselayer1.memory_efficient


def test_initialisation() -> None:
    bottlenecks, plain = build("densenet100", 10, in_channels=24), build("densenet40", 10)
    for convolution in (bottlenecks.features.conv0, plain.features[0].layer12.new[2]):
        fan_in = convolution.in_channels * 9
        deviation = float(convolution.weight.detach().std())
        assert deviation == pytest.approx((2 / fan_in) ** 0.5, rel=0.1)
    assert (plain.classifier.bias == 0).all()
