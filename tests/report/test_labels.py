"""The values at collapse, against features that are collapsed exactly."""

import math

import pytest
import torch

import ncscope
from ncscope.math.frames import simplex_etf
from ncscope.metrics.evaluate import select
from ncscope.metrics.registry import METRICS
from ncscope.report.labels import find_label, is_fixed, value_at_collapse

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
    assert {row.key for row in select(None) if row.group != "ood"} <= report.keys()
    balanced = {"minority_cosine_means", "minority_cosine_weights"}  # none is below the median
    for key in set(report) - balanced:
        value = report[key]
        expected = value_at_collapse(key, classes, dim)
        if is_fixed(key, classes):
            assert expected is None
            # Undefined where the classifier's rows are opposite as well, and else 1.
            expected = None if key == "hdr_means" else find_label(key).for_two_classes
        known = math.nan if expected is None else expected
        assert value == pytest.approx(known, abs=1e-7, nan_ok=True), key


def test_minority_cosines_are_at_their_value_for_a_collapsed_simplex() -> None:
    labels = torch.arange(5).repeat_interleave(torch.tensor([2, 3, 9, 9, 9]))
    etf = simplex_etf(5, dim=6).double()
    report = ncscope.measure(etf[labels], labels, etf)
    for key in ("minority_cosine_means", "minority_cosine_weights"):
        assert report[key] == pytest.approx(value_at_collapse(key, 5, 6), rel=1e-12)


def test_without_a_simplex_its_metrics_have_no_value() -> None:
    assert {value_at_collapse(key, 10, 8) for key in SIMPLEX} == {None}
    assert value_at_collapse("nc1", 10, 8) == 0
    assert value_at_collapse("ncc_accuracy", 10, 8) == 1
    assert value_at_collapse("mir", 9, 8) is not None
    assert value_at_collapse("loss", 10, 512) is None
