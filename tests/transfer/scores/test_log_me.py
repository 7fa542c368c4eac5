"""LogME and the H-score against slow restatements on the samples themselves."""

import math
from contextlib import nullcontext
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar

from ncscope.errors import InputError
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import vci
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish
from ncscope.transfer import h_score, log_me, log_me_targets
from ncscope.transfer.uneven_scales import check_scale
from tests.pace import others_slow
from tests.transfer.samples import blobs


def statistics(features, labels):
    moments = ClassMoments(int(labels.max()) + 1, features.shape[1])
    moments.update(features, labels)
    return finish(moments)


def evidence(features: np.ndarray, target: np.ndarray) -> float:
    """The greatest log density of the labels: normal, with the features' Gram as covariance."""
    n = len(target)

    def loss(logs: np.ndarray) -> float:
        alpha, beta = np.exp(logs)
        covariance = np.eye(n) / beta + features @ features.T / alpha
        exponent = target @ np.linalg.solve(covariance, target)
        return (exponent + np.linalg.slogdet(2 * np.pi * covariance)[1]) / 2

    starts = [(a + 0.1, b) for a in range(-4, 13, 2) for b in range(-3, 12, 2)]
    start = min(starts, key=lambda logs: loss(np.array(logs)))
    options = {"xatol": 1e-7, "fatol": 1e-10}
    return -minimize(loss, start, method="Nelder-Mead", options=options).fun / n


@pytest.mark.parametrize(("count", "dim", "classes"), [(40, 5, 3), (24, 30, 2)])
def test_log_me_is_the_mean_evidence(count, dim, classes):
    draws = torch.Generator().manual_seed(dim)
    features, labels = blobs(count, dim, classes, seed=dim)
    labels = labels[torch.randperm(count, generator=draws)] if dim > count else labels
    targets = np.eye(classes)[labels.numpy()].T
    known = np.mean([evidence(features.numpy(), target) for target in targets])
    assert float(log_me(statistics(features, labels))) == pytest.approx(known, abs=1e-6)


@pytest.mark.parametrize(("count", "dim"), [(40, 5), (24, 30)])
@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_log_me_of_targets_is_the_mean_evidence(count, dim, kind):
    draws = torch.Generator().manual_seed(dim)
    features, targets = (
        torch.randn(count, n, generator=draws, dtype=torch.float64) for n in (dim, 3)
    )
    targets[:, 0] += 3 * features[:, 0]
    given = targets > 0.3 if kind == "labels" else targets
    known = [evidence(features.numpy(), column) for column in given.double().numpy().T]
    assert float(log_me_targets(features, given)) == pytest.approx(np.mean(known), abs=1e-6)
    assert float(log_me_targets(features, given[:, 0])) == pytest.approx(known[0], abs=1e-6)


def test_log_me_of_one_hot_targets_is_that_of_labels():
    features, labels = blobs(60, 6, 3, seed=0)
    one_hot = torch.eye(3)[labels]
    plain = log_me(statistics(features, labels))
    torch.testing.assert_close(log_me_targets(features, one_hot), plain, rtol=1e-12, atol=1e-12)
    # Units: those of the features do not matter, those of a target add their logarithm.
    small = log_me_targets(1e-200 * features, 1e200 * one_hot.double())
    assert float(small) == pytest.approx(float(plain) - 200 * math.log(10), rel=1e-12)


def test_log_me_of_targets_beside_the_authors_code():
    """Values of github.com/thuml/LogME, LogME(regression=True).fit, at 56551ca in float64.

    Its iteration stops early, at most 2e-4 below the maximum where no feature explains a target.
    """
    features, targets = waves(60, 5)
    for given, theirs, gap in (
        (targets[:, 0], -1.2697221359040118, 1e-9),
        (targets, -1.85946021672327, 2e-4),
        (targets > 0.1, -1.114074554523483, 2e-4),
    ):
        assert 0 <= float(log_me_targets(features, given)) - theirs < gap


def waves(n, d):
    """Features without a random draw, and three targets: nearly linear, apart, and a square."""
    features = np.sin(np.arange(n * d, dtype=float) ** 2).reshape(n, d)
    line = features @ [1, 2, 0, 0, -1] + np.cos(np.arange(n) ** 2)
    return features, np.stack([line, 10 * np.sin(3 + np.arange(n)), features[:, 0] ** 2], 1)


@pytest.mark.parametrize(
    ("features", "targets", "message"),
    [
        (np.ones((4, 2)), [[1, 0]] * 4, "found zeros in column 1; leave out columns"),
        (np.ones((4, 2)), [1, 2, math.nan, 3], r"finite targets, found NaN or Inf in 1 of 4 rows"),
        (np.ones((4, 2)), [1, 2, 3], r"targets of shape \(4, t\)"),
        (np.ones((0, 2)), np.ones((0, 1)), "at least one sample, found none"),
    ],
)
def test_log_me_refuses_targets(features, targets, message):
    with pytest.raises(InputError, match=message):
        log_me_targets(features, targets)


@pytest.mark.parametrize("scale", [100, 1e140, 1e-140])
def test_log_me_does_not_see_rotation_and_scale(scale):
    features, labels = blobs(60, 6, 3, seed=0)
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    plain, turned = (log_me(statistics(f, labels)) for f in (features, scale * features @ turn))
    torch.testing.assert_close(turned, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [2.0**400, 2.0**-400])
