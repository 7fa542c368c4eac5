"""Schedules against the papers' words, optimisers against their settings."""

import math

import pytest
import torch
from torch import nn

from ncscope.models.networks.catalogue import build
from ncscope_lab.training.optimisation import Optimisation, bytes_to_come, learner, rate_factor


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


@pytest.mark.parametrize(("clip", "moved"), [(None, 5.0), (10.0, 5.0), (1.0, 1.0)])
def test_a_gradient_is_as_long_as_the_clip_at_most(clip: float | None, moved: float):
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    start = learner(model, Optimisation(learning_rate=1.0, weight_decay=0, clip=clip))
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    start.optimiser.step()
    assert float((model.weight.detach() - before).norm()) == pytest.approx(moved, rel=1e-5)


def test_tokens_and_position_embeddings_do_not_decay_and_other_matrices_do():
    model = build("small-vit", 10, in_channels=1, image_size=8)
    assert {model.pos_embed.ndim, model.cls_token.ndim} == {3}
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    settings = Optimisation(optimiser="adamw", learning_rate=0.1, weight_decay=0.5)
    start = learner(model, settings)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    start.optimiser.step()  # without a gradient all that it does is to decay
    kept = {name for name, weight in model.named_parameters() if torch.equal(weight, before[name])}
    vectors = {name for name, weight in before.items() if weight.ndim == 1}
    assert kept == vectors | {"pos_embed", "cls_token"}
    torch.testing.assert_close(model.head.weight, 0.95 * before["head.weight"])


@pytest.mark.parametrize(("kind", "copies"), [("sgd", 1), ("nesterov", 1), ("adamw", 2)])
def test_bytes_to_come_are_what_the_first_step_adds(kind, copies):
    start = learner(net(), Optimisation(optimiser=kind))
    weights = sum(parameter.nbytes for parameter in start.model.parameters())
    assert bytes_to_come(start.optimiser) == copies * weights
    start.model(torch.ones(2, 3)).sum().backward()
    start.optimiser.step()
    assert bytes_to_come(start.optimiser) == 0
    held = [
        value.nbytes
        for state in start.optimiser.state.values()
        for name, value in state.items()
        if name != "step"
    ]
    assert sum(held) == copies * weights


def test_without_momentum_nothing_comes():
    assert bytes_to_come(learner(net(), Optimisation(momentum=0.0)).optimiser) == 0


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
