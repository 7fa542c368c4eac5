"""Coordinates that only rounding varies, comparable units, and the notes of absent classes."""

import pytest
import torch
from torch import Tensor

import ncscope
from ncscope.metrics.discriminants import Discriminants, discriminants
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish


def decomposed(features: Tensor, labels: Tensor) -> Discriminants:
    moments = ClassMoments(int(labels.max()) + 1, features.shape[1])
    moments.update(features, labels)
    return discriminants(finish(moments))


LABELS = torch.arange(2).repeat_interleave(4)
SIGNS = torch.tensor([1, -1] * 4, dtype=torch.float64)
APART = torch.tensor([1] * 4 + [-1] * 4, dtype=torch.float64)


@pytest.mark.parametrize("spread", [1.0, 2.0**-12])
def test_a_constant_coordinate_changes_no_unit(spread: float) -> None:
    varying = spread * torch.stack([APART + SIGNS, APART - SIGNS / 2], 1)
    found = decomposed(torch.cat([varying, torch.full((8, 1), 3.0)], 1), LABELS)
    assert found.scales is None
    assert found.between.rank == 1
    assert float(found.between.values) == pytest.approx(2 * spread**2, rel=1e-12)


@pytest.mark.parametrize(("spread", "collapsed"), [(2.0**-46, True), (2.0**-45, False)])
def test_a_variance_that_the_rounding_of_the_means_explains_is_none(
    spread: float, collapsed: bool
) -> None:
    """32 rounding units of the mean 1, times the root of four samples, are 2^-46."""
    second = 1 + spread * SIGNS
    found = decomposed(torch.stack([APART + SIGNS, second], 1), LABELS)
    scale = 1.0 if found.scales is None else float(found.scales[1])
    assert float(found.within[1, 1]) == (0 if collapsed else (scale * spread) ** 2)
    assert float(found.within[0, 0]) == 1


@pytest.mark.parametrize(
    ("num_classes", "note"),
    [
        (3, "class 2 without samples: measured over the 2 classes present"),
        (4, "classes 2, 3 without samples: measured over the 2 classes present"),
        (13, "classes 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 1 more without samples"),
        (12, "classes 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 without samples"),
    ],
)
def test_classes_without_samples_are_named(num_classes: int, note: str) -> None:
    features = torch.stack([APART + SIGNS, SIGNS], 1)
    report = ncscope.measure(features, LABELS, num_classes=num_classes, groups=["nc1"])
    assert any(line.startswith(note) for line in report.warnings)
    assert not any("without" in line for line in ncscope.measure(features, LABELS).warnings)
