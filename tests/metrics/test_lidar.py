"""LiDAR: an absolute ridge, whose effect is known where the scatters are diagonal."""

import numpy as np
import pytest

import ncscope
from ncscope.metrics.registry import METRICS

from ..reference.collapse import reference_on_request
from ..reference.instances import INSTANCES, rotation

BETWEEN, WITHIN = np.array([9.0, 4.0, 1.0]), np.array([1.0, 0.04, 0.0, 2.0])


def lidar(features: np.ndarray, labels: np.ndarray, **options) -> float:
    report = ncscope.measure(features, labels, groups=["lidar"], **options)
    assert set(report) == {"lidar"}
    return report["lidar"]


def crossed(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Six images, two on each of three axes, whose views leave them along the four axes."""
    d = len(WITHIN)
    axes = np.vstack([np.eye(d), -np.eye(d)])
    means = (axes * np.sqrt(3 * np.pad(BETWEEN, (0, 1))))[[0, 1, 2, 4, 5, 6]]
    views = axes * np.sqrt(d * WITHIN)
    features = (means[:, None] + views[None]).reshape(-1, d) * scale
    return features @ rotation(np.random.default_rng(0), d), np.repeat(np.arange(6), len(views))


def rank(eigenvalues: np.ndarray) -> float:
    shares = eigenvalues / eigenvalues.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


@pytest.mark.parametrize("scale", [1e-60, 1e-6, 1e-3, 1.0, 10.0, 1e3])
def test_diagonal_scatters(scale: float) -> None:
    squared = scale * scale
    wanted = rank(squared * BETWEEN / (squared * WITHIN[:3] + 1e-4))
    assert lidar(*crossed(scale)) == pytest.approx(wanted, rel=1e-9)


def test_small_features_have_the_rank_of_the_scatter_between_classes() -> None:
    assert lidar(*crossed(1e-9)) == pytest.approx(rank(BETWEEN), rel=1e-9)


def test_a_ridge_below_the_rounding_of_the_features_is_no_answer() -> None:
    features, labels = crossed(1e9)
    report = ncscope.measure(features, labels, groups=["lidar"])
    assert np.isnan(report["lidar"])
    assert any("hides the ridge" in note for note in report.notes)


def test_units_that_differ() -> None:
    instance = INSTANCES["imbalanced"]()
    features = instance.features * np.logspace(-3, 3, instance.features.shape[1])
    wanted = reference_on_request(features, instance.labels)["lidar"]
    assert lidar(features, instance.labels) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("dim", [9, pytest.param(40, marks=pytest.mark.slow)])
def test_few_views_in_many_dimensions(dim: int) -> None:
    """The scatter is singular, and is kept as rows in 40 dimensions."""
    generator = np.random.default_rng(dim)
    labels = np.repeat(np.arange(4), 2)
    features = generator.normal(size=(4, dim))[labels] + 0.3 * generator.normal(size=(8, dim))
    wanted = reference_on_request(features, labels)["lidar"]
    assert lidar(features, labels) == pytest.approx(wanted, rel=1e-9)


def test_shift_and_rotation_change_nothing() -> None:
    instance = INSTANCES["balanced"]()
    turn = rotation(np.random.default_rng(1), instance.features.shape[1])
    moved = instance.features @ turn + 3.0
    found = lidar(moved, instance.labels)
    assert found == pytest.approx(lidar(instance.features, instance.labels), rel=1e-9)


def test_only_its_key_selects_it() -> None:
    instance = INSTANCES["balanced"]()
    samples = instance.features, instance.labels
    assert "lidar" not in ncscope.measure(*samples, groups=["spectra"])
    report = ncscope.measure(*samples)
    assert "lidar" not in report
    with pytest.raises(KeyError, match="must be asked for by its key"):
        report["lidar"]


def test_says_why_it_has_no_interval() -> None:
    labels = np.repeat(np.arange(3), 40)
    features = np.eye(3)[labels] + np.random.default_rng(0).normal(size=(120, 3))
    report = ncscope.measure(features, labels, groups=["lidar", "vci"], uncertainty=True)
    assert set(report.standard_errors) == {"vci"}
    assert f"no standard error of lidar: {METRICS['lidar'].no_interval}" in report.notes
