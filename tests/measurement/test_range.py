"""Features out of the range of squares: a model's are refused, a kept metric's are scaled."""

import pytest
import torch
from torch import nn

import ncscope
from ncscope.integrations.torchmetrics import NeuralCollapse

N, D, K = 40, 6, 4
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(N, D, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.arange(N) % K
FIRST, HEAD = (torch.randn(rows, D, generator=GENERATOR, dtype=torch.float64) for rows in (D, K))


def network(features_by: float = 1.0, head_by: float = 1.0) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, K, bias=False))
    model.double()
    with torch.no_grad():
        model[0].weight.copy_(FIRST * features_by)
        model[2].weight.copy_(HEAD * head_by)
    return model


def report(model: nn.Module) -> ncscope.Report:
    data = torch.utils.data.TensorDataset(INPUTS, LABELS)
    loader = torch.utils.data.DataLoader(data, batch_size=10)
    return ncscope.measure_model(model, loader, progress=False)


SCALE_FREE = ("nc1", "nc2_etf", "nc2_equiangular_weights", "nc3_etf", "nc3_self_duality")
DECIDED = ("accuracy", "ncc_accuracy", "nc4_disagreement", "mir", "cosine_within")


@pytest.mark.parametrize(
    ("features_by", "head_by"), [(400, -400), (-400, 800), (-100, -900), (300, 600)]
)
def test_a_model_of_any_scale_that_a_stream_takes(features_by: int, head_by: int) -> None:
    plain, scaled = report(network()), report(network(2.0**features_by, 2.0**head_by))
    found = {key: scaled[key] for key in (*SCALE_FREE, *DECIDED)}
    assert found == {key: plain[key] for key in found}


@pytest.mark.parametrize("exponent", [-500, 500])
def test_a_model_beyond_is_refused_in_one_line(exponent: int) -> None:
    model = network(2.0**exponent)
    with pytest.raises(ncscope.InputError, match=r"magnitude 3e-142 to 3e\+141 in layer") as caught:
        report(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("exponent", [-900, 900])
def test_a_metric_scales_features_that_it_keeps_and_refuses_others(exponent: int) -> None:
    features = INPUTS * 2.0**exponent
    kept, streaming = (NeuralCollapse(K, D, keep_features=keep) for keep in (True, False))
    kept.update(features, LABELS, HEAD)
    plain = ncscope.measure(INPUTS, LABELS, HEAD)
    values = kept.compute()
    found = {key: float(values[key]) for key in (*SCALE_FREE, *DECIDED)}
    assert found == {key: plain[key] for key in found}
    with pytest.raises(ncscope.InputError, match="magnitude"):
        streaming.update(features, LABELS, HEAD)
    streaming.update(INPUTS, LABELS, HEAD * 2.0**exponent)
    values = streaming.compute()
    found = {key: float(values[key]) for key in SCALE_FREE}
    assert found == {key: plain[key] for key in found}
