"""LogME and the H-score against slow restatements on the samples themselves."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import vci
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import finish
from ncscope.transfer import h_score, log_me
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


@pytest.mark.parametrize("scale", [100, 1e140, 1e-140])
def test_log_me_does_not_see_rotation_and_scale(scale):
    features, labels = blobs(60, 6, 3, seed=0)
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    plain, turned = (log_me(statistics(f, labels)) for f in (features, scale * features @ turn))
    torch.testing.assert_close(turned, plain, rtol=1e-9, atol=1e-9)


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
