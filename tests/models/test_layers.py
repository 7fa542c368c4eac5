"""Layers by pattern and by structure."""

import pytest
import torch
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.layers import find_layer, find_repeated_blocks, match_layers
from ncscope.models.networks.residual import ResidualNet


def net() -> ResidualNet:
    return ResidualNet(4, 3, depth=11, num_classes=2)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["classifier", "stem"], ["stem", "classifier"]),
        (["blocks.[01]"], ["blocks.0", "blocks.1"]),
        (["blocks.1?", "blocks.10"], ["blocks.10"]),
        (["*"], ["stem", "blocks", "classifier"]),
        (["blocks.*", "stem"], ["stem", *(f"blocks.{i}" for i in range(11))]),
        (["blocks.3.*"], ["blocks.3.linear"]),
        ([], []),
    ],
)
def test_patterns(patterns: list[str], expected: list[str]) -> None:
    assert match_layers(net(), patterns) == expected


def test_pattern_that_matches_nothing() -> None:
    with pytest.raises(InputError, match=r"found 'block\.0'; did you mean 'blocks\.0'"):
        match_layers(net(), ["stem", "block.0"])
    with pytest.raises(InputError, match=r"'xyz'; see model\.named_modules"):
        match_layers(net(), ["xyz"])


def test_named_layer_knows_aliases() -> None:
    model = nn.Module()
    model.one = model.two = nn.Linear(2, 2)
    assert find_layer(model, "two") is model.one
    assert find_layer(model, "") is model


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.two(self.act(self.one(x)))


class Other(Block):
    pass


class Stage(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.downsample = nn.Linear(2, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layers = nn.Linear(2, 2), nn.Sequential(Block(), Block())


class Attributes(nn.Module):
    """A stage that names its blocks one by one."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        for i in range(depth):
            self.add_module(f"b{i}", Block())


class Nested(nn.Module):
    """A block around a short chain of blocks that holds half its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(Block())
        self.outer = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), []),
        (nn.Sequential(nn.Linear(2, 2), Block(), Other(), Block()), ["1", "3"]),
        (nn.Sequential(nn.Sequential(Block()), nn.Sequential(Block())), ["0.0", "1.0"]),
        (nn.Sequential(Stage(1), Stage(2)), ["0.blocks.0", "1.blocks.0", "1.blocks.1"]),
        (nn.Sequential(Encoder(), nn.Linear(2, 2)), ["0.layers.0", "0.layers.1"]),
        (nn.Sequential(Attributes(2), Attributes(2)), ["0.b0", "0.b1", "1.b0", "1.b1"]),
        (nn.Sequential(Nested(), Nested()), ["0", "1"]),
        (nn.Sequential(Block()), []),
        (net(), [f"blocks.{i}" for i in range(11)]),
    ],
    ids=["plain", "mixed", "stages", "staged", "encoder", "attributes", "nested", "one", "ours"],
)
def test_blocks(model: nn.Module, expected: list[str]) -> None:
    assert find_repeated_blocks(model) == expected


def shared(times: int) -> nn.Module:
    """An encoder that lists one block several times."""
    block = Block()
    return nn.Sequential(nn.ModuleDict({"layers": nn.ModuleList([block] * times)}))


def two_names() -> nn.Module:
    """A block with a name in each of two containers, beside another."""
    model, block = nn.Module(), Block()
    model.one, model.two = nn.Sequential(block), nn.Sequential(block, Block())
    return model


def test_a_module_of_two_names_is_one_block() -> None:
    model = two_names()
    assert find_repeated_blocks(model) == ["one.0", "two.1"]
    assert match_layers(model, ["*.0"]) == ["one.0"]
    assert match_layers(model, ["two.*"]) == ["two.0", "two.1"]


def test_a_block_that_is_called_several_times_is_repeated() -> None:
    model = shared(times=3)
    calls = dict.fromkeys(model.modules(), 3)
    assert find_repeated_blocks(model) == []
    assert find_repeated_blocks(model, calls) == ["0.layers.0"]
    assert find_repeated_blocks(model, dict.fromkeys(calls, 1)) == []


def test_modules_that_are_never_called_are_looked_through() -> None:
    model = nn.Sequential(Stage(1), Stage(1))
    blocks = [stage.blocks[0] for stage in model]
    called = dict.fromkeys([*blocks, *(stage.downsample for stage in model)], 1)
    assert find_repeated_blocks(model, called) == ["0.blocks.0", "1.blocks.0"]
    assert find_repeated_blocks(nn.Sequential(Block(), Block()), {}) == []


@pytest.mark.parametrize(
    ("arch", "count", "first"),
    [
        ("resnet18", 8, "layer1.0"),
        ("resnet50", 16, "layer1.0"),
        ("vit_b_16", 12, "encoder.layers.encoder_layer_0"),
        ("swin_t", 12, "features.1.0"),
        ("convnext_tiny", 18, "features.1.0"),
        ("efficientnet_b0", 16, "features.1.0"),
        ("densenet121", 4, "features.denseblock1"),
        ("vgg11", 0, None),
        ("vgg11_bn", 0, None),
        ("alexnet", 0, None),
    ],
)
def test_torchvision(arch: str, count: int, first: str | None) -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        model = getattr(models, arch)(weights=None)
    found = find_repeated_blocks(model)
    assert len(found) == count
    assert found[:1] == ([first] if first else [])


@pytest.mark.parametrize(
    ("arch", "count", "first"),
    [
        ("resnet18", 8, "layer1.0"),
        ("vit_tiny_patch16_224", 12, "blocks.0"),
        ("mixer_s16_224", 8, "blocks.0"),
        ("regnetx_002", 13, "s1"),
        ("convnext_atto", 12, "stages.0.blocks.0"),
        ("mobilevit_xxs", 10, "stages.0.0"),
        ("vgg11", 0, None),
    ],
)
def test_timm(arch: str, count: int, first: str | None) -> None:
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model(arch, pretrained=False)
    found = find_repeated_blocks(model)
    assert len(found) == count
    assert found[:1] == ([first] if first else [])
