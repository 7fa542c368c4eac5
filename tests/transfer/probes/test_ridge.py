"""The closed form against normal equations on the samples themselves."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import linear_probe_mse
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish
from ncscope.transfer import ridge_path, ridge_probe
from tests.transfer.samples import blobs


def weighted(dim: int, prior: str):
    """Samples of unequal classes, their weights under a prior, and the statistics."""
    features, labels = blobs(60, dim, 4, seed=dim)
    keep = (labels < 2) | (torch.arange(60) < 30)
    features, labels = features[keep] + 5, labels[keep]
    counts = torch.bincount(labels)
    moments = ClassMoments(4, dim, prior=prior, class_counts=counts)
    moments.update(features, labels)
    share = counts.double() / counts.sum() if prior == "empirical" else torch.full((4,), 0.25)
    return features, labels, (share / counts)[labels].double(), finish(moments)


def by_normal_equations(features, labels, weights, strength):
    n, d = features.shape
    extended = torch.cat([features, torch.ones(n, 1).double()], 1)
    penalty = strength * torch.eye(d + 1).double()
    penalty[d, d] = 0
    left = extended.mT @ (weights[:, None] * extended) + penalty
    right = extended.mT @ (weights[:, None] * torch.eye(4).double()[labels])
    return torch.linalg.solve(left, right).mT


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("dim", [3, 70])
def test_the_closed_form_solves_the_normal_equations(dim, prior):
    features, labels, weights, stats = weighted(dim, prior)
    strengths = [1e3, 1.0, 1e-3]
    for strength, probe in zip(strengths, ridge_path(stats, strengths), strict=True):
        known = by_normal_equations(features, labels, weights, strength)
        torch.testing.assert_close(probe.weight, known[:, :-1], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(probe.bias, known[:, -1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dim", [3, 70])
def test_without_penalty_its_error_is_the_linear_probe_loss(dim):
    features, labels, weights, stats = weighted(dim, "empirical")
    probe = ridge_probe(stats, 0.0)
    error = (probe.scores(features) - torch.eye(4).double()[labels]).square().sum(1)
    known = linear_probe_mse(stats, discriminants(stats))
    torch.testing.assert_close((weights * error).sum() / 2, known, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", [1e7, 1e12, 1e100])
@pytest.mark.parametrize("strength", [0.0, 1e-3])
def test_a_column_that_tells_is_seen_beside_noise_of_any_scale(scale, strength):
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 2
    noise, blur = torch.randn(2, 120, generator=draws, dtype=torch.float64)
    signal = labels + 0.1 * blur
    moments = ClassMoments(2, 2)
    moments.update(torch.stack([scale * noise, signal], 1), labels)
    probe = ridge_probe(finish(moments), strength)
    # Of large noise the penalty sees nothing: a regression on the signal less its share of noise.
    noise, left = noise - noise.mean(), signal - signal.mean()
    left = left - noise * (noise @ left) / (noise @ noise)
    slope = (left @ labels.double()) / (left @ left + 120 * strength)
    torch.testing.assert_close(probe.weight[1, 1], slope, rtol=1e-9, atol=0)


@pytest.mark.parametrize("value", [0.1, 1e9 / 7])
@pytest.mark.parametrize("strength", [0.0, 1e-3])
def test_the_rounding_of_a_constant_feature_is_no_variation(value, strength):
    features, labels = blobs(700, 3, 2, seed=0)
    probes = []
    for column in (torch.full((700, 1), value, dtype=torch.float64), torch.zeros(700, 1)):
        moments = ClassMoments(2, 4)
        moments.update(torch.cat([features, column], 1), labels)
        probes.append(ridge_probe(finish(moments), strength))
    torch.testing.assert_close(probes[0].weight, probes[1].weight, rtol=1e-9, atol=1e-12)


def test_bad_input_is_refused():
    stats = weighted(3, "empirical")[3]
    with pytest.raises(InputError, match="at least 0"):
        ridge_probe(stats, -1.0)
    bare = ClassMoments(2, 1, statistics=[])
    bare.update([[0.0], [1.0]], [0, 1])
    with pytest.raises(InputError, match="scatter"):
        ridge_probe(finish(bare), 1.0)


@pytest.mark.parametrize(("apart", "constant"), [(2.0**-49, True), (2.0**-48, False)])
def test_what_the_rounding_of_the_mean_explains_is_no_variation(apart, constant):
    """Of four samples near 1 the rounding is four units, 2^-50: a deviation from the mean."""
    second = torch.tensor([1, 1, 1 - apart, 1 - apart], dtype=torch.float64)
    features = torch.stack([torch.tensor([1.0, 2, -1, -2]).double(), second], 1)
    moments = ClassMoments(2, 2)
    moments.update(features, torch.tensor([0, 0, 1, 1]))
    found = ridge_probe(finish(moments), strength=0.0)
    assert (found.weight[:, 1] == 0).all() == constant
