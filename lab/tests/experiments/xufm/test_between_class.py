"""Two passes against the scatter matrix itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.models.networks.catalogue import build
from ncscope_lab.experiments.xufm.network import between_class_metrics
from tests.measurement.test_ranks import assert_same, batches, flat
from tests.measurement.test_ranks import network as chain
from tests.ranks import joined_ranks as on_ranks

LAYERS = ("stages.?",)


def data(classes: int = 4) -> DataLoader[tuple[torch.Tensor, ...]]:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 7 % classes  # unbalanced
    images = torch.randn(60, 1, 8, 8, generator=draws) + labels[:, None, None, None]
    return DataLoader(TensorDataset(images, labels), 16)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build("small-resnet", 4, in_channels=1, image_size=8)


def test_the_metrics_are_those_of_the_scatter_matrix() -> None:
    model = network()
    found = between_class_metrics(model, data(), LAYERS, 4)
    options = Options(layers=LAYERS, groups=("nc4",), layer_groups=("nc1", "nc2"))
    probed = measure_layers(model, data(), options).record.layers
    expected = {layer.layer: layer.metrics for layer in probed[:-1]}
    assert list(found) == list(expected) == ["stages.0", "stages.1", "stages.2"]
    for name, metrics in found.items():
        assert {"nc1", "nc1_quotient", "nc2_etf", "nc2_of"} <= set(metrics)
        assert metrics == pytest.approx(
            {key: expected[name][key] for key in metrics}, rel=1e-9, nan_ok=True
        )


def test_the_model_stays_as_it_was() -> None:
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    between_class_metrics(model, data(), LAYERS, 4)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_layers_of_any_width_are_measured_by_a_process_without_samples(tmp_path: Path) -> None:
    def program(rank: int) -> Any:
        return between_class_metrics(chain(), batches(slice(60 * rank)), ["blocks.*"], 4)

    expected = flat(between_class_metrics(chain(), batches(slice(60)), ["blocks.*"], 4))
    assert_same([flat(own) for own in on_ranks(2, tmp_path, program)], expected)
