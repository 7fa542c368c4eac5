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
