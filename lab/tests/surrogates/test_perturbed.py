"""Fixed perturbed features: the ridge minimiser, and the law of attenuation."""

import math

import pytest
import torch

from ncscope.errors import InputError
from ncscope_lab.surrogates.descent import gradient_descent
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.perturbed import PerturbedUFM, attenuation


def model(per_class: int = 30, noise: float = 0.5, seed: int = 0, dim: int = 6) -> PerturbedUFM:
    return PerturbedUFM(3, dim, per_class, 0.005, 0.05, noise, seed)


def test_gradient_is_autograds():
    problem = model()
    (weight,) = problem.start(torch.Generator().manual_seed(1))
    (by_hand,) = problem.gradient((weight,))
    weight.requires_grad_()
    (expected,) = torch.autograd.grad(problem.objective((weight,)), [weight])
    torch.testing.assert_close(by_hand, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("noise", [0.0, 0.1, 2.0])
def test_minimiser_is_stationary_with_its_objective(noise: float):
    problem = model(noise=noise)
    best = problem.minimiser()
    assert float(problem.gradient(best.point)[0].norm()) < 1e-14
    assert abs(float(problem.objective(best.point)) - best.objective) < 1e-14


def test_descent_arrives_at_the_minimum():
    problem = model(noise=1.0)
    start = problem.start(torch.Generator().manual_seed(0))
    *_, (_, point) = gradient_descent(problem, start, 0.3, [2000])
    torch.testing.assert_close(point, problem.minimiser().point, rtol=0, atol=1e-8)


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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((3, 2, 10, 0.1, 0.1, 0.1), "d >= K"),
        ((3, 4, 0, 0.1, 0.1, 0.1), "n >= 1"),
        ((3, 4, 10, 0.0, 0.1, 0.1), "positive decays"),
        ((3, 4, 10, 0.1, 0.1, -0.1), "noise >= 0"),
        ((3, 4, 10, 0.5, 0.5, 0.1), "smaller ones"),
    ],
)
def test_bad_input_is_refused(args: tuple[float, ...], message: str):
    with pytest.raises(InputError, match=message):
        PerturbedUFM(*args)
