"""The two minimisers of the regularised loss, against closed forms and optimality."""

import math

import pytest
import torch

from ncscope_lab.theory.vci_features import (
    draw_unstructured_of,
    label_by_counts,
    measure,
    probe_minimum,
)
from ncscope_lab.theory.vci_invariance import (
    cosine_distance,
    example_of_shear,
    ridge_minimum,
    softmax_minimum,
)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_example_has_the_covariances_of_the_paper() -> None:
    stats, _ = measure(example_of_shear())
    torch.testing.assert_close(stats.within, torch.eye(2).double())
    torch.testing.assert_close(
        stats.centred.mT @ stats.centred / 2, torch.diag(torch.tensor([1.0, 0.0]).double())
    )


def test_ridge_without_decay_is_the_probing_loss(generator: torch.Generator) -> None:
    labelled = draw_unstructured_of(3, 6, 4, generator)
    expected = probe_minimum(labelled, torch.full((3,), 1 / 3, dtype=torch.float64))
    assert ridge_minimum(labelled, 0.0, 0.0) == pytest.approx(expected, rel=1e-12)


def test_ridge_on_one_feature() -> None:
    """One class at 1, one at -1, no bias: w of each class minimises (w - 1)^2/4 + w^2/4 + ..."""
    labelled = label_by_counts(torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([1, 1]))
    # Each row of W: min over w of ((w - 1)^2 + w^2)/4 + a w^2/2 with the bias at 0.
    weight_decay, huge = 0.5, 1e12
    w = 0.5 / (1 + weight_decay)
    expected = 2 * (((w - 1) ** 2 + w**2) / 4 + weight_decay * w**2 / 2)
    assert ridge_minimum(labelled, weight_decay, huge) == pytest.approx(expected, rel=1e-9)


def test_softmax_of_constant_features_is_the_entropy_of_the_labels() -> None:
    labelled = label_by_counts(torch.zeros(10, 2).double(), torch.tensor([5, 3, 2]))
    expected = -sum(p * math.log(p) for p in (0.5, 0.3, 0.2))
    assert softmax_minimum(labelled, 0.0, 0.0) == pytest.approx(expected, rel=1e-12)
    assert softmax_minimum(labelled, 1.0, 1e9) == pytest.approx(math.log(3), rel=1e-6)


def test_softmax_on_two_mirrored_points() -> None:
    """Classes at 1 and -1: W = (w, -w), and log(1 + exp(-2w)) + decay w^2 is least."""
    labelled = label_by_counts(torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([1, 1]))
    grid = torch.linspace(0, 5, 2_000_001, dtype=torch.float64)
    expected = (torch.log1p(torch.exp(-2 * grid)) + 0.1 * grid.square()).min()
    assert softmax_minimum(labelled, 0.1, 0.0) == pytest.approx(float(expected), rel=1e-10)


def test_cosine_distance_of_axes() -> None:
    labelled = label_by_counts(torch.eye(4).double(), torch.tensor([2, 2]))
    assert cosine_distance(labelled) == pytest.approx(0.5)
