"""Accelerators: few waits a batch whatever the number of layers, and no fault that goes unseen."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ncscope
from ncscope.errors import InputError
from tests.synchronisations import as_accelerator, counted

K, D, MOST = 4, 16, 6
GROUPS = ["nc1", "nc2", "nc3", "nc4", "pfc", "mse"]

Batches = list[tuple[Tensor, Tensor]]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(x))


def network(blocks: int) -> nn.Sequential:
    torch.manual_seed(blocks)
    return nn.Sequential(*(Block() for _ in range(blocks)), nn.Linear(D, K)).eval()


def batches(count: int) -> Batches:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % K
    return [(torch.randn(24, D, generator=generator), labels) for _ in range(count)]


def by_measure_model(model: nn.Sequential, data: Batches, **options: Any) -> ncscope.ModelReport:
    return ncscope.measure_model(model, data, progress=False, **options)


def by_watch(model: nn.Sequential, data: Batches, **options: Any) -> ncscope.ModelReport:
    with torch.no_grad(), ncscope.watch(model, **options) as seen:
        for inputs, labels in data:
            model(inputs)
            seen.labels(labels)
        return seen.report()


WAYS = pytest.mark.parametrize("measured", [by_measure_model, by_watch])


def waits(measured: Callable[..., Any], blocks: int, count: int) -> int:
    layers = [str(index) for index in range(blocks)]
    with counted() as seen:
        measured(network(blocks), batches(count), layers=layers, groups=GROUPS)
    return seen.total()


@pytest.mark.slow
@WAYS
def test_a_batch_waits_as_often_for_twelve_layers_as_for_one(measured: Callable[..., Any]) -> None:
    """Both passes together. The difference of two runs leaves out what is done once."""
    each = [waits(measured, blocks, 3) - waits(measured, blocks, 1) for blocks in (2, 13)]
    assert each[0] <= 2 * MOST
    assert each[1] <= 2 * MOST
    assert each[0] > 0


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("groups", [GROUPS, ["information"]])
def test_nothing_read_late_changes_a_value(measured: Callable[..., Any], groups: list[str]) -> None:
    options: dict[str, Any] = {"groups": groups, "baseline": True, "layer_groups": groups[:2]}
    at_once = measured(network(3), batches(3), **options)
    with as_accelerator():
        late = measured(network(3), batches(3), **options)
    assert dict(late) == dict(at_once)
    for name, layer in at_once.layers.items():
        assert dict(late.layers[name]) == dict(layer)


@WAYS
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 2.0**600])
def test_a_fault_names_its_layer_and_batch(
    measured: Callable[..., Any], late: bool, value: float
) -> None:
    model, data = network(2).double(), [(x.double(), y) for x, y in batches(4)]
    for spoiled in (2, 3):
        data[spoiled][0][5, 7] = value
    words = r"magnitude 4e\+180" if value == 2.0**600 else "NaN or Inf"
    expected = rf"in layer '0', found {words}.* in batch 3"
    with (
        as_accelerator() if late else nullcontext(),
        pytest.raises(InputError, match=expected) as caught,
    ):
        measured(nn.Sequential(nn.Identity(), *model), data, layers=["0", "1"])
    assert "\n" not in str(caught.value)


def test_a_batch_that_is_refused_changes_nothing_on_an_accelerator_either() -> None:
    moments = ncscope.ClassMoments(2, 3)
    moments.update(torch.eye(3), [0, 1, 1])
    before = moments.state_dict()
    with as_accelerator():
        for features, labels in (
            (torch.full((2, 3), torch.nan), [0, 1]),
            (torch.eye(3).double() * 1e200, [0, 1, 0]),
            (torch.eye(3), [0, 1, 2]),
            (torch.eye(3), [0, -1, 1]),
        ):
            with pytest.raises(InputError):
                moments.update(features, labels)
    after = moments.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_the_logits_of_a_measured_pass_are_let_go() -> None:
    model = network(1)
    with torch.no_grad(), ncscope.watch(model) as seen:
        inputs, labels = batches(1)[0]
        model(inputs)
        assert seen._taps is None or seen._taps.logits.shape == (24, K)
        seen.labels(labels)
        assert seen._taps is not None
        with pytest.raises(InputError, match="a forward pass to read from"):
            _ = seen._taps.logits


def by_ood_pass(model: nn.Sequential, data: Batches) -> ncscope.ModelReport:
    outside = [inputs for inputs, _ in data]
    return ncscope.measure_model(
        model, batches(2), layers=[], groups=["ood"], ood=outside, progress=False
    )


def by_compare_layers(model: nn.Sequential, data: Batches) -> ncscope.LayerSimilarity:
    layers = [str(index) for index in range(len(model) - 1)]
    return ncscope.compare_layers(model, data, layers=layers, progress=False)


@pytest.mark.parametrize("measured", [by_ood_pass, by_compare_layers])
@pytest.mark.parametrize("blocks", [2, 8])
def test_a_batch_waits_less_than_three_times(measured: Callable[..., Any], blocks: int) -> None:
    seen = []
    for count in (2, 7):
        with counted() as reads:
            measured(network(blocks), batches(count))
        seen.append(reads.total())
    assert 0 < seen[1] - seen[0] < 3 * 5


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("value", "said"), [(torch.nan, "finite"), (2.0**600, "of magnitude")])
def test_a_fault_of_ood_samples_names_its_batch(late: bool, value: float, said: str) -> None:
    model, data = network(1).double(), [(x.double(), y) for x, y in batches(3)]
    data[1] = (data[1][0][:0], data[1][1][:0])
    data[2][0][5] = value
    outside = [x for x, _ in data]
    inside = [(x.double(), y) for x, y in batches(2)]
    with (
        as_accelerator() if late else nullcontext(),
        pytest.raises(InputError, match=r"OOD features.*in batch 2") as caught,
    ):
        ncscope.measure_model(model, inside, groups=["ood"], ood=outside, progress=False)
    assert said in str(caught.value)


def test_ood_values_read_late_are_those_read_at_once() -> None:
    at_once = by_ood_pass(network(2), batches(3))
    with as_accelerator():
        assert dict(by_ood_pass(network(2), batches(3))) == dict(at_once)
