"""The path ends at scikit-learn's minimum, at every strength, whatever the features look like."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from ncscope.errors import InputError
from ncscope.transfer import STRENGTHS, fit_logistic, logistic_path
from tests.transfer.newton import least_objective
from tests.transfer.samples import blobs


def objective(weight, bias, features, labels, strength):
    """Written from the formula, with autograd's gradient."""
    scores = features @ weight.mT + bias
    loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
    return loss + strength / 2 * weight.square().sum()


def at(fit, features, labels):
    parts = [part.clone().requires_grad_() for part in (fit.probe.weight, fit.probe.bias)]
    value = objective(*parts, features, labels, fit.strength)
    return value.detach(), torch.autograd.grad(value, parts)


@pytest.mark.parametrize("classes", [2, 4])
def test_coefficients_and_objective_are_those_of_scikit_learn(classes):
    features, labels = blobs(120, 6, classes, seed=classes)
    for strength in (100.0, 1.0, 0.03):
        fit = fit_logistic(features, labels, strength, tolerance=1e-13)
        known = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000)
        known.fit(features.numpy(), labels.numpy())
        # scikit-learn writes two classes as one row, the difference of ours
        weight = fit.probe.weight if classes > 2 else fit.probe.weight[1:] - fit.probe.weight[:1]
        theirs = torch.from_numpy(known.coef_)
        if classes == 2:
            known.set_params(C=2 / strength).fit(features.numpy(), labels.numpy())
            theirs = torch.from_numpy(known.coef_)
        assert (weight - theirs).norm() <= 1e-4 * theirs.norm()
        if classes > 2:
            least = objective(
                theirs, torch.from_numpy(known.intercept_), features, labels, strength
            )
            assert abs(at(fit, features, labels)[0] / least - 1) <= 1e-8


def test_the_gradient_vanishes_all_along_the_path():
    features, labels = blobs(90, 5, 3, seed=0)
    fits = list(logistic_path(features, labels, STRENGTHS[::4], tolerance=1e-12))
    assert [fit.strength for fit in fits] == sorted(STRENGTHS[::4], reverse=True)
    for fit in fits:
        value, gradient = at(fit, features, labels)
        assert abs(value - fit.objective) <= 1e-9 * value
        # strongly convex in the weight: the gap is below |g|^2 / (2 strength)
        if fit.strength >= 1e-3:
            assert gradient[0].norm() ** 2 <= 2 * fit.strength * 1e-8 * value
        assert gradient[1].abs().max() <= 1e-5 * value


def separable():
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    return torch.eye(3)[labels] + 0.1 * torch.randn(60, 3, generator=draws), labels


def noise():
    draws = torch.Generator().manual_seed(0)
    return torch.randn(200, 20, generator=draws), torch.arange(200) % 4


def digits():
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images / 16), torch.from_numpy(labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    "samples",
    [
        partial(blobs, 90, 5, 3, seed=0),
        partial(blobs, 90, 5, 2, seed=1),
        partial(blobs, 30, 50, 3, seed=2),
        separable,
        noise,
        pytest.param(digits, marks=pytest.mark.slow),
    ],
    ids=["overlapping", "two classes", "n < d", "separable", "noise", "digits"],
)
def test_each_of_the_97_is_within_what_the_default_tolerance_is_said_to_give(samples):
    features, labels = samples()
    loose = [fit.objective for fit in logistic_path(features, labels, STRENGTHS)]
    path = logistic_path(features, labels, STRENGTHS, tolerance=1e-10)
    least = np.array([fit.objective for fit in path])
    above = np.array(loose) / least - 1
    assert above.min() >= -1e-8
    assert above.max() <= 4e-5
    assert np.median(above) <= 4e-6


def test_a_warm_fit_is_the_cold_one():
    features, labels = blobs(90, 5, 3, seed=1)
    path = logistic_path(features, labels, STRENGTHS[::4], tolerance=1e-12)
    warm = {fit.strength: fit for fit in path}
    for strength in (STRENGTHS[32], STRENGTHS[64]):
        cold = fit_logistic(features, labels, strength, tolerance=1e-12)
        assert warm[strength].objective == pytest.approx(cold.objective, rel=1e-8)


