"""`watch` gives the report of `measure_model`, of passes that the caller ran."""

import pytest
import torch
from torchvision.ops import StochasticDepth

import ncscope
from ncscope.models.networks.residual import ResidualNet

LABELS = torch.arange(40) % 4
INPUTS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) + torch.eye(6)[LABELS]
BATCHES = list(zip(INPUTS.split(15), LABELS.split(15), strict=True))


def test_the_report_is_that_of_measure_model():
    torch.manual_seed(0)
    model = ResidualNet(in_features=6, width=8, depth=2, num_classes=4).eval()
    counts = torch.bincount(LABELS)
    settings = {
        "layers": ["stem", "blocks.0"],
        "groups": ["nc1", "nc4", "mse"],
        "layer_groups": ["nc2", "nc4"],
        "prior": "uniform",
        "class_counts": counts,
        "weight_decay": 0.1,
        "pool": True,
        "memory": 0,
    }
    others = [(inputs + 0.1, labels) for inputs, labels in BATCHES]
    reference = ncscope.measure_model(model, others, progress=False, **settings)
    settings["reference"] = reference
    expected = ncscope.measure_model(model, BATCHES, progress=False, **settings)
    with torch.no_grad(), ncscope.watch(model, **settings) as seen:
        for inputs, labels in BATCHES:
            model(inputs)
            seen.labels(labels)
    report = seen.report()
    assert report.model_record == expected.model_record
    assert list(report.layers) == list(expected.layers)
    assert report["ncc_accuracy"] != ncscope.measure_model(model, BATCHES)["ncc_accuracy"]
    assert seen.report() is report
    with pytest.raises(ncscope.InputError, match="labels of each batch inside the context"):
        ncscope.watch(model).report()


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Dropout(0.5),
        torch.nn.BatchNorm1d(8),
        StochasticDepth(0.5, "row"),
        torch.nn.Dropout(0.0),
        torch.nn.ReLU(),
    ],
)
def test_passes_in_training_mode_are_warned_of_where_they_differ(layer: torch.nn.Module) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), layer, torch.nn.Linear(8, 4))
    warned = {}
    for training in (True, False):
        model.train(training)
        with torch.no_grad(), ncscope.watch(model, groups=["nc1"]) as seen:
            for inputs, labels in BATCHES:
                model(inputs)
                seen.labels(labels)
        warned[training] = [w for w in seen.report().warnings if "in training mode" in w]
    assert warned[False] == []
    assert len(warned[True]) == (
        getattr(layer, "p", 1) > 0 and not isinstance(layer, torch.nn.ReLU)
    )
