"""Renormalised features: what renormalisation keeps, and what the loss is by singular values."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish
from ncscope_lab.surrogates.dynamics.central_path import (
    least_squares,
    least_squares_gradient,
    least_squares_loss,
)
from ncscope_lab.surrogates.dynamics.snr import (
    align,
    random_features,
    renormalise,
    snr_matrix,
    spectral_loss,
    split,
    spread_over_samples,
)

SIZES = [(2, 1, 3), (2, 5, 4), (4, 8, 6), (5, 4, 3), (3, 2, 2)]


def raw(k: int, d: int, n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(k + d + n)
    features = random_features(k, d, n, 1.0, generator)
    mixing = torch.randn(d, d, dtype=torch.float64, generator=generator)
    return mixing @ features + torch.randn(d, 1, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(("k", "d", "n"), SIZES)
def test_a_split_adds_up_and_its_parts_are_orthogonal(k: int, d: int, n: int) -> None:
    features = raw(k, d, n)
    parts = split(features, k)
    classes = spread_over_samples(parts.classes, n)
    whole = parts.mean[:, None] + classes + parts.within
    torch.testing.assert_close(whole, features)
    assert (classes @ parts.within.mT).norm() < 1e-12 * features.square().sum()
    assert parts.classes.sum(1).norm() < 1e-12 * features.norm()


@pytest.mark.parametrize(("k", "d", "n"), SIZES)
def test_renormalised_features_have_identity_covariance_and_stay(k: int, d: int, n: int) -> None:
    features = renormalise(raw(k, d, n), k)
    torch.testing.assert_close(split(features, k).covariance, torch.eye(d).double())
    torch.testing.assert_close(renormalise(features, k), features)
    assert features.mean(1).norm() < 1e-12


def test_renormalisation_takes_the_symmetric_root() -> None:
    features = raw(4, 8, 6)
    root = features - features.mean(1, keepdim=True)
    found = torch.linalg.lstsq(root.mT, renormalise(features, 4).mT).solution.mT
    torch.testing.assert_close(found, found.mT)
    assert torch.linalg.eigvalsh(found)[0] > 0


@pytest.mark.parametrize(("k", "d", "n"), [(4, 8, 6), (2, 5, 4), (3, 7, 9)])
def test_singular_values_are_those_of_the_metric(k: int, d: int, n: int) -> None:
    features = raw(k, d, n)
    moments = ClassMoments(k, d, statistics=frozenset({"scatter"}))
    moments.update(features.mT, torch.arange(k).repeat_interleave(n))
    from_metric = finish(moments)
    total = (
        from_metric.within
        + (from_metric.means - from_metric.global_mean).mT
        @ (from_metric.means - from_metric.global_mean)
        / k
    )
    centred = from_metric.means - from_metric.global_mean
    share = torch.linalg.eigvalsh(centred @ torch.linalg.solve(total, centred.mT) / k)
    expected = (k * share / (1 - share)).clamp(min=0).sqrt().flip(0)[: k - 1]
    torch.testing.assert_close(align(snr_matrix(features, k)).values, expected)


def test_decomposition_leaves_out_the_direction_of_the_sum() -> None:
    matrix = snr_matrix(raw(4, 8, 6), 4)
    found = align(matrix)
    assert found.values.shape == (3,)
    torch.testing.assert_close(found.left * found.values @ found.right.mT, matrix)
    assert found.right.sum(0).norm() < 1e-12


@pytest.mark.parametrize(("k", "d", "n"), SIZES)
def test_spectral_loss_is_the_loss_of_the_least_squares_classifier(k: int, d: int, n: int) -> None:
    features = raw(k, d, n)
    values = torch.zeros(k - 1, dtype=torch.float64)
    found = align(snr_matrix(features, k)).values
    values[: len(found)] = found
    parts = spectral_loss(values, k)
    torch.testing.assert_close(parts.nc1 + parts.nc23, least_squares_loss(features, k))
    torch.testing.assert_close(parts.nc1 + parts.nc23, (1 / (k + values**2)).sum() / 2)
    weight, _ = least_squares(features, k)
    nc1 = (weight @ split(features, k).within).square().sum() / (2 * k * n)
    torch.testing.assert_close(parts.nc1, nc1)


@pytest.mark.parametrize(("k", "d", "n"), SIZES)
def test_least_squares_is_the_minimum_and_its_gradient_autograd_s(k: int, d: int, n: int) -> None:
    features = raw(k, d, n).requires_grad_()
    loss = least_squares_loss(features, k)
    (expected,) = torch.autograd.grad(loss, features)
    torch.testing.assert_close(least_squares_gradient(features.detach(), k), expected)
    weight, bias = (part.requires_grad_() for part in least_squares(features.detach(), k))
    labels = spread_over_samples(torch.eye(k).double(), n)
    reached = (weight @ features + bias[:, None] - labels).square().sum() / (2 * k * n)
    torch.testing.assert_close(reached, loss)
    slopes = torch.autograd.grad(reached, (weight, bias))
    assert max(float(slope.abs().max()) for slope in slopes) < 1e-13


def test_the_gradient_stays_accurate_where_means_are_nearly_fitted() -> None:
    features = random_features(4, 8, 6, 1e6, torch.Generator().manual_seed(0))
    snr = align(snr_matrix(features, 4))
    moved = split(least_squares_gradient(features, 4), 4).classes
    rates = (snr.left.mT @ moved @ snr.right).diag()
    expected = -snr.values / (6 * (4 + snr.values**2) ** 2)
    torch.testing.assert_close(rates, expected, rtol=1e-8, atol=0.0)


def test_start_has_the_separation_asked_for() -> None:
    features = random_features(4, 8, 6, 0.3, torch.Generator().manual_seed(0))
    assert abs(align(snr_matrix(features, 4)).values.square().mean().sqrt() - 0.3) < 1e-12


def test_a_singular_covariance_is_refused() -> None:
    with pytest.raises(InputError, match=r"full rank.*at least dim / num_classes \+ 1 samples"):
        random_features(2, 5, 3, 1.0, torch.Generator().manual_seed(0))
