"""The values at collapse, against features that are collapsed exactly."""

import math

import pytest
import torch

import ncscope
from ncscope.math.frames import simplex_etf
from ncscope.metrics.registry import METRICS
from ncscope.report.labels import collapsed_at

SIMPLEX = [key for key in METRICS if key.startswith("nc2_")] + [
    "nc3_etf", "mir", "mir_centered", "mir_means", "entropy_features", "effective_rank"
]  # fmt: skip


@pytest.mark.parametrize(("classes", "dim"), [(2, 3), (4, 10), (5, 4), (10, 12)])
def test_every_metric_is_at_its_value_for_a_collapsed_simplex(classes: int, dim: int) -> None:
    etf = simplex_etf(classes, dim=dim).double()
    # The least-squares classifier, whose logits are the one-hot labels.
    weight = etf * (1 - 1 / classes) / etf.square().sum(1, keepdim=True)
    bias = torch.full((classes,), 1 / classes, dtype=torch.float64)
    labels = torch.arange(classes).repeat(12)
    report = ncscope.measure(etf.repeat(12, 1), labels, weight, bias)
    assert METRICS.keys() <= report.keys()
    for key, value in report.items():
        expected = collapsed_at(key, classes, dim)
        known = math.nan if expected is None else expected
        assert value == pytest.approx(known, abs=1e-7, nan_ok=True), key


def test_without_a_simplex_its_metrics_have_no_value() -> None:
    assert {collapsed_at(key, 10, 8) for key in SIMPLEX} == {None}
    assert collapsed_at("nc1", 10, 8) == 0
    assert collapsed_at("ncc_accuracy", 10, 8) == 1
    assert collapsed_at("mir", 9, 8) is not None
    assert collapsed_at("loss", 10, 512) is None
