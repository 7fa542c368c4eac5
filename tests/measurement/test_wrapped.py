"""Models as they are deployed and trained: quantised, compiled, on several devices."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope.models.heads import find_head

from ..closeness import assert_agree

K = 4


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)) for _ in range(2)]
    return nn.Sequential(nn.Sequential(*blocks), nn.Linear(6, K))


def data() -> TensorDataset:
    labels = torch.arange(40) % K
    inputs = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    return TensorDataset(inputs, labels)


def measured(model: nn.Module, **options: object) -> ncscope.ModelReport:
    loader = DataLoader(data(), 16)
    return ncscope.measure_model(model, loader, layers=["0.*"], progress=False, **options)


def run(model: nn.Module) -> nn.Module:
    """The same after it has run, for only then are a compiled model's hooks not called."""
    with torch.no_grad():
        model(data().tensors[0])
    return model


def compiled(model: nn.Sequential) -> nn.Module:
    return run(torch.compile(model, backend="eager"))


def compiled_in_place(model: nn.Sequential) -> nn.Module:
    model.compile(backend="eager")
    return run(model)


def compiled_inside(model: nn.Sequential) -> nn.Module:
    model[0][1].compile(backend="eager")
    model[1].compile(backend="eager")
    return run(model)


def data_parallel(model: nn.Sequential) -> nn.Module:
    return nn.DataParallel(model)


def long(*wraps: Callable[[nn.Sequential], nn.Module]) -> list:
    """The first compilation of a process loads for seconds."""
    return [pytest.param(wrap, marks=pytest.mark.slow) for wrap in wraps]


@pytest.mark.parametrize(
    "wrap", [data_parallel, *long(compiled, compiled_in_place, compiled_inside)]
)
def test_a_wrapped_model_is_measured_as_the_model_inside(
    wrap: Callable[[nn.Sequential], nn.Module],
) -> None:
    expected, found = measured(plain()), measured(wrap(plain()))
    assert list(found.layers) == ["0.0", "0.1", "head input"][: len(expected.layers)]
    for name, layer in expected.layers.items():
        assert_agree(found.layers[name], dict(layer))


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process only."""
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_model_in_training_on_several_devices() -> None:
    wrapped = nn.parallel.DistributedDataParallel(plain())
    found = measured(wrapped)
    assert_agree(found, dict(measured(plain())))
    assert list(found.layers) == list(measured(plain()).layers)


@pytest.mark.slow
def test_a_compiled_model_runs_compiled_again_afterwards() -> None:
    runs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        def run(*args: Tensor) -> object:
            runs.append(len(args))
            return graph.forward(*args)

        return run

    model = run(torch.compile(plain().eval(), backend=backend))
    before = len(runs)
    measured(model)
    assert len(runs) == before
    run(model)
    assert len(runs) > before


# torch announces the end of its own quantisation and does not say how else to do it.
QUANTISED = pytest.mark.filterwarnings("ignore:.*(quantiz|quantis)")


def quantised(model: nn.Sequential) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model.eval(), {nn.Linear}, torch.qint8)


@QUANTISED
def test_a_quantised_model_is_measured_with_the_weights_it_has() -> None:
    model = quantised(plain())
    found = find_head(model, data().tensors[0])
    weight = model[1].weight().dequantize()
    assert (found.name, found.gives_logits) == ("1", True)
    assert torch.equal(found.weight, weight)
    assert not torch.equal(weight, plain()[1].weight)
    report = measured(model)
    seen: list[Tensor] = []
    model[1].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        for inputs in data().tensors[0].split(16):
            model(inputs)
    by_hand = ncscope.measure(torch.cat(seen), data().tensors[1], weight, model[1].bias())
    assert_agree(report, dict(by_hand))


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self._packed_params = inner._packed_params
        self.weight, self.bias = (lambda: 2 * inner.weight().dequantize()), inner.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


@QUANTISED
def test_a_module_around_a_quantised_head_is_measured_as_it_acts() -> None:
    model = quantised(plain())
    once = find_head(model, data().tensors[0]).weight
    model[1] = Twice(model[1])
    found = find_head(model, data().tensors[0], "1")  # not with the weight that it claims to have
    torch.testing.assert_close(found.weight, once)


class EightBits(nn.Parameter):
    """A weight of a class of its own, as torchao's: what it holds is not what it stands for."""

    def dequantize(self) -> Tensor:
        return self.data / 4


class OfEightBits(nn.Linear):
    def __init__(self) -> None:
        super().__init__(6, K)
        self.weight = EightBits(torch.randint(-127, 128, (K, 6)).float())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight.dequantize(), self.bias)


def test_a_weight_of_a_class_of_its_own_is_dequantised() -> None:
    model = nn.Sequential(plain()[0], OfEightBits())
    head = find_head(model, data().tensors[0])
    assert torch.equal(head.weight, model[1].weight.data / 4)
