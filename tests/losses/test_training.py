"""The information losses move what they name, on held-out digits, measured by NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from ncscope.losses import head_entropy_difference, head_mutual_information
from tests.losses import brute_force

TRAIN, HELD_OUT, STEPS, SIZE = 1000, 300, 150, 64


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    ratio: float
    difference: float


@cache
def digits() -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    return torch.from_numpy(pixels / 16).float(), torch.from_numpy(labels)


def train(term: Callable[[Tensor, Tensor, Tensor], Tensor] | None) -> Outcome:
    """Cross-entropy with the term added; the same batches and initial weights every time."""
    torch.manual_seed(0)
    inputs, labels = digits()
    body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    head = nn.Linear(32, 10)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(STEPS):
        rows = torch.randint(TRAIN, (SIZE,))
        features = body(inputs[rows])
        loss = nn.functional.cross_entropy(head(features), labels[rows])
        if term is not None:
            loss = loss + term(features, labels[rows], head.weight)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return measure(body, head)


@torch.no_grad()
def measure(body: nn.Module, head: nn.Linear) -> Outcome:
    inputs, labels = (tensor[TRAIN : TRAIN + HELD_OUT] for tensor in digits())
    features = body(inputs)
    accuracy = (head(features).argmax(1) == labels).double().mean()
    pair = features.double().numpy(), head.weight.double().numpy()[labels]
    return Outcome(
        float(accuracy),
        brute_force.mutual_information_ratio(*pair),
        brute_force.entropy_difference(*pair),
    )


@pytest.fixture(scope="module")
def plain() -> Outcome:
    return train(None)


@pytest.mark.slow
def test_information_loss_raises_the_ratio(plain):
    found = train(lambda *batch: -head_mutual_information(*batch))
    print(plain, found)
    assert found.ratio > plain.ratio + 0.05
    assert found.accuracy > 0.9


@pytest.mark.slow
def test_difference_loss_lowers_the_difference(plain):
    found = train(lambda *batch: 0.3 * head_entropy_difference(*batch))
    print(plain, found)
    assert found.difference < plain.difference / 2
    assert found.accuracy > 0.9
