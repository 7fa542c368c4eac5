"""Explained entropy against refits without each sample, closed forms, and its ends."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import vci
from ncscope.stats.statistics import finish
from ncscope.transfer.ranking import gather_moments
from ncscope.transfer.samples import DownstreamSamples, check_downstream
from ncscope.transfer.scores.explained_entropy import (
    STRENGTHS,
    RidgeRegressions,
    entropy_share,
    explained_entropy,
)
from tests.transfer.samples import blobs


def unbalanced(count: int, dim: int, seed: int) -> DownstreamSamples:
    """Samples of three classes that overlap, of which the first has about half."""
    features, _ = blobs(count, dim, 3, seed)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 0])[torch.arange(count) % 7]
    return check_downstream(features + 0.7 * labels[:, None], labels)


def balanced(
    count: int, dim: int, classes: int, seed: int, noise: float = 1.0
) -> DownstreamSamples:
    """Samples of classes that overlap the more, the greater the noise."""
    features, labels = blobs(count, dim, classes, seed)
    draws = torch.Generator().manual_seed(seed)
    more = torch.randn(features.shape, generator=draws, dtype=torch.float64)
    return check_downstream(features + (noise - 1) * more, labels)


# More samples than features, fewer, unbalanced, two classes, and more classes than features.
CASES = {
    "tall": balanced(40, 6, 4, seed=0, noise=2.0),
    "wide": balanced(30, 45, 3, seed=1, noise=4.0),
    "square": balanced(24, 24, 3, seed=2, noise=3.0),
    "unbalanced": unbalanced(42, 5, seed=3),
    "unbalanced and wide": unbalanced(35, 50, seed=4),
    "two classes": balanced(30, 4, 2, seed=5, noise=3.0),
    "many classes": balanced(48, 3, 8, seed=6),
}


def one_hot(samples: DownstreamSamples) -> Tensor:
    return torch.eye(len(samples.classes), dtype=torch.float64)[samples.class_indices]


def slow_predictions(samples: DownstreamSamples, strength: float, leave_out: bool) -> Tensor:
    """Predict each sample by a ridge regression of its own, from the normal equations.

    The penalty on the weights is the strength times the summed squares of the centred features of
    all samples, with or without the sample that is left out.
    """
    rows, labels = samples.features, one_hot(samples)
    n, d = rows.shape
    penalty = strength * (rows - rows.mean(0)).square().sum() * torch.eye(d + 1).double()
    penalty[d, d] = 0  # the intercept
    whole = torch.cat([rows, torch.ones(n, 1, dtype=torch.float64)], 1)
    predictions = []
    for index in range(n):
        kept = torch.arange(n) != index if leave_out else torch.ones(n, dtype=torch.bool)
        gram = whole[kept].T @ whole[kept] + penalty
        weights = torch.linalg.solve(gram, whole[kept].T @ labels[kept])
        predictions.append(whole[index] @ weights)
    return torch.stack(predictions)


def slow_share(predictions: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Maximise over the sharpness; return the share explained, and the log-likelihoods."""
    shares = np.bincount(y) / len(y)
    entropy = -(shares * np.log(shares)).sum()

    def likelihoods(sharpness: float) -> np.ndarray:
        logits = sharpness * (predictions - shares) + np.log(shares)
        return log_softmax(logits, axis=1)[np.arange(len(y)), y]

    def loss(log_sharpness: float) -> float:
        return -likelihoods(math.exp(log_sharpness)).mean()

    found = minimize_scalar(loss, bounds=(-10, 10), method="bounded", options={"xatol": 1e-10})
    chosen = likelihoods(math.exp(found.x)) if found.fun < entropy else np.log(shares)[y]
    return 1 + chosen.mean() / entropy, chosen / entropy