def test_a_power_of_two_changes_no_digit_of_log_me(scale):
    features, labels = blobs(60, 6, 3, seed=0)
    features[:, 0] *= 1e9
    plain, scaled = (log_me(statistics(rows, labels)) for rows in (features, scale * features))
    assert torch.equal(plain, scaled)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize("score", [log_me, h_score])
def test_what_squares_cannot_hold_is_said(score, scale):
    features, labels = blobs(60, 6, 3, seed=0)
    stats = statistics(features, labels)
    scaled = replace(stats, offsets=scale * stats.offsets, pilot=scale * stats.pilot)
    with pytest.raises(InputError, match=r"between 3e-145 and 3e\+144 in size, found class means"):
        score(scaled)


@pytest.mark.parametrize("scale", others_slow([1.0, 1e7, 1e12, 1e100], 1.0, 1e12))
def test_log_me_sees_a_column_beside_noise_of_any_scale(scale):
    """Against the same formula in 250 digits, by an inverse and a determinant."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    noise, blur = torch.randn(2, 60, generator=draws, dtype=torch.float64)
    features = torch.stack([scale * noise, labels + 0.1 * blur], 1)
    with mpmath.workdps(250):
        rows = mpmath.matrix(features.tolist())
        second = rows.T * rows
        known = [
            -best_profile(rows, second, [mpmath.mpf(int(y == c)) for y in labels]) / 2
            for c in (0, 1)
        ]
    assert float(log_me(statistics(features, labels))) == pytest.approx(np.mean(known), abs=1e-7)


def best_profile(rows, second, target):
    """1 + log 2 pi + log s + log det(1 + F'F / ratio) / n at its least, in many digits."""
    n, y = rows.rows, mpmath.matrix(target)
    pulled = rows.T * y

    def profile(log_ratio):
        ratio = mpmath.exp(log_ratio)
        ridge = second + ratio * mpmath.eye(2)
        left = (y.T * y)[0] - (pulled.T * mpmath.lu_solve(ridge, pulled))[0]
        loss = mpmath.log(left / n) + mpmath.log(mpmath.det(ridge / ratio)) / n
        return float(1 + mpmath.log(2 * mpmath.pi) + loss)

    centre = float(mpmath.log(mpmath.det(second)) - mpmath.log(second[0, 0]))
    grid = [centre + step for step in np.arange(-20, 500 if second[0, 0] > 1e50 else 60, 1.0)]
    start = min(grid, key=profile)
    return minimize_scalar(profile, bounds=(start - 1, start + 1), options={"xatol": 1e-9}).fun


def test_a_column_too_small_to_be_squared_counts_as_zero():
    features, labels = blobs(60, 6, 3, seed=0)
    found = []
    for size in (1e-160, 0.0):
        rows = features.clone()
        rows[:, 0] *= size
        found.append(log_me(statistics(rows, labels)))
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)


@pytest.mark.parametrize("samples", [12, 200])
def test_labels_that_are_a_linear_function_are_left_over_but_for_rounding(samples):
    """One-hot features: every class's labels are one of them."""
    labels = torch.arange(samples) % 4
    found = float(log_me(statistics(torch.eye(4, dtype=torch.float64)[labels], labels)))
    eps, share = torch.finfo(torch.float64).eps, 1 / 4

    def profile(log_ratio):
        ratio = np.exp(log_ratio)  # to the size of a class
        left = share * (eps + ratio / (1 + ratio))
        return np.log(left) + 4 / samples * np.log1p(1 / ratio)

    least = minimize_scalar(profile, bounds=(-60, 0), options={"xatol": 1e-10}).fun
    assert found == pytest.approx(-(1 + np.log(2 * np.pi) + least) / 2, abs=1e-6)


def test_features_that_are_all_zero_say_nothing():
    labels = torch.tensor([0, 0, 0, 1])
    found = float(log_me(statistics(torch.zeros(4, 3, dtype=torch.float64), labels)))
    known = [-(1 + np.log(2 * np.pi * share)) / 2 for share in (3 / 4, 1 / 4)]
    assert found == pytest.approx(np.mean(known))


def test_h_score_is_the_trace_and_the_complement_of_vci():
    features, labels = blobs(50, 8, 4, seed=1)
    means = torch.stack([features[labels == c].mean(0) for c in range(4)])[labels]
    total, between = (np.cov(rows.numpy().T, bias=True) for rows in (features, means))
    stats = statistics(features, labels)
    assert float(h_score(stats)) == pytest.approx(np.trace(np.linalg.pinv(total) @ between))
    assert float(h_score(stats)) == pytest.approx(float(3 * (1 - vci(stats, discriminants(stats)))))


@pytest.mark.parametrize(
    ("size", "refused"), [(480, False), (-480, False), (481, True), (-481, True)]
)
def test_sizes_up_to_the_ends_are_taken(size, refused):
    features, labels = blobs(60, 6, 3, seed=0)
    stats = statistics(features, labels)
    factor = 2.0**size / stats.means.abs().max()
    stats = replace(stats, offsets=stats.offsets * factor, pilot=stats.pilot * factor)
    with pytest.raises(InputError) if refused else nullcontext():
        check_scale(stats)
    check_scale(replace(stats, offsets=0 * stats.offsets, pilot=0 * stats.pilot))
    with pytest.raises(InputError, match="a variance of inf"):
        check_scale(
            replace(
                stats,
                offsets=0 * stats.offsets,
                pilot=0 * stats.pilot,
                class_traces=math.inf * stats.class_traces,
            )
        )