def test_a_bad_offset_and_bad_scales_change_nothing():
    """Shift by 1e4, features of scales from 0.01 to 100: the penalty follows the scales."""
    features, labels = blobs(100, 4, 3, seed=2)
    plain = fit_logistic(features, labels, 1.0, tolerance=1e-13).probe
    moved = fit_logistic(features + 1e4, labels, 1.0, tolerance=1e-13).probe
    torch.testing.assert_close(moved.weight, plain.weight, rtol=1e-5, atol=1e-6)
    assert torch.equal(moved.predict(features + 1e4), plain.predict(features))
    scales = torch.tensor([1e-2, 1.0, 10.0, 1e2], dtype=torch.float64)
    value, gradient = at(
        fit_logistic(features * scales, labels, 0.1, tolerance=1e-13), features * scales, labels
    )
    assert (gradient[0] / scales).abs().max() <= 1e-4 * value


def test_more_features_than_samples_and_directions_without_variance():
    features, labels = blobs(30, 50, 3, seed=3)
    features[:, 7] = 2.0
    fit = fit_logistic(features, labels, 0.5, tolerance=1e-13)
    value, gradient = at(fit, features, labels)
    assert gradient[0].norm() ** 2 <= 2 * 0.5 * 1e-9 * value
    assert fit.probe.weight[:, 7].abs().max() <= 1e-12


def test_float32_features_are_fitted_in_float64_and_labels_kept():
    features, labels = blobs(60, 4, 3, seed=4)
    small = features.float()
    probe = fit_logistic(small, labels * 10, 1.0).probe
    assert probe.weight.dtype == torch.float64
    assert probe.classes.tolist() == [0, 10, 20]
    assert set(probe.predict(small).tolist()) <= {0, 10, 20}
    torch.testing.assert_close(probe.weight, fit_logistic(small.double(), labels, 1.0).probe.weight)


@pytest.mark.slow
def test_the_path_costs_far_less_than_its_fits_one_by_one():
    features, labels = blobs(200, 10, 5, seed=5)
    passes = sum(fit.passes for fit in logistic_path(features, labels, STRENGTHS))
    some = STRENGTHS[::16]
    cold = [fit_logistic(features, labels, s, tolerance=1e-6).passes for s in some]
    assert passes < len(STRENGTHS) * sum(cold) / len(cold) / 4


@pytest.mark.slow
def test_the_path_over_digits_costs_a_few_times_one_fit():
    """It takes 235 passes, and the fits 30 and 60."""
    features, labels = digits()
    assert sum(fit.passes for fit in logistic_path(features, labels, STRENGTHS)) < 250
    assert fit_logistic(features, labels, STRENGTHS[44], tolerance=1e-6).passes < 33
    assert fit_logistic(features, labels, STRENGTHS[44]).passes < 66


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fit_is_as_close_to_the_minimum_as_it_says(classes, seed):
    """Unscaled, correlated and hard to tell apart, down to the weakest penalty."""
    features, labels = blobs(200, 6, classes, seed=seed)
    draws = torch.Generator().manual_seed(seed)
    features += 30 * torch.randn(200, 1, generator=draws, dtype=torch.float64)
    features = features * torch.logspace(-3, 3, 6, dtype=torch.float64)
    for strength in (1e-6, 1e-3, 1.0, 1e3):
        fit = fit_logistic(features, labels, strength)
        known = least_objective(features, labels, strength)
        assert fit.objective == pytest.approx(known, rel=1e-11)


