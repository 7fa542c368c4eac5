"""Choosing the strength, against scikit-learn doing the same."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from ncscope.errors import InputError
from ncscope.transfer import (
    STRENGTHS,
    choose_probe,
    mean_per_class_accuracy,
    scale_strengths,
    top1_accuracy,
)
from ncscope.transfer.probes.logistic import logistic_path
from tests.transfer.samples import blobs


def test_the_strengths_are_the_papers():
    assert len(STRENGTHS) == 97
    np.testing.assert_allclose(STRENGTHS, np.logspace(-6, 6, 97), rtol=1e-12)


def split_digits():
    images, labels = load_digits(return_X_y=True)
    rest, test, y_rest, y_test = train_test_split(
        images / 16, labels, test_size=0.2, stratify=labels, random_state=0
    )
    halves = train_test_split(rest, y_rest, test_size=0.2, stratify=y_rest, random_state=0)
    return *halves, test, y_test


@pytest.mark.slow
def test_on_digits_the_accuracy_is_scikit_learns():
    train, held_out, y_train, y_held_out, test, y_test = split_digits()
    chosen = choose_probe(train, y_train, held_out, y_held_out)
    both, labels = np.concatenate([train, held_out]), np.concatenate([y_train, y_held_out])
    known = LogisticRegression(C=1 / chosen.strength, tol=1e-6, max_iter=5000).fit(both, labels)
    predicted = chosen.probe.predict(torch.from_numpy(test))
    mine = top1_accuracy(predicted, torch.from_numpy(y_test))
    assert abs(mine - known.score(test, y_test)) <= 0.001
    # and on the way, at the strength that was chosen and at a far stronger one
    for strength in (chosen.strength, STRENGTHS[72]):
        known = LogisticRegression(C=1 / strength, tol=1e-6, max_iter=5000).fit(train, y_train)
        score = known.score(held_out, y_held_out)
        assert chosen.validation[strength] == pytest.approx(score, abs=0.001)


@pytest.mark.slow
def test_over_all_strengths_scikit_learn_comes_to_the_same_accuracy_on_digits():
    train, held_out, y_train, y_held_out, test, y_test = split_digits()
    known = LogisticRegression(tol=1e-5, max_iter=10_000, warm_start=True)
    judged = {}
    for strength in sorted(STRENGTHS, reverse=True):
        known.set_params(C=1 / strength).fit(train, y_train)
        loss = log_loss(y_held_out, known.predict_proba(held_out))
        judged[strength] = known.score(held_out, y_held_out), -loss
    best = max(judged, key=lambda strength: judged[strength])
    both, labels = np.concatenate([train, held_out]), np.concatenate([y_train, y_held_out])
    theirs = LogisticRegression(C=1 / best, tol=1e-6, max_iter=10_000).fit(both, labels)
    chosen = choose_probe(train, y_train, held_out, y_held_out)
    predicted = chosen.probe.predict(torch.from_numpy(test))
    mine = top1_accuracy(predicted, torch.from_numpy(y_test))
    assert mine == pytest.approx(theirs.score(test, y_test), abs=0.001)
    assert chosen.validation[chosen.strength] == pytest.approx(judged[best][0], abs=0.001)


def test_the_best_is_chosen_and_refitted_on_both_parts():
    features, labels = blobs(200, 10, 4, seed=0)
    parts = features[:120], labels[:120], features[120:], labels[120:]
    chosen = choose_probe(*parts, strengths=[1e6, 1e-2, 10.0])
    assert chosen.validation[chosen.strength] == max(chosen.validation.values())
    assert list(chosen.validation) == [1e6, 10.0, 1e-2]
    known = LogisticRegression(C=1 / chosen.strength, tol=1e-9, max_iter=5000)
    known.fit(features.numpy(), labels.numpy())
    np.testing.assert_allclose(chosen.probe.weight.numpy(), known.coef_, rtol=1e-3, atol=1e-5)


def test_of_strengths_of_one_accuracy_the_least_cross_entropy_decides():
    """Far apart classes: all is right at every strength, and surest at the weakest."""
    features, labels = blobs(60, 4, 2, seed=0)
    features = features + 20 * torch.eye(4)[labels]
    parts = features[:40], labels[:40], features[40:], labels[40:]
    chosen = choose_probe(*parts, strengths=[1.0, 1e-4, 1e2])
    assert set(chosen.validation.values()) == {1.0}
    assert chosen.strength == 1e-4
    # one that is wrong all the same is surest of it at the weakest
    wrong = torch.cat([labels[40:59], 1 - labels[59:]])
    assert choose_probe(*parts[:3], wrong, strengths=[1.0, 1e-4, 1e2]).strength == 1e2


def test_the_accuracy_asked_for_decides():
    """Where one class is rare, what is best for all samples is not best for it."""
    draws = torch.Generator().manual_seed(0)
    labels = (torch.arange(200) % 10 == 0).long()
    features = torch.randn(200, 10, generator=draws) + 0.4 * labels[:, None]
    parts = features[:100], labels[:100], features[100:], labels[100:]
    strengths = [1e6, 1e-2]
    overall = choose_probe(*parts, strengths=strengths)
    by_class = choose_probe(*parts, measure="mean per class", strengths=strengths)
    assert (overall.strength, by_class.strength) == (1e6, 1e-2)
    assert overall.validation[1e6] == 0.9
    assert by_class.validation[1e6] == 0.5


def test_mean_per_class_accuracy_is_scikit_learns_balanced_accuracy():
    draws = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 5, (60,), generator=draws)
    predicted = torch.where(torch.rand(60, generator=draws) < 0.6, labels, 0)
    mine = mean_per_class_accuracy(predicted, labels)
    assert mine == mean_per_class_accuracy(predicted * 10**12, labels * 10**12)
    known = balanced_accuracy_score(labels.numpy(), predicted.numpy())
    assert mine == pytest.approx(known, abs=1e-12)


def test_bad_input_is_refused():
    features, labels = blobs(40, 3, 2, seed=0)
    with pytest.raises(InputError, match="dimension 2"):
        choose_probe(features, labels, features[:, :2], labels)
    with pytest.raises(InputError, match="label 5, which no training sample has"):
        choose_probe(features, labels, features, labels * 5)
    with pytest.raises(InputError, match="'top-1' or 'mean per class'"):
        choose_probe(features, labels, features, labels, measure="top-5")


def test_the_passes_are_those_of_the_path():
    features, labels = blobs(60, 4, 2, seed=0)
    parts = features[:40], labels[:40], features[40:], labels[40:]
    strengths = [1.0, 1e2]
    path = logistic_path(*parts[:2], strengths)
    assert choose_probe(*parts, strengths=strengths).passes == sum(fit.passes for fit in path)


@pytest.mark.parametrize("factor", [1e-100, 1e-6, 1e100])
def test_strengths_follow_the_scale_of_the_features(factor):
    features, _ = blobs(30, 5, 3, 0)
    plain = [strength * factor * factor for strength in scale_strengths(features)]
    assert scale_strengths(factor * features) == pytest.approx(plain, rel=1e-12, abs=0)


def test_strengths_of_features_of_variance_one_are_the_papers():
    features = torch.tensor([[1.0, -1.0, 7.0], [-1.0, 1.0, 7.0]])  # one is constant
    assert scale_strengths(features) == pytest.approx(STRENGTHS[::-1])
    assert scale_strengths(features[:, 2:]) == STRENGTHS[::-1]


def test_weaker_strengths_are_tried_for_a_feature_that_varies_little():
    features = torch.tensor([[1e4, 1e4, 1.0], [-1e4, -1e4, -1.0]]).double()
    strengths = scale_strengths(features)
    assert strengths[0] == pytest.approx(1e14)
    assert strengths[-1] == pytest.approx(1e-3, rel=1e-6)  # variance 1, three decades down


def test_strengths_are_those_of_any_form_of_features_and_of_any_scale():
    assert scale_strengths(np.array([[0.0], [2.0]])) == pytest.approx(STRENGTHS[::-1])
    far = scale_strengths([[1e140, 1e140, 1e-30], [-1e140, -1e140, -1e-30]])
    assert math.log10(far[-1]) == pytest.approx(-63)  # squares leave the range of float64
    assert len(far) == 97 + 24
    with pytest.raises(InputError, match="finite"):
        scale_strengths([[0.0], [math.nan]])
