"""Any backbone of timm and torchvision: head, features and blocks, without a name given."""

import pytest
import torch
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.heads import find_head
from ncscope.models.layers import find_repeated_blocks
from ncscope.models.taps import HEAD_INPUT, Taps
from ncscope.models.tracing import trace

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

# Architecture, image size, options, head.
TIMM = [
    ("resnet18", 32, {}, "fc"),
    ("vit_tiny_patch16_224", 32, {"img_size": 32}, "head"),
    ("convnext_atto", 32, {}, "head.fc"),
]
TIMM_SLOW = [
    ("deit_tiny_patch16_224", 32, {"img_size": 32}, "head"),
    ("mixer_s16_224", 32, {"img_size": 32}, "head"),
    ("regnetx_002", 32, {}, "head.fc"),
    ("xcit_nano_12_p16_224", 32, {"img_size": 32}, "head"),
    ("mobilevit_xxs", 64, {}, "head.fc"),
    ("edgenext_xx_small", 64, {}, "head.fc"),
    ("ghostnet_050", 32, {}, "classifier"),
    ("repvgg_a0", 32, {}, "head.fc"),
    ("mobilenetv3_small_050", 32, {}, "classifier"),
    ("efficientnet_b0", 32, {}, "classifier"),
    ("densenet121", 32, {}, "classifier"),
    ("swin_tiny_patch4_window7_224", 224, {}, "head.fc"),
    ("vgg11", 32, {}, "head.fc"),
    ("pvt_v2_b0", 64, {}, "head"),
    ("poolformer_s12", 64, {}, "head.fc"),
    ("mobileone_s0", 32, {}, "head.fc"),
    ("nf_resnet26", 32, {}, "head.fc"),
    ("inception_v3", 80, {}, "fc"),
    ("cait_xxs24_224", 224, {}, "head"),
    ("resmlp_12_224", 224, {}, "head"),
    ("dla34", 32, {}, "fc"),
    ("maxvit_rmlp_pico_rw_256", 256, {}, "head.fc"),
    ("eva02_tiny_patch14_224", 224, {}, "head"),
    ("fastvit_t8", 64, {}, "head.fc"),
    ("tresnet_m", 32, {}, "head.fc"),
    ("hrnet_w18_small", 64, {}, "classifier"),
]
TORCHVISION = [
    ("resnet18", 32, {}, "fc"),
    ("mobilenet_v3_small", 32, {}, "classifier.3"),
    ("shufflenet_v2_x0_5", 32, {}, "fc"),
]
TORCHVISION_SLOW = [
    ("mobilenet_v2", 32, {}, "classifier.1"),
    ("efficientnet_b0", 32, {}, "classifier.1"),
    ("regnet_y_400mf", 32, {}, "fc"),
    ("alexnet", 64, {}, "classifier.6"),
    ("vgg11", 32, {}, "classifier.6"),
    ("densenet121", 32, {}, "classifier"),
    ("vit_b_16", 32, {"image_size": 32}, "heads.head"),
    ("swin_t", 32, {}, "head"),
    ("convnext_tiny", 32, {}, "classifier.2"),
    ("googlenet", 64, {"aux_logits": False, "init_weights": False}, "fc"),
    ("inception_v3", 80, {"init_weights": False}, "fc"),
]


def images(size: int) -> Tensor:
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


def from_timm(arch: str, **options) -> nn.Module:
    return timm.create_model(arch, pretrained=False, num_classes=5, **options)


def from_torchvision(arch: str, **options) -> nn.Module:
    return getattr(torchvision.models, arch)(weights=None, num_classes=5, **options)


