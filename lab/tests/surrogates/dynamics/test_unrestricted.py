"""Classifier and features together: the flow without the reduction, and its distance."""

import pytest
import torch
from torch import Tensor

from ncscope_lab.surrogates.dynamics.central_path import least_squares
from ncscope_lab.surrogates.dynamics.flows import integrate_velocity
from ncscope_lab.surrogates.dynamics.snr import random_features
from ncscope_lab.surrogates.dynamics.unrestricted import (
    State,
    descent_direction,
    distance,
    flow_unrestricted,
    loss,
)

K, D, N = 3, 3, 3


@pytest.fixture
def start() -> State:
    generator = torch.Generator().manual_seed(0)
    features = random_features(K, D, N, 1.0, generator) + 0.5
    weight = torch.randn(K, D, dtype=torch.float64, generator=generator)
    return State(weight, torch.zeros(K, dtype=torch.float64), features)


def test_the_direction_is_minus_the_gradient(start: State) -> None:
    parts = (start.weight, start.bias, start.features)
    free = [part.clone().requires_grad_() for part in parts]
    slopes = torch.autograd.grad(loss(State(*free)), free)
    found = descent_direction(start)
    for slope, part in zip(slopes, (found.weight, found.bias, found.features), strict=True):
        torch.testing.assert_close(part, -slope)


def test_the_reduced_flow_is_the_whole_one(start: State) -> None:
    times = [1.0, 10.0, 40.0]
    sizes = [K * D, K, D * K * N]

    def unpacked(flat: Tensor) -> State:
        weight, bias, features = flat.split(sizes)
        return State(weight.view(K, D), bias, features.view(D, K * N))

    def packed(state: State) -> Tensor:
        return torch.cat([p.reshape(-1) for p in (state.weight, state.bias, state.features)])

    whole = integrate_velocity(
        lambda flat: packed(descent_direction(unpacked(flat))), packed(start), times, 9.0, 1e-10
    )
    for (time, flat), (due, here) in zip(
        whole, flow_unrestricted(start, times, 1e-10), strict=True
    ):
        assert time == due
        torch.testing.assert_close(packed(here), flat, rtol=1e-6, atol=1e-7)


def test_it_keeps_the_balance_of_the_layers_and_loses_loss(start: State) -> None:
    balance = start.weight.mT @ start.weight - start.features @ start.features.mT
    last = float(loss(start))
    for _, here in flow_unrestricted(start, [1.0, 10.0, 100.0]):
        now = here.weight.mT @ here.weight - here.features @ here.features.mT
        torch.testing.assert_close(now, balance, rtol=1e-6, atol=1e-5)
        assert float(loss(here)) < last
        last = float(loss(here))


def test_distance_is_zero_on_the_path_and_what_was_added_off_it(start: State) -> None:
    weight, bias = least_squares(start.features, K)
    on = distance(State(weight, bias, start.features))
    assert on.classifier < 1e-14
    assert on.loss == pytest.approx(on.least_squares, rel=1e-13)
    off = distance(State(1.5 * weight, bias, start.features))
    assert off.classifier == pytest.approx(0.5)
    assert off.loss > off.least_squares
