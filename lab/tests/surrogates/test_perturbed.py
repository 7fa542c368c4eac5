"""Fixed perturbed features: the ridge minimiser, and the law of attenuation."""

import math

import pytest
import torch

from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.perturbed import PerturbedUFM, attenuation


def model(per_class: int = 30, noise: float = 0.5, seed: int = 0, dim: int = 6) -> PerturbedUFM:
    return PerturbedUFM(3, dim, per_class, 0.005, 0.05, noise, seed)


def test_without_noise_the_features_and_the_classifier_are_those_of_the_plain_model():
    problem = model(noise=0.0)
    torch.testing.assert_close(problem.minimiser().point[0], problem.unperturbed)
    plain = ExtendedUFM(3, 6, 30, (0.005,), 0.05 / 30)
    weight, features = plain.minimiser().point
    torch.testing.assert_close(problem.unperturbed, weight)
    torch.testing.assert_close(problem.features, features)
    assert problem.attenuation == 1


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_classifier_is_attenuated_as_predicted_at_the_rate_of_the_law_of_large_numbers(
    noise: float,
):
    def deviation(per_class: int) -> float:
        found = []
        for seed in range(12):
            problem = model(per_class, noise, seed)
            expected = problem.attenuation * problem.unperturbed
            gap = (problem.minimiser().point[0] - expected).norm() / expected.norm()
            found.append(float(gap))
        return sum(found) / len(found)

    coarse, fine = deviation(500), deviation(8000)
    assert fine < 0.1
    assert 3 < coarse / fine < 5.3


def test_attenuation_is_the_formula():
    assert attenuation(4, 0.005, 0.05, 0.5) == pytest.approx(1 / (1 + 0.25 * 4 * math.sqrt(10)))


def test_noise_is_seeded_and_has_its_variance():
    quiet, loud = model(2000, 0.0), model(2000, 0.5)
    error = loud.features - quiet.features
    assert float(error.std()) == pytest.approx(0.5, rel=0.02)
    assert torch.equal(loud.features, model(2000, 0.5).features)
    assert not torch.equal(loud.features, model(2000, 0.5, seed=1).features)
