"""The multilayer model: gradients, closed forms, lambda over L, and where minima lie."""

import pytest
import torch
from lab.tests.surrogates.test_problems import DATA
from lab.tests.surrogates.test_problems import seeded as generator

from ncscope_lab.surrogates.descent import SolverResult, gradient_descent, quasi_newton
from ncscope_lab.surrogates.mufm import (
    MUFM,
    ClassifierMUFM,
    LayeredMUFM,
    data_distance,
)
from ncscope_lab.surrogates.problem import Point, gaussian_classes

K, N, D = 3, 4, 5
LOSSES = ("mse", "cross-entropy")


@pytest.mark.parametrize("normalised", [True, False])
def test_closed_forms_are_stationary(normalised: bool):
    model = MUFM(DATA, K, 0.005, 0.001, normalised=normalised)
    weight, features = model.start(generator())
    assert model.gradient((model.best_classifier(features), features))[0].norm() < 1e-10
    assert model.gradient((weight, model.best_features(weight)))[1].norm() < 1e-10


def solved(model: MUFM, start: torch.Generator) -> tuple[Point, SolverResult]:
    reduced = ClassifierMUFM(model)
    found = quasi_newton(reduced, reduced.start(start))
    return reduced.complete(found.point), found


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_the_layered_minimum_is_the_reduced_one_with_lambda_over_depth(loss: str):
    layered = LayeredMUFM(DATA, K, 3, 0.01, 0.2, loss)
    found = quasi_newton(layered, layered.straight(MUFM(DATA, K, 1, 1).start(generator())))
    assert found.gradient_norm < 1e-8
    by_strength = {
        strength: min(
            quasi_newton(model, model.start(generator(seed))).objective for seed in range(2)
        )
        for strength in (0.2 / 3, 0.2)
        for model in [MUFM(DATA, K, 0.01, strength, loss)]
    }
    assert found.objective == pytest.approx(by_strength[0.2 / 3], rel=1e-9)
    assert by_strength[0.2] > 1.05 * found.objective
    straight = layered.straight((found.point[0], found.point[-1]))
    for found_layer, expected in zip(found.point, straight, strict=True):
        torch.testing.assert_close(found_layer, expected, rtol=0, atol=1e-5)


def test_reduced_and_layered_agree_on_the_straight_path():
    layered = LayeredMUFM(DATA, K, 4, 0.1, 0.2)
    point = layered.reduce().start(generator())
    torch.testing.assert_close(
        layered.objective(layered.straight(point)), layered.reduce().objective(point)
    )


@pytest.mark.slow
def test_a_high_price_makes_the_minimum_unique_and_descent_finds_it():
    model = MUFM(DATA, K, 0.5, 1.01 / 0.5)
    minima = [solved(model, generator(seed))[1] for seed in range(6)]
    assert max(found.gradient_norm for found in minima) < 1e-9
    objectives = [found.objective for found in minima]
    assert max(objectives) - min(objectives) < 1e-12
    *_, (_, reached) = gradient_descent(model, model.start(generator()), 0.1, [4000])
    assert float(model.objective(reached)) == pytest.approx(min(objectives), rel=1e-9)


def traces(features: torch.Tensor, k: int) -> tuple[float, float]:
    """Of the within-class and the between-class covariance."""
    classes = features.unflatten(1, (k, -1))
    means = classes.mean(2)
    within = (classes - means[..., None]).square().sum() / features.shape[1]
    return float(within), float((means - means.mean(1, keepdim=True)).square().sum() / k)


@pytest.mark.parametrize("seed", range(0, 12, 2))
def test_from_half_of_the_inverse_decay_on_both_traces_move_as_in_theorem_4(seed: int):
    """At every stationary point, and so at every minimum, once lambda * lambda_W >= 1/2."""
    data = 2 * gaussian_classes(4, 5, 3, generator(seed))
    model = MUFM(data, 4, 0.1 * 2**seed / 100, 1.0)
    model = MUFM(data, 4, model.weight_decay, 0.5 / model.weight_decay)
    _, features = solved(model, generator(seed))[0]
    (before, apart), (after, further) = traces(data, 4), traces(features, 4)
    assert 0 < after < before
    assert further > apart


def test_collapse_survives_no_spread_of_the_data_under_cross_entropy():
    model = MUFM(DATA, K, 0.01, 0.01, "cross-entropy")
    found = quasi_newton(model, model.start(generator()))
    assert found.gradient_norm < 1e-8
    within, between = traces(found.point[1], K)
    data_within, data_between = traces(DATA, K)
    assert 1e-3 < within / between < data_within / data_between


def test_data_distance():
    assert data_distance(3 * DATA, DATA) < 1e-15
    assert data_distance(-DATA, DATA) == pytest.approx(2)


def test_gaussian_classes_have_means_on_the_sphere():
    data = gaussian_classes(3, 50_000, 4, generator())
    means = data.unflatten(1, (3, -1)).mean(2)
    torch.testing.assert_close(means.norm(dim=0), torch.ones(3).double(), rtol=0, atol=0.02)
    covariance = torch.cov(data[:, :50_000])
    torch.testing.assert_close(covariance, torch.eye(4).double(), rtol=0, atol=0.03)
