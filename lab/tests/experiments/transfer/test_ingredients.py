"""The index without one ingredient: against refits, permuted labels and the index itself."""

import math

import pytest
import torch
from torch import Tensor

from ncscope.transfer.samples import DownstreamSamples, check_downstream
from ncscope.transfer.scores.explained_entropy import (
    STRENGTHS,
    RidgeRegressions,
    entropy_share,
    explained_entropy,
)
from ncscope_lab.experiments.transfer.judgement import FACTS, ZOO_SCORES
from ncscope_lab.experiments.transfer.scores import PREFIX, VARIANTS, score_variants
from tests.pace import others_slow
from tests.transfer.samples import blobs


def noisy(count: int, dim: int, classes: int, *, seed: int, noise: float) -> DownstreamSamples:
    """Return samples of classes that overlap the more, the greater the noise."""
    features, labels = blobs(count, dim, classes, seed)
    draws = torch.Generator().manual_seed(seed + 100)
    more = torch.randn(features.shape, generator=draws, dtype=torch.float64)
    return check_downstream(features + noise * more, labels)


CASES = {
    "tall": noisy(60, 8, 4, seed=0, noise=1.0),
    "wide": noisy(30, 45, 3, seed=1, noise=3.0),
    "many classes": noisy(56, 5, 8, seed=2, noise=0.3),
}


def one_hot(samples: DownstreamSamples) -> Tensor:
    return torch.eye(len(samples.classes), dtype=torch.float64)[samples.class_indices]


def refitted(samples: DownstreamSamples, strength: float, *, leave_out: bool) -> Tensor:
    """Predict every sample by a ridge regression, without the sample itself or with it.

    Least squares of rows under which roots of the penalty stand; the intercept has no penalty.
    """
    rows, labels = samples.features, one_hot(samples)
    n, d = rows.shape
    root = math.sqrt(strength * float((rows - rows.mean(0)).square().sum()))
    below = torch.cat([root * torch.eye(d), torch.zeros(d, 1)], 1).double()
    whole = torch.cat([rows, torch.ones(n, 1)], 1).double()
    found = []
    for index in range(n):
        kept = [other for other in range(n) if other != index or not leave_out]
        left = torch.cat([whole[kept], below])
        right = torch.cat([labels[kept], labels.new_zeros(d, labels.shape[1])])
        found.append(whole[index] @ torch.linalg.lstsq(left, right).solution)
    return torch.stack(found)


def of(name: str, samples: DownstreamSamples) -> float:
    return score_variants(samples)[PREFIX + name]


def share_of_variance(samples: DownstreamSamples, predictions: Tensor) -> float:
    labels = one_hot(samples)
    missed = (labels - predictions).square().sum()
    return float(1 - missed / (labels - labels.mean(0)).square().sum())


@pytest.mark.parametrize("name", others_slow(CASES, next(iter(CASES))))
def test_chance_is_the_mean_of_the_fit_to_permuted_labels(name):
    samples = CASES[name]
    strength = explained_entropy(samples).strength
    explained = share_of_variance(samples, refitted(samples, strength, leave_out=False))
    value = of("permuted", samples)
    chance = (explained - value) / (1 - value)
    draws = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(400):
        order = torch.randperm(len(samples.labels), generator=draws)
        permuted = check_downstream(samples.features, samples.labels[order])
        drawn.append(share_of_variance(permuted, RidgeRegressions(permuted).predict(strength)[0]))
    error = torch.tensor(drawn).std() / math.sqrt(len(drawn))
    assert error < 0.02 * chance
    assert abs(sum(drawn) / len(drawn) - chance) < 4 * error


def test_permuted_labels_themselves_are_at_chance():
    draws = torch.Generator().manual_seed(3)
    values = []
    for _ in range(30):
        features = torch.randn(60, 20, generator=draws, dtype=torch.float64)
        samples = check_downstream(features, torch.arange(60) % 3)
        values.append(of("permuted", samples))
    assert abs(sum(values) / len(values)) < 0.03


@pytest.mark.parametrize("name", CASES)
def test_every_variant_is_what_its_name_says(name):
    samples = CASES[name]
    labels, index = samples.class_indices, explained_entropy(samples)
    fitted, left_out = (refitted(samples, index.strength, leave_out=each) for each in (False, True))
    found = score_variants(samples)
    assert list(found) == list(VARIANTS)
    own = {key.removeprefix(PREFIX): value for key, value in found.items()}
    del own["permuted"]  # see the test of chance
    assert own == pytest.approx(
        {
            "fitted": entropy_share(fitted, labels)[0],
            "variance": share_of_variance(samples, left_out),
            "accuracy": float((left_out.argmax(1) == labels).double().mean()),
            "no_penalty": entropy_share(RidgeRegressions(samples).predict(1e-6)[1], labels)[0],
            "one_penalty": entropy_share(RidgeRegressions(samples).predict(10**-2.5)[1], labels)[0],
        },
        abs=1e-8,
    )
    assert own["fitted"] > index.value + 0.01
    assert 0.3 < own["accuracy"] < 1
    for key in ("no_penalty", "one_penalty"):
        assert own[key] != pytest.approx(index.value, abs=1e-6)


def test_variants_have_names_of_their_own_and_no_penalty_is_the_weakest():
    assert len({score.name for score in (*VARIANTS.values(), *FACTS.values())}) == 11
    assert not set(VARIANTS) & set(ZOO_SCORES)
    assert min(STRENGTHS) == STRENGTHS[0] == pytest.approx(1e-6)


def test_with_more_features_than_samples_the_fit_to_noise_explains_and_the_index_does_not():
    draws = torch.Generator().manual_seed(4)
    features = torch.randn(30, 200, generator=draws, dtype=torch.float64)
    signal = features.clone()
    labels = torch.arange(30) % 3
    signal[:, :3] += 4 * torch.eye(3, dtype=torch.float64)[labels]
    samples = check_downstream(signal, labels)
    value = explained_entropy(samples).value
    assert 0.01 < value < 0.99
    assert of("fitted", samples) >= value
    assert of("fitted", samples) == pytest.approx(1, abs=1e-6)


def test_constant_features_explain_nothing():
    found = score_variants(check_downstream(torch.ones(12, 5), torch.arange(12) % 3))
    names = ("fitted", "permuted", "no_penalty", "one_penalty")
    assert [found[PREFIX + name] for name in names] == pytest.approx([0, 0, 0, 0])
    # The left-out shares of the classes miss by more than the shares of all samples do.
    assert found[f"{PREFIX}variance"] == pytest.approx(1 - (12 / 11) ** 2)
    assert found[f"{PREFIX}accuracy"] <= 1 / 3


def test_one_sample_a_class_leaves_nothing_to_predict():
    draws = torch.Generator().manual_seed(5)
    features = torch.randn(4, 9, generator=draws, dtype=torch.float64)
    found = score_variants(check_downstream(features, torch.arange(4)))
    assert all(math.isfinite(value) for value in found.values())
    assert found[f"{PREFIX}accuracy"] == 0
    assert found[f"{PREFIX}no_penalty"] == found[f"{PREFIX}one_penalty"] == 0