def check_backbone(model: nn.Module, x: Tensor, name: str) -> None:
    """Traced features times the head are the logits, and nothing in the model has changed."""
    # Some heads start at zero, which would make every comparison true.
    nn.init.normal_(model.get_submodule(name).weight)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found, blocks = trace(model, x), find_repeated_blocks(model)
    head = found.head
    assert head.name == name
    assert head.gives_logits
    with evaluation_mode(model), found.taps(model) as taps:
        logits = model(x)
    assert all(module.training for module in model.modules())
    assert found.layers == tuple(blocks)
    assert list(taps.features) == [*blocks, HEAD_INPUT]
    assert all(rows.shape[0] == 2 and rows.ndim == 2 for rows in taps.features.values())
    outputs = nn.functional.linear(taps.features[HEAD_INPUT], head.weight, head.bias)
    torch.testing.assert_close(outputs, logits, rtol=0, atol=1e-5 * float(logits.abs().max()))
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def slow(cases: list[tuple]) -> list:
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize(("arch", "size", "options", "head"), TIMM + slow(TIMM_SLOW))
def test_timm(arch: str, size: int, options: dict, head: str) -> None:
    check_backbone(from_timm(arch, **options), images(size), head)


@pytest.mark.parametrize(("arch", "size", "options", "head"), TORCHVISION + slow(TORCHVISION_SLOW))
def test_torchvision(arch: str, size: int, options: dict, head: str) -> None:
    check_backbone(from_torchvision(arch, **options), images(size), head)


@pytest.mark.slow
def test_modules_that_layers_share() -> None:
    """Convolutional encodings of positions, which the blocks of a stage have in common."""
    model, x = from_timm("coat_tiny"), images(224)
    found = trace(model, x)
    with evaluation_mode(model), found.taps(model) as taps:
        model(x)
    assert {"crpe1", "crpe1#2", "crpe2#4"} < set(taps.features)
    assert set(taps.features) == set(found.axes)


@pytest.mark.slow
def test_layers_that_return_parts_of_samples_beside_samples() -> None:
    """TNT's blocks return the pixels of 2 x 196 patches, and then the patches of 2 images."""
    model, x = from_timm("tnt_s_patch16_224"), images(224)
    found = trace(model, x)
    with evaluation_mode(model), found.taps(model) as taps:
        model(x)
    assert found.layers == tuple(f"blocks.{i}" for i in range(12))
    assert {axis.tensor for axis in found.axes.values()} == {0, 1}
    assert taps.features["blocks.0"].shape == (2, 197 * 384)


@pytest.mark.parametrize(
    ("arch", "size", "options", "heads"),
    [
        ("deit_tiny_distilled_patch16_224", 32, {"img_size": 32}, ("head", "head_dist")),
        *slow([("levit_128s", 224, {}, ("head.linear", "head_dist.linear"))]),
        *slow([("efficientformer_l1", 224, {}, ("head", "head_dist"))]),
    ],
)
def test_distilled(arch: str, size: int, options: dict, heads: tuple[str, str]) -> None:
    model, x = from_timm(arch, **options), images(size)
    with pytest.raises(InputError, match=f"average of '{heads[0]}' and '{heads[1]}'"):
        find_head(model, x)
    chosen = find_head(model, x, heads[0])
    assert not chosen.gives_logits
    with evaluation_mode(model), Taps(model, [heads[0]], heads[0]) as taps:
        model(x)
    outputs = nn.functional.linear(taps.features[HEAD_INPUT], chosen.weight, chosen.bias)
    torch.testing.assert_close(outputs, taps.features[heads[0]], rtol=0, atol=1e-5)


def test_classifier_pooled_after_a_relu_has_no_head() -> None:
    model = from_torchvision("squeezenet1_0")
    with pytest.raises(InputError, match="pooled before and not after it"):
        find_head(model, images(64))
    with pytest.raises(InputError, match=r"head 'classifier\.1' to turn one vector"):
        find_head(model, images(64), "classifier.1")


def test_backbone_without_a_head() -> None:
    model = timm.create_model("resnet18", pretrained=False, num_classes=0)
    with pytest.raises(InputError, match="a linear layer whose output is the logits, found none"):
        find_head(model, images(32))
