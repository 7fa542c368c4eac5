"""The pseudo-labels' losses, by hand and against the papers' formulas sample by sample."""

import math

import pytest
import torch
from lab.tests.training.semi_supervised import restated

from ncscope.losses.pseudo_labels import (
    consistency_loss,
    fairness_loss,
)


def test_fairness_by_hand() -> None:
    p, h = torch.tensor([0.4375, 0.5625]), torch.tensor([0.375, 0.625])
    strong = torch.tensor([[0.3, 0.7], [0.6, 0.4], [0.9, 0.1]])
    mask = torch.tensor([True, True, False])
    # p/h = (7/6, 9/10), a = (35/62, 27/62); means (.45, .55) over shares (1/2, 1/2)
    by_hand = 35 / 62 * math.log(0.45) + 27 / 62 * math.log(0.55)
    assert float(fairness_loss(p, h, strong, mask)) == pytest.approx(by_hand, rel=1e-6)


def test_fairness_raises_the_classes_that_are_given_out_too_rarely() -> None:
    shares, means = torch.tensor([0.75, 0.25]), torch.tensor([0.55, 0.45])
    p = torch.tensor([0.5, 0.5])
    strong = torch.tensor([[0.6, 0.4], [0.6, 0.4], [0.6, 0.4], [0.4, 0.6]], requires_grad=True)
    loss = fairness_loss(p, p, strong, torch.ones(4, dtype=torch.bool))
    (slope,) = torch.autograd.grad(loss, strong)
    b = means / shares / (means / shares).sum()
    expected = (0.5 - b) / means / 4  # the gradient for the log of a mean is a - b
    torch.testing.assert_close(slope, expected.expand(4, 2))
    assert slope[0, 0] > 0 > slope[0, 1]


NEVER_GIVEN = {  # moving averages, and what stands for them where NumPy is to divide
    "one class": ([0.6, 0.3, 0.1], [0.7, 0.3, 0.0], [0.7, 0.3, 1e-250]),
    "two classes": ([0.6, 0.3, 0.1], [1.0, 0.0, 0.0], [1.0, 1e-250, 1e-250]),
    "a quotient out of range": ([0.6, 0.3, 0.1], [0.7, 0.3, 7e-43], [0.7, 0.3, 1e-250]),
    "a class that was never likely either": ([0.7, 0.3, 0.0], [0.7, 0.3, 0.0], [0.7, 0.3, 1.0]),
}


@pytest.mark.parametrize("name", NEVER_GIVEN)
def test_fairness_of_a_class_that_was_never_given_is_its_limit(name: str) -> None:
    p, h, positive = NEVER_GIVEN[name]
    views = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]], requires_grad=True)
    mask = torch.ones(3, dtype=torch.bool)
    loss = fairness_loss(torch.tensor(p), torch.tensor(h), views, mask)
    state = restated.FreeMatch(3, decay=0.999)
    state.p, state.h = p, positive
    limit = restated.fairness(state, views.detach().double().numpy(), mask.tolist())
    assert float(loss.detach()) == pytest.approx(limit, rel=1e-6)
    (slope,) = torch.autograd.grad(loss, views)
    means = views.detach().mean(0)
    a = torch.tensor(p, dtype=torch.float64) / torch.tensor(positive, dtype=torch.float64)
    b = means / means.sum()  # each class is given to one view
    expected = ((a / a.sum()).float() - b) / means / 3
    torch.testing.assert_close(slope, expected.expand(3, 3))


def test_fairness_does_not_see_classes_that_neither_view_is_given_to() -> None:
    strong = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], requires_grad=True)
    p, h = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.7, 0.3, 0.0])
    loss = fairness_loss(p, h, strong, torch.ones(2, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == 0  # all of the average is the third class's
    assert not strong.grad.any()


def test_no_samples_cost_nothing() -> None:
    logits, labels = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    loss = consistency_loss(logits, labels, labels.bool())
    loss.backward()
    assert float(loss.detach()) == 0


def test_nothing_trusted_costs_nothing() -> None:
    strong = torch.rand(3, 2, requires_grad=True)
    none = torch.zeros(3, dtype=torch.bool)
    loss = fairness_loss(torch.ones(2), torch.ones(2), strong, none)
    loss = loss + consistency_loss(strong, torch.zeros(3, dtype=torch.int64), none)
    loss.backward()
    assert float(loss.detach()) == 0
    assert not strong.grad.any()