@pytest.mark.parametrize("strength", [1e-5, 1e-2, 3.0])
@pytest.mark.parametrize("name", CASES)
def test_predictions_are_those_of_fits_to_all_samples_and_to_all_others(name, strength):
    both = RidgeRegressions(CASES[name]).predict(strength)
    for found, leave_out in zip(both, (False, True), strict=True):
        known = slow_predictions(CASES[name], strength, leave_out)
        torch.testing.assert_close(found, known, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", CASES)
def test_the_strength_has_the_least_error_of_refits(name):
    samples = CASES[name]
    errors = {}
    for strength in np.logspace(-6, 2, 9):
        left_out = slow_predictions(samples, strength, leave_out=True)
        errors[strength] = float((one_hot(samples) - left_out).square().sum())
    ridge = RidgeRegressions(samples)
    for strength, error in errors.items():
        assert ridge.squared_error(ridge.predict(strength)[1]) == pytest.approx(error, rel=1e-6)
    strength = ridge.choose_strength()
    least = ridge.squared_error(ridge.predict(strength)[1])
    assert least <= min(errors.values()) * (1 + 1e-6)
    assert explained_entropy(samples).strength == strength
    assert strength in STRENGTHS


def test_strengths_are_half_decades_from_a_millionth_to_a_hundred():
    assert np.log10(STRENGTHS) == pytest.approx(np.linspace(-6, 2, 17))


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_that_of_a_search_over_refits(name):
    samples = CASES[name]
    found = explained_entropy(samples)
    left_out = slow_predictions(samples, found.strength, leave_out=True)
    known, _ = slow_share(left_out.numpy(), samples.class_indices.numpy())
    assert 0.01 < known < 0.99
    assert found.value == pytest.approx(known, abs=1e-8)


@pytest.mark.parametrize("name", ["tall", "unbalanced", "many classes"])
def test_without_penalty_and_leaving_out_the_variance_explained_is_1_less_vci(name):
    samples = CASES[name]
    ridge = RidgeRegressions(samples)
    weights = 1 / ridge.shares
    missed = ((ridge.labels - ridge.predict(1e-14)[0]).square() * weights).sum()
    total = ((ridge.labels - ridge.shares).square() * weights).sum()
    stats = finish(gather_moments(samples))
    classes, d = len(samples.classes), samples.features.shape[1]
    known = (1 - float(vci(stats, discriminants(stats)))) * min(d / (classes - 1), 1)
    assert float(1 - missed / total) == pytest.approx(known, rel=1e-9)


def test_the_standard_error_is_that_of_the_jackknife():
    for samples in CASES.values():
        found = explained_entropy(samples)
        left_out = slow_predictions(samples, found.strength, leave_out=True)
        _, shares = slow_share(left_out.numpy(), samples.class_indices.numpy())
        n = len(shares)
        counts = np.bincount(samples.class_indices.numpy())
        chance = np.log(counts / n)[samples.class_indices.numpy()]
        likelihoods = shares * -chance.mean()
        without = np.array(
            [
                1 - np.delete(likelihoods, index).mean() / np.delete(chance, index).mean()
                for index in range(n)
            ]
        )
        known = math.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
        assert found.standard_error == pytest.approx(known, rel=0.02)


@pytest.mark.parametrize("counts", [(100, 100, 100), (240, 40, 20)])
def test_the_standard_error_is_the_spread_over_fresh_samples(counts):
    means = 1.2 * torch.eye(3, dtype=torch.float64)
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(torch.tensor(counts))
    found = []
    for _ in range(60):
        noise = torch.randn(300, 3, generator=draws, dtype=torch.float64)
        found.append(explained_entropy(check_downstream(means[labels] + noise, labels)))
    spread = np.std([each.value for each in found], ddof=1)
    assert np.mean([each.standard_error for each in found]) == pytest.approx(spread, rel=0.3)


@pytest.mark.parametrize("name", CASES)
def test_rotation_and_shift_do_not_matter(name):
    samples = CASES[name]
    d = samples.features.shape[1]
    draws = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(d, d, generator=draws, dtype=torch.float64))[0]
    moved = check_downstream(samples.features @ turn + 5, samples.labels)
    assert explained_entropy(moved) == pytest.approx(explained_entropy(samples), abs=1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1e150])
def test_scale_does_not_matter(name, scale):
    samples = CASES[name]
    scaled = check_downstream(samples.features * scale, samples.labels)
    assert explained_entropy(scaled) == pytest.approx(explained_entropy(samples), abs=1e-9)
    exact = check_downstream(samples.features * 2.0**400, samples.labels)
    assert explained_entropy(exact) == explained_entropy(samples)


@pytest.mark.parametrize("name", CASES)
def test_order_of_samples_and_names_of_classes_do_not_matter(name):
    samples = CASES[name]
    known = explained_entropy(samples)
    order = torch.randperm(len(samples.labels), generator=torch.Generator().manual_seed(2))
    permuted = check_downstream(samples.features[order], samples.labels[order])
    assert explained_entropy(permuted) == pytest.approx(known, abs=1e-9)
    other = len(samples.classes) - 1 - samples.labels
    renamed = check_downstream(samples.features, other)
    assert explained_entropy(renamed) == pytest.approx(known, abs=1e-9)
    with_gaps = check_downstream(samples.features, 4 * samples.labels + 3)
    assert explained_entropy(with_gaps) == known


def test_features_may_be_of_any_type():
    samples = CASES["tall"]
    known = explained_entropy(samples)
    rows = samples.features.float()
    assert explained_entropy(check_downstream(rows.numpy(), samples.labels)) == explained_entropy(
        check_downstream(rows.double(), samples.labels.numpy())
    )
    assert explained_entropy(check_downstream(rows, samples.labels)) == pytest.approx(
        known, abs=1e-5
    )
    assert all(isinstance(each, float) for each in known)


