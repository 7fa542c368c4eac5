"""Which directions of the features a probe sees: all that vary, whatever their units."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.transfer import STRENGTHS, choose_probe, fit_logistic, logistic_path, top1_accuracy
from ncscope.transfer.probes.logistic import PrincipalAxes
from tests.pace import others_slow
from tests.transfer.newton import least_objective
from tests.transfer.samples import blobs


def beside_noise(scale):
    """Columns of noise at a scale and its root, and one that tells the two classes apart."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 2
    noise = torch.randn(120, 4, generator=draws, dtype=torch.float64)
    scales = torch.tensor([0.1, scale**0.5, scale, scale], dtype=torch.float64)
    features = noise * scales
    features[:, 0] += labels
    return features, labels


@pytest.mark.parametrize("scale", others_slow([1.0, 1e7, 3e7, 1e12, 1e16, 1e100], 1.0, 3e7, 1e100))
def test_the_column_that_tells_is_seen_beside_noise_of_any_scale(scale):
    features, labels = beside_noise(scale)
    fit = fit_logistic(features, labels, 0.01)
    assert top1_accuracy(fit.probe.predict(features), labels) == 1
    assert fit.objective == pytest.approx(least_objective(features, labels, 0.01), rel=1e-9)
    halves = features[:80], labels[:80], features[80:], labels[80:]
    assert max(choose_probe(*halves, strengths=STRENGTHS[::12]).validation.values()) == 1


@pytest.mark.parametrize(
    ("count", "orders"),
    [(12, 3), pytest.param(120, 10, marks=pytest.mark.slow)],  # 12 < 20 features
)
def test_scales_far_apart_leave_the_objective_its_minimum(count, orders):
    features, labels = blobs(count, 20, 3, seed=1)
    wild = features * torch.logspace(-orders, orders, 20, dtype=torch.float64)
    for fit in logistic_path(wild, labels, [1e6, 1e2], tolerance=1e-12):
        known = least_objective(wild, labels, fit.strength)
        assert fit.objective == pytest.approx(known, rel=1e-9)


def test_a_small_difference_of_large_columns_is_seen():
    features, labels = beside_noise(1e9)
    mixed = torch.stack([features[:, 2], features[:, 2] + features[:, 0]], 1)
    assert top1_accuracy(fit_logistic(mixed, labels, 1e-3).probe.predict(mixed), labels) == 1


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_what_does_not_vary_or_vary_anew_has_no_axis(scale):
    features, _ = blobs(40, 3, 2, seed=0)
    features[:, 0] *= scale
    constant = torch.full((40, 1), 0.1, dtype=torch.float64)  # whose mean rounds
    repeated = torch.cat([features, features, constant, 1e12 * constant], 1)
    assert len(PrincipalAxes(repeated).columns) == 4
    few = torch.cat([features[:2], features[:2]])
    assert len(PrincipalAxes(few).columns) == 2


def test_axes_are_orthonormal_and_coordinates_those_of_the_features():
    features, _ = blobs(40, 6, 2, seed=0)
    wild = features * 10.0 ** torch.tensor([0, 9, -9, 3, 20, 1])
    axes = PrincipalAxes(wild)
    weight, bias = axes.rotate_back(torch.eye(7, dtype=torch.float64))
    torch.testing.assert_close(
        weight @ weight.mT, torch.diag(torch.tensor([1.0] * 6 + [0])).double()
    )
    scores = wild @ weight.mT + bias
    torch.testing.assert_close(scores, axes.columns.mT, rtol=1e-9, atol=1e-9)


def test_features_whose_squares_are_not_finite_are_refused():
    features, labels = blobs(40, 3, 2, seed=0)
    with pytest.raises(
        InputError, match="at most 3e\\+144 for a logistic probe, found one of size"
    ):
        fit_logistic(1e160 * features, labels, 1.0)
    with pytest.raises(InputError, match="at most 3e\\+144"):
        choose_probe(features, labels, 1e160 * features, labels)


@pytest.mark.parametrize("size", [1e-200, 1e-310])
def test_features_too_small_for_the_penalty_leave_the_bias(size):
    """Their weights, n times the size over λ, add nothing to any score."""
    features, labels = blobs(40, 3, 2, seed=0)
    labels[:3] = 0
    fit = fit_logistic(size * features, labels, 1e-6)
    shares = torch.softmax(fit.probe.scores(size * features), 1)
    known = torch.bincount(labels).double() / 40
    torch.testing.assert_close(shares, known.expand_as(shares))
