"""Networks by name: published sizes, depths, layers to measure, heads."""

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.errors import InputError
from ncscope.models.evaluation_mode import evaluation_mode
from ncscope.models.heads import find_head
from ncscope.models.networks.catalogue import FAMILIES, NAMES, build, layers_to_tap
from ncscope.models.networks.simplex_head import SimplexHead
from ncscope.models.taps import HEAD_INPUT, Taps

SMALL = [name for name in NAMES if name.startswith("small-")]
PAPER = [name for name in NAMES if name not in SMALL]
QUICK = [*SMALL, "resnet18"]
ALL = [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES if n not in QUICK)]

# Number of blocks, or of poolings for VGG.
TAPS = {
    "resnet18": 8,
    "resnet34": 16,
    "resnet50": 16,
    "vgg11": 5,
    "vgg13": 5,
    "densenet40": 3,
    "densenet100": 3,
    "densenet201": 4,
    "densenet250": 3,
    "wrn-28-2": 12,
    "wrn-28-8": 12,
    "wrn-28-2-ssl": 12,
    "wrn-28-8-ssl": 12,
    "wrn-37-2": 16,
    "deit-tiny": 12,
    "deit-small": 12,
    "pfc-mnist": 10,
    "pfc-fashion-mnist": 9,
    "pfc-cifar10": 9,
    "pfc-stl10": 20,
    "pfc-cifar100": 14,
    "small-vgg": 2,
    "small-densenet": 2,
    "small-wrn": 3,
    "small-wrn-256": 3,
    "small-vit": 4,
    "small-residual": 8,
    "small-conv": 3,
    "small-resnet": 6,
    "small-resnet-long": 7,
    "small-resnet-no-norm": 6,
    "small-resnet-384": 2,
    "small-resnet-32": 2,
}


def network(name: str, **options) -> tuple[nn.Module, Tensor]:
    """The network, for images like the experiments', and four of them."""
    size, channels = (8, 1) if name in SMALL else (32, 3)
    torch.manual_seed(0)
    model = build(name, 5, in_channels=channels, image_size=size, **options)
    return model, torch.randn(4, channels, size, size)


@cache
def unfilled(name: str, classes: int, channels: int, size: int) -> nn.Module:
    """The network without values."""
    with torch.device("meta"):
        return build(name, classes, in_channels=channels, image_size=size)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_names_are_those_of_the_families() -> None:
    for family, names in FAMILIES.items():
        assert set(import_module(f"ncscope.models.networks.{family}").BUILDERS) == set(names)
    assert len(NAMES) == sum(map(len, FAMILIES.values()))
    assert set(TAPS) == set(NAMES)


@pytest.mark.parametrize(
    ("name", "classes", "size", "parameters"),
    [
        ("resnet18", 1000, 224, 11_689_512),
        ("resnet34", 1000, 224, 21_797_672),
        ("resnet50", 1000, 224, 25_557_032),
        ("densenet201", 1000, 224, 20_013_928),
        ("deit-tiny", 1000, 224, 5_717_416),
        ("deit-small", 1000, 224, 22_050_664),
        ("wrn-28-2", 10, 32, 1_467_610),
        ("densenet100", 10, 32, 769_162),
    ],
)
def test_published_number_of_parameters(
    name: str, classes: int, size: int, parameters: int
) -> None:
    assert count(unfilled(name, classes, 3, size)) == parameters


@pytest.mark.parametrize(
    ("name", "classes", "millions"),
    [
        ("wrn-28-8", 100, 23.4),
        ("wrn-28-2-ssl", 10, 1.5),
        ("wrn-37-2", 10, 5.9),
        ("densenet40", 10, 1.0),
        ("densenet250", 10, 15.3),
    ],
)
def test_published_millions_of_parameters(name: str, classes: int, millions: float) -> None:
    assert round(count(unfilled(name, classes, 3, 32)) / 1e6, 1) == millions