def test_noise_takes_the_value_from_certainty_to_chance():
    labels = torch.arange(90) % 3
    draws = torch.Generator().manual_seed(0)
    noise = torch.randn(90, 6, generator=draws, dtype=torch.float64)
    means = torch.eye(6, dtype=torch.float64)[labels]
    sizes = (0.1, 0.2, 0.4, 0.8, 1.6, 6.4)
    samples = [check_downstream(means + size * noise, labels) for size in sizes]
    found = [explained_entropy(each).value for each in samples]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.99
    assert found[-1] < 0.05
    assert all(0 <= value <= 1 for value in found)


@pytest.mark.parametrize(("count", "dim"), [(60, 200), (60, 61), (60, 59), (200, 20), (8, 3)])
def test_random_labels_are_chance(count, dim):
    draws = torch.Generator().manual_seed(dim)
    values = []
    for _ in range(20):
        features = torch.randn(count, dim, generator=draws, dtype=torch.float64)
        labels = torch.arange(count) % 3
        values.append(explained_entropy(check_downstream(features, labels)).value)
    assert min(values) >= 0
    assert sorted(values)[9] < 0.02
    # One parameter, the sharpness, is fitted: the share is about 1/(2nH) too large.
    assert max(values) < 10 / count
    in_sample = RidgeRegressions(check_downstream(features, labels)).predict(1e-6)[0]
    if dim >= count - 1:
        assert entropy_share(in_sample, labels)[0] > 0.99


def test_classes_far_apart_are_certain():
    labels = torch.arange(60) % 3
    for noise in (0.0, 1e-3):
        draws = torch.Generator().manual_seed(0)
        cloud = noise * torch.randn(60, 3, generator=draws, dtype=torch.float64)
        means = torch.eye(3, dtype=torch.float64)[labels]
        found = explained_entropy(check_downstream(means + cloud, labels))
        assert 1 - 1e-6 < found.value <= 1
        assert 0 <= found.standard_error < 1e-6


def test_the_documented_failures_are_as_documented():
    draws = torch.Generator().manual_seed(0)
    signs = torch.randn(400, 2, generator=draws, dtype=torch.float64).sign()
    cloud = 0.1 * torch.randn(400, 2, generator=draws, dtype=torch.float64)
    quadrants = check_downstream(signs + cloud, (signs.prod(1) > 0).long())
    assert explained_entropy(quadrants).value < 0.02
    places = torch.arange(400) % 3
    line = check_downstream(places[:, None] + cloud[:, :1] / 2, places)
    assert explained_entropy(line).value == pytest.approx(0.65, abs=0.01)
    samples = CASES["tall"]
    known = explained_entropy(samples).value
    noise = torch.randn(40, 1, generator=draws, dtype=torch.float64)
    values = []
    for scale in (1, 100, 1e4):
        rows = torch.cat([samples.features, scale * noise], 1)
        values.append(explained_entropy(check_downstream(rows, samples.labels)).value)
    assert values[:2] == pytest.approx([known, known], abs=0.05)
    assert values[2] < 0.5 * known


@pytest.mark.parametrize("labels", [torch.arange(12) % 3, torch.arange(12) // 11 * 4])
def test_constant_features_explain_nothing(labels):
    for constant in (0.0, 1 / 3, 1e150):
        samples = check_downstream(torch.full((12, 5), constant, dtype=torch.float64), labels)
        found = explained_entropy(samples)
        assert (found.value, found.standard_error) == (0.0, 0.0)


@pytest.mark.parametrize(("classes", "dim"), [(2, 1), (2, 5), (7, 3), (7, 20)])
def test_one_sample_a_class_explains_nothing(classes, dim):
    draws = torch.Generator().manual_seed(dim)
    features = torch.randn(classes, dim, generator=draws, dtype=torch.float64)
    found = explained_entropy(check_downstream(features, torch.arange(classes)))
    assert (found.value, found.standard_error) == (0.0, 0.0)


def test_a_class_of_one_sample_beside_others_is_no_obstacle():
    samples = balanced(41, 5, 4, seed=0)
    alone = samples.labels.clone()
    alone[-1] = 9
    found = explained_entropy(check_downstream(samples.features, alone))
    assert 0 < found.value < 1
    assert found.standard_error > 0


@pytest.mark.parametrize("strength", [1e-7, 1e-5, 1e-3])
def test_a_trace_of_agreement_is_never_below_0(strength):
    """The best sharpness is below the least that is searched: the value is 0, not less."""
    labels = torch.arange(40) % 2
    sides = torch.where(torch.arange(40) % 4 < 2, 1.0, -1.0).double()
    # Nearly as many samples on the wrong side as on the right one.
    leaning = sides * (1 - 2 * labels)
    weights = torch.where(leaning > 0, 1 + strength * 1e-4, 1.0)
    above = torch.stack([sides, -sides], 1) * weights[:, None]
    value, error = entropy_share(0.5 + above, labels)
    assert 0 <= value < 1e-6
    assert math.isfinite(error)
