"""The same values on an accelerator as on the CPU."""

import pytest
import torch

import ncscope
from ncscope.models.networks.residual import ResidualNet
from tests.reference.instances import INSTANCES

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", INSTANCES)
def test_measure_on_cuda_equals_the_cpu(name):
    instance = INSTANCES[name]()
    on_cpu = ncscope.measure(instance.features, instance.labels, **instance.options)
    moved = torch.tensor(instance.features, device="cuda")
    on_cuda = ncscope.measure(moved, instance.labels, **instance.options)
    for key, value in on_cpu.items():
        assert on_cuda[key] == pytest.approx(value, rel=1e-8, abs=1e-10, nan_ok=True), key


def test_measure_model_on_cuda_equals_the_cpu():
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(80, 8), torch.arange(80) % 4)
    loader = torch.utils.data.DataLoader(data, 16)
    model = ResidualNet(8, 16, 3, 4).double()
    batches = [(x.double(), y) for x, y in loader]
    on_cpu = ncscope.measure_model(model, batches, progress=False)
    on_cuda = ncscope.measure_model(model.cuda(), batches, progress=False)
    for key, value in on_cpu.items():
        assert on_cuda[key] == pytest.approx(value, rel=1e-6, abs=1e-8, nan_ok=True), key


def network(blocks: int) -> torch.nn.Sequential:
    torch.manual_seed(blocks)
    layers = [torch.nn.Linear(8, 8) for _ in range(blocks)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, 4)).eval()


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(64) % 4
    return [(torch.randn(64, 8, generator=draws), labels) for _ in range(5)]


def watched(model: torch.nn.Module, device: str, **options: str) -> ncscope.ModelReport:
    with torch.no_grad(), ncscope.watch(model.to(device), layers=["0", "1"], **options) as seen:
        for inputs, labels in batches():
            model(inputs.to(device))
            seen.labels(labels.to(device))
        return seen.report()


@pytest.mark.parametrize("precision", ["float64", "blocked"])
def test_watch_on_cuda_equals_the_cpu(precision):
    on_cpu = watched(network(2), "cpu", precision=precision)
    on_cuda = watched(network(2), "cuda", precision=precision)
    for key, value in on_cpu.items():  # the forward passes differ in float32
        assert on_cuda[key] == pytest.approx(value, rel=1e-4, abs=1e-5, nan_ok=True), key
    for name, layer in on_cpu.layers.items():
        assert list(on_cuda.layers[name]) == list(layer)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_fault_read_at_the_end_names_its_layer_and_batch(value):
    data = batches()
    data[2][0][5, 3] = value
    expected = "in layer '0', found NaN or Inf in batch 3"
    with pytest.raises(ncscope.InputError, match=expected):
        ncscope.measure_model(network(2).cuda(), data, layers=["0", "1"], progress=False)


def test_a_label_out_of_range_does_not_end_the_process():
    with pytest.raises(ncscope.InputError, match="label 4 at row 1"):
        ncscope.ClassMoments(4, 4, device="cuda").update(
            torch.eye(4).cuda(), torch.tensor([0, 4, 1, 2]).cuda()
        )
    assert int(torch.ones(3, device="cuda").sum()) == 3


def warned(data: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Measure a model while torch warns of every wait for the device."""
    layers = [str(index) for index in range(8)]
    torch.cuda.set_sync_debug_mode("warn")
    try:
        ncscope.measure_model(network(8).cuda(), data, layers=layers, progress=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_pass_waits_rarely():
    counts = []
    for used in (batches()[:2], batches()):
        with pytest.warns(UserWarning, match="synchroniz") as said:
            warned(used)
        counts.append(len(said))
    assert counts[1] - counts[0] <= 3 * 6


def test_decisions_of_near_ties_equal_the_cpu():
    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 16, generator=draws).round(decimals=1)
    labels, weight = torch.arange(500) % 7, torch.randn(7, 16, generator=draws).round(decimals=1)
    weight[1] = weight[0]  # every choice between the two is a tie
    for precision in ("float64", "blocked"):
        options = {"groups": ["nc4"], "precision": precision}
        on_cpu = ncscope.measure(rows, labels, weight, **options)
        assert dict(ncscope.measure(rows.cuda(), labels, weight, **options)) == dict(on_cpu)


def test_regression_and_cka_on_cuda_equal_the_cpu():
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(60, 6, generator=draws, dtype=torch.float64)
    targets, weight = features[:, :2] + features[:, 2:4], torch.eye(2, 6)
    on_cpu = ncscope.measure_regression(features, targets, weight)
    on_cuda = ncscope.measure_regression(features.cuda(), targets, weight)
    assert dict(on_cuda) == pytest.approx(dict(on_cpu), rel=1e-8, abs=1e-10)
    for other in (targets, features.repeat(1, 20)):
        expected = pytest.approx(ncscope.cka(features, other), rel=1e-9)
        assert ncscope.cka(features.cuda(), other.cuda()) == expected
