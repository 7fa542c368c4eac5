"""The batch estimate among the metrics of a model's last layer."""

import pytest
import torch
from torch import nn

import ncscope
from ncscope.measurement.evaluation import estimate_by_batch
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options

DRAWS = torch.Generator().manual_seed(0)
LABELS = torch.arange(150) % 3
INPUTS = torch.randn(150, 4, generator=DRAWS) + LABELS[:, None]
LOADER = [(INPUTS[i : i + 40], LABELS[i : i + 40]) for i in range(0, 150, 40)]


def model() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def test_it_stands_beside_the_exact_values_of_the_last_layer() -> None:
    net = model()
    options = Options(layers=["0"], groups=("information",), information_batch=32)
    *before, last = measure_layers(net, LOADER, options).record.layers
    features = net[:2](INPUTS).detach()
    expected = ncscope.batch_information(features, LABELS, net[2].weight.detach(), batch_size=32)
    exact = ncscope.measure(features, LABELS, net[2].weight.detach(), groups=["information"])
    names = ("mir", "mir_spread", "hdr", "hdr_spread")
    keys = ("mir_batch", "mir_batch_spread", "hdr_batch", "hdr_batch_spread")
    found = [last.metrics[key] for key in keys]
    assert found == pytest.approx([getattr(expected, name) for name in names], rel=1e-6)
    assert last.metrics["mir"] == pytest.approx(exact["mir"], rel=1e-6)
    assert last.metrics["mir_batch"] > last.metrics["mir"] + 0.01
    assert not any("mir_batch" in layer.metrics for layer in before)


def test_only_where_it_is_asked_for() -> None:
    for options in (
        Options(groups=("information",)),
        Options(groups=("nc4",), information_batch=32),
    ):
        assert "mir_batch" not in measure_layers(model(), LOADER, options).record.layers[-1].metrics


def test_means_of_no_batch_and_spreads_of_one_are_nan() -> None:
    one = estimate_by_batch(INPUTS, LABELS, torch.eye(3), 100)
    assert one["mir_batch"] > 0
    assert torch.tensor([one["mir_batch_spread"], one["hdr_batch_spread"]]).isnan().all()
    none = estimate_by_batch(INPUTS, LABELS, torch.eye(3), 200)
    assert torch.tensor(list(none.values())).isnan().all()