@pytest.mark.parametrize("size", [1.0, 1e6, 1e20])
def test_where_the_loss_all_but_vanishes_the_minimum_is_still_found(size):
    """Two samples at ± a size: one number is sought, the margin m of either."""

    def slope(margin):  # of 2 log(1 + exp(-m)) + λ w^2, m = 2 w size, over 2
        return strength * margin / (4 * size**2) - 1 / (1 + np.exp(margin))

    for strength in (1.0, 1e-3, 1e-6):
        margin = brentq(slope, 0, 700, xtol=1e-13)
        known = 2 * np.log1p(np.exp(-margin)) + strength * (margin / (2 * size)) ** 2
        fit = fit_logistic([[-size], [size]], [0, 1], strength)
        assert fit.objective == pytest.approx(known, rel=1e-9, abs=0)


def test_the_path_knows_its_weights_where_two_moves_are_all_but_parallel():
    """Two weights are all there is to find: the last minima lie on the line to the next."""
    features, labels = blobs(60, 5, 3, seed=3)
    features, labels = features[:, :1], labels % 2
    for fit in logistic_path(features, labels, STRENGTHS):
        value, _ = at(fit, features, labels)
        assert fit.objective == pytest.approx(float(value), rel=1e-9)
        if fit.strength in STRENGTHS[::24]:
            assert value <= (1 + 1e-5) * least_objective(features, labels, fit.strength)


def test_well_separated_classes_have_a_path_to_the_end():
    """At its strong end nothing moves; at its weak end the weights grow like the logarithm."""
    features, labels = separable()
    fits = list(logistic_path(features, labels, STRENGTHS))
    assert all(float(fit.probe.weight.norm()) < 200 for fit in fits)
    assert torch.equal(fits[-1].probe.predict(features), labels)
    value, gradient = at(fits[-1], features.double(), labels)
    assert max(part.abs().max() for part in gradient) <= 1e-2 * value


def test_nothing_varies():
    probe = fit_logistic(torch.ones(6, 3), torch.tensor([0, 0, 0, 0, 1, 1]), 1.0).probe
    shares = torch.softmax(probe.scores(torch.ones(1, 3)), 1)
    torch.testing.assert_close(shares, torch.tensor([[2 / 3, 1 / 3]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("features", "labels", "strength", "said"),
    [
        (np.ones((3, 2)), [0, 0, 0], 1.0, "two classes"),
        ([[np.nan], [1.0]], [0, 1], 1.0, "NaN or Inf in 1 of 2 rows"),
        ([[0.0], [1.0]], [0, -1], 1.0, "label -1"),
        ([[0.0], [1.0]], [0, 1], 0.0, "strength as a finite number above 0"),
        ([[0.0], [1.0]], [0, 1], float("inf"), "strength as a finite number above 0"),
    ],
)
def test_bad_input_is_refused(features, labels, strength, said):
    with pytest.raises(InputError, match=said):
        fit_logistic(features, labels, strength)


@pytest.mark.gpu
def test_on_a_gpu_the_same():
    features, labels = blobs(90, 5, 3, seed=6)
    here = fit_logistic(features, labels, 0.1, tolerance=1e-12).probe
    there = fit_logistic(features.cuda(), labels.cuda(), 0.1, tolerance=1e-12).probe
    assert there.weight.is_cuda
    torch.testing.assert_close(there.weight.cpu(), here.weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("scale", [1e6, 1e12])
def test_classes_far_apart_are_fitted_down_to_the_rounding(scale):
    features, labels = blobs(40, 6, 3, seed=0)
    apart = scale * (features + 9 * torch.eye(6)[labels])
    for fit in logistic_path(apart, labels, [1.0, 1e-3, 1e-6]):
        assert torch.equal(fit.probe.predict(apart), labels)
        assert fit.objective < 1e-6


def test_a_minimum_that_is_not_reached_is_said(monkeypatch):
    monkeypatch.setattr("ncscope.transfer.probes.logistic._MOST_ITERATIONS", 3)
    features, labels = blobs(60, 5, 3, seed=0)
    with pytest.raises(InputError, match=r"within 1e-12 .* at strength 0.01, found none in 3 iter"):
        fit_logistic(features, labels, 0.01)