@pytest.mark.parametrize(
    "name", [name for name in PAPER if name.startswith(("resnet", "vgg", "densenet", "wrn"))]
)
def test_depth_is_the_one_in_the_name(name: str) -> None:
    """WRN counts its 1 x 1 shortcuts but not the classifier; the others the other way round."""
    model = unfilled(name, 10, 3, 32)
    layers = {key for key, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    uncounted = {"fc"} if name.startswith("wrn") else {k for k in layers if "downsample" in k}
    depth = re.search(r"\d+", name)[0]
    assert len(layers - uncounted) == int(depth)


@pytest.mark.parametrize("name", ALL)
def test_layers_and_head_are_found_and_agree_with_the_logits(name: str) -> None:
    model, x = network(name)
    head, layers = find_head(model, x), layers_to_tap(model)
    assert head.gives_logits
    assert len(layers) == TAPS[name]
    with evaluation_mode(model), Taps(model, layers, head.name) as taps:
        logits = model(x)
    # in forward order
    assert list(taps.features) == [*layers, HEAD_INPUT]
    outputs = nn.functional.linear(taps.features[HEAD_INPUT], head.weight, head.bias)
    torch.testing.assert_close(outputs, logits, rtol=0, atol=1e-5 * float(logits.abs().max()))


@pytest.mark.parametrize("name", SMALL)
def test_every_layer_is_measured(name: str) -> None:
    model, _ = network(name)
    images, labels = torch.randn(40, 1, 8, 8), torch.arange(40) % 5
    layers = layers_to_tap(model)
    report = ncscope.measure_model(
        model, [(images, labels)], layers=layers, groups=["nc1", "pfc"], progress=False
    )
    assert list(report.layers)[: len(layers)] == layers
    assert all(torch.isfinite(torch.tensor(r["pfc1"])) for r in report.layers.values())


@pytest.mark.parametrize("name", ALL)
def test_a_step_trains_every_parameter(name: str) -> None:
    model, x = network(name)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    nn.functional.cross_entropy(model(x), torch.arange(4)).backward()
    optimiser.step()
    assert [key for key, value in model.named_parameters() if value.grad is None] == []
    assert all(value.isfinite().all() for value in model.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_head_without_a_bias(name: str) -> None:
    model, x = network(name, bias=False)
    assert find_head(model, x).bias is None
    assert count(network(name)[0]) - count(model) == 5


@pytest.mark.parametrize("name", SMALL)
def test_fixed_head_is_found_and_not_trained(name: str) -> None:
    model, x = network(name, head="simplex")
    head = find_head(model, x)
    assert isinstance(head.module, SimplexHead)
    assert head.bias is None
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    nn.functional.cross_entropy(model(x), torch.arange(4)).backward()
    optimiser.step()
    assert torch.equal(head.module.weight, head.weight)
    d = head.weight.shape[1]
    assert count(network(name)[0]) - count(model) == 5 * (d + 1)


def test_weights_come_from_the_global_generator() -> None:
    first, again = network("small-wrn", head="simplex")[0], network("small-wrn", head="simplex")[0]
    torch.testing.assert_close(dict(first.state_dict()), dict(again.state_dict()), rtol=0, atol=0)
    other = build("small-wrn", 5, in_channels=1, image_size=8, head="simplex")
    assert not torch.equal(other.fc.weight, first.fc.weight)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet-18", {}, "network of resnet18, .*, found 'resnet-18'; the nearest is resnet18"),
        ("WRN-28-2", {}, r"the nearest is wrn-28-2$"),
        ("small-vgg", {"head": "simplx"}, "head of linear, simplex, .*the nearest is simplex"),
        ("small-vgg", {"num_classes": 0}, "num_classes of at least 1, found 0"),
        ("small-vgg", {"image_size": -1}, "image_size of at least 1, found -1"),
        ("deit-tiny", {"image_size": 40}, "multiple of 16, found 40; resize the images to 48"),
        ("small-vit", {"image_size": 9}, "multiple of 2, found 9; resize the images to 10"),
        ("small-vgg", {"num_classes": 80, "head": "simplex"}, "dim >= k - 1 = 79"),
    ],
)
def test_bad_input(name: str, options: dict, message: str, unchecked_signatures: None) -> None:
    with pytest.raises(InputError, match=message):
        build(name, **{"num_classes": 10, **options})


def documented() -> list[tuple[str, ...]]:
    """Rows of the page's table of sizes: name, channels, side, parameters, blocks, features."""
    page = (Path(__file__).parents[3] / "docs" / "networks.md").read_text(encoding="utf-8")
    row = r"^\| `([\w-]+)` \| (\d) x (\d+) \| ([\d,]+) \| (\d+) \| (\d+) \|"
    return re.findall(row, page, re.M)


def test_every_network_is_documented() -> None:
    assert {name for name, *_ in documented()} == set(NAMES)


@pytest.mark.parametrize("row", documented(), ids=lambda row: row[0])
def test_documented_sizes(row: tuple[str, ...]) -> None:
    name, channels, side, parameters, blocks, features = row
    model = unfilled(name, 10, int(channels), int(side))
    assert f"{count(model):,}" == parameters
    assert len(layers_to_tap(model)) == int(blocks)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert linear[-1].in_features == int(features)
