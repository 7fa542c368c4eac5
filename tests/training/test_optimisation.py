"""Schedules against the papers' words, optimisers against their settings."""

import math

import pytest
import torch
from torch import nn

from ncscope.training.optimisation import Optimisation, learner, rate_factor


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def test_vci_warms_up_linearly_then_decays_by_a_factor_an_epoch():
    vci = Optimisation(
        epochs=300,
        learning_rate=0.1,
        schedule="exponential",
        decay=0.975,
        warmup_epochs=10,
        warmup_rate=1e-5,
    )
    rates = [0.1 * rate_factor(vci, epoch) for epoch in range(300)]
    assert rates[0] == pytest.approx(1e-5)
    assert rates[5] == pytest.approx((1e-5 + 0.1) / 2)
    assert rates[10] == pytest.approx(0.1)
    assert rates[210] == pytest.approx(0.1 * 0.975**200)


def test_mse_divides_by_ten_at_a_third_and_two_thirds():
    steps = Optimisation(epochs=350, schedule="steps")
    assert [rate_factor(steps, epoch) for epoch in (0, 116, 117, 233, 234, 349)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )


def test_a_cosine_ends_near_zero():
    cosine = Optimisation(epochs=100, schedule="cosine", warmup_epochs=10)
    assert rate_factor(cosine, 10) == 1
    assert rate_factor(cosine, 55) == pytest.approx(0.5)
    assert rate_factor(cosine, 99) == pytest.approx((1 + math.cos(math.pi * 89 / 90)) / 2)


def test_a_warm_up_that_never_ends_is_refused():
    with pytest.raises(ValueError, match="fewer warmup_epochs than epochs"):
        Optimisation(epochs=5, warmup_epochs=5, schedule="cosine")


@pytest.mark.parametrize("kind", ["sgd", "nesterov", "adamw"])
def test_the_optimiser_is_what_the_settings_say(kind):
    settings = Optimisation(optimiser=kind, learning_rate=0.2, momentum=0.8, weight_decay=0.3)
    optimiser = learner(net(), settings).optimiser
    groups = optimiser.param_groups
    assert [group["lr"] for group in groups] == [0.2] * len(groups)
    if kind == "adamw":
        assert isinstance(optimiser, torch.optim.AdamW)
        assert [(len(g["params"]), g["weight_decay"]) for g in groups] == [(2, 0.3), (4, 0.0)]
    else:
        (only,) = groups
        assert (only["momentum"], only["weight_decay"]) == (0.8, 0.3)
        assert only["nesterov"] == (kind == "nesterov")


def test_frozen_weights_are_left_out():
    model = net()
    model[2].weight.requires_grad_(False)
    (group,) = learner(model, Optimisation()).optimiser.param_groups
    assert len(group["params"]) == 5


def test_the_average_is_measured_where_there_is_one():
    model = net()
    assert learner(model, Optimisation()).evaluated is model
    averaged = learner(model, Optimisation(average=0.5))
    first = model[0].weight.detach().clone()
    averaged.average.update_parameters(model)
    with torch.no_grad():
        model[0].weight.zero_()
    averaged.average.update_parameters(model)
    torch.testing.assert_close(averaged.evaluated[0].weight, first / 2)
