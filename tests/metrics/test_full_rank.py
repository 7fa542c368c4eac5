"""Metrics by the Cholesky factor of the spread within classes, against the slow reference."""

import pytest
import torch

import ncscope
from ncscope.math import symmetric

from ..closeness import assert_agree, mismatches
from ..pace import others_slow
from ..reference.collapse import reference_metrics
from ..reference.instances import INSTANCES
from .collapse import COLLAPSE


@pytest.mark.parametrize(
    "name", others_slow(INSTANCES, "more_classes_than_dims", "near_collapse", "weight_decay")
)
def test_every_side_by_the_factor_equals_the_reference(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symmetric, "_LEAST_SIDE", 1)
    x = INSTANCES[name]()
    samples = x.features, x.labels, x.weight, x.bias
    report = ncscope.measure(*samples, **x.options)
    wanted = reference_metrics(*samples, **x.options)
    assert not mismatches(report, {k: wanted[k] for k in COLLAPSE}, rel=1e-9, abs_tol=1e-13)


@pytest.mark.parametrize("k", [10, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("collapse", others_slow([1.0, 1e-4], 1e-4))
def test_a_wide_layer_by_both_ways(
    k: int, collapse: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(900) % k
    means = torch.randn(k, 280, generator=draws)
    features = means[labels] + collapse * torch.randn(900, 280, generator=draws)
    weight, bias = torch.randn(k, 280, generator=draws), torch.randn(k, generator=draws)
    made = []
    monkeypatch.setattr(
        "ncscope.math.canonical.positive_definite",
        lambda matrix: made.append(symmetric.positive_definite(matrix)) or made[-1],
    )
    found = ncscope.measure(features, labels, weight, bias, weight_decay=1e-3)
    assert any(made)
    monkeypatch.setattr("ncscope.math.canonical.positive_definite", lambda matrix: None)
    wanted = ncscope.measure(features, labels, weight, bias, weight_decay=1e-3)
    assert_agree(found, wanted, rel=1e-12, abs_tol=1e-13)
    assert found.notes == wanted.notes
