"""DeepFool's margins against a linear classifier's, which are known."""

import sys

import pytest
import torch
from torch import nn

from ncscope.errors import InputError
from ncscope_lab.experiments.mse.robustness import deepfool_robustness

OVERSHOOT, STEP = 1.02, 1e-4  # every step is so much longer than to the boundary


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def linear(weight_scale: float = 1.0) -> nn.Module:
    layer = nn.Linear(12, 4)
    generator = torch.Generator().manual_seed(1)
    layer.weight.data = weight_scale * torch.randn(4, 12, generator=generator)
    layer.bias.data = torch.randn(4, generator=generator)
    return nn.Sequential(nn.Flatten(), layer)


def distances(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Of a linear classifier's inputs from the nearest boundary."""
    weight = network[1].weight.detach()  # type: ignore[index]
    scores = network(x).detach()
    own = scores.argmax(1)
    lead = scores.gather(1, own[:, None]) - scores
    apart = (weight[own][:, None] - weight[None]).norm(dim=2)
    return (lead / apart).scatter(1, own[:, None], float("inf")).min(1).values


def test_margins_of_a_linear_classifier() -> None:
    x, network = images(40), linear()
    margin, fooled = deepfool_robustness(network, x)
    steps = OVERSHOOT * (distances(network, x) + STEP) / x.flatten(1).norm(dim=1)
    assert fooled == 1
    assert margin == pytest.approx(float(steps.mean()), rel=1e-5)


def test_margins_have_no_unit() -> None:
    here, _ = deepfool_robustness(linear(), images(20))
    there, _ = deepfool_robustness(linear(1 / 100), 100 * images(20))
    assert there == pytest.approx(here, rel=1e-2)  # the step's 1e-4 has one


def test_the_network_is_left_as_it_was() -> None:
    layers = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)
    network = nn.Sequential(*layers).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    deepfool_robustness(network, images(2))
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foolbox", None)
    with pytest.raises(InputError, match=r"library foolbox.*\[attack\]"):
        deepfool_robustness(linear(), images(1))
