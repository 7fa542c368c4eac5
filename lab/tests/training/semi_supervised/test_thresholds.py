"""FreeMatch's averages and thresholds over steps: by hand, and restated in NumPy."""

import numpy as np
import pytest
import torch
from lab.tests.training.semi_supervised import restated
from lab.tests.training.semi_supervised.runs import short, trust
from torch import Tensor

from ncscope.losses.pseudo_labels import fairness_loss
from ncscope_lab.training.semi_supervised.thresholds import (
    AdaptiveThresholds,
    CurriculumThresholds,
)

STEPS = [[[0.9, 0.1], [0.6, 0.4]], [[0.2, 0.8], [0.3, 0.7]], [[0.55, 0.45], [0.4, 0.6]]]
"""Softmax outputs of three steps on two samples."""
BY_HAND = [  # tau, p, h, thresholds, mask; half of the old and half of the new
    (0.625, [0.625, 0.375], [0.75, 0.25], [0.625, 0.375], [True, False]),
    (0.6875, [0.4375, 0.5625], [0.375, 0.625], [7 / 9 * 0.6875, 0.6875], [True, True]),
    (0.63125, [0.45625, 0.54375], [0.4375, 0.5625], [73 / 87 * 0.63125, 0.63125], [True, False]),
]


def test_three_steps_by_hand() -> None:
    deciding = AdaptiveThresholds(2, decay=0.5)
    for q, (tau, p, h, thresholds, mask) in zip(STEPS, BY_HAND, strict=True):
        found = deciding(torch.tensor(q))
        assert found.trusted.tolist() == mask
        assert found.labels.tolist() == [int(row[1] > row[0]) for row in q]
        assert float(deciding.confidence) == pytest.approx(tau)
        assert deciding.probabilities.tolist() == pytest.approx(p)
        assert deciding.histogram.tolist() == pytest.approx(h)
        assert deciding.thresholds.tolist() == pytest.approx(thresholds)


def test_the_mask_may_come_before_the_update() -> None:
    masks = [
        trust(short(memory=0.5, mask_first=first), 2)(torch.tensor(STEPS[0])).trusted
        for first in (False, True)
    ]
    assert [mask.tolist() for mask in masks] == [[True, False], [True, True]]


LIMITS = [(0.0, 0.5), (0.9, 0.95), (0.45, 0.62)]
HIGH, LOW = [[0.9, 0.1], [0.8, 0.2]], [[0.55, 0.45], [0.4, 0.6]]


@pytest.mark.parametrize("limits", LIMITS)
def test_the_average_of_the_confidence_stays_within_limits(limits: tuple[float, float]) -> None:
    least, most = limits
    settings = short(memory=0.5, least_threshold=least, most_threshold=most)
    deciding = trust(settings, 2)
    assert isinstance(deciding, AdaptiveThresholds)
    state = restated.FreeMatch(2, decay=0.5, limits=limits)
    for q in (HIGH, HIGH, HIGH, LOW, LOW, LOW, LOW):
        found = deciding(torch.tensor(q))
        state.update(np.array(q))
        assert float(deciding.confidence) == pytest.approx(state.tau)
        assert deciding.thresholds.tolist() == pytest.approx(state.thresholds())
        assert found.trusted.tolist() == state.mask(np.array(q))
        assert least - 1e-6 <= float(deciding.thresholds.max()) <= most + 1e-6


def test_a_clipped_average_falls_as_soon_as_the_confidence_does() -> None:
    deciding = AdaptiveThresholds(2, decay=0.5, limits=(0.0, 0.6))
    for _ in range(20):
        deciding(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert float(deciding.confidence) == pytest.approx(0.6)
    deciding(torch.tensor([[0.5, 0.5], [0.5, 0.5]]))
    assert float(deciding.confidence) == pytest.approx(0.55)  # not (1 + 0.5) / 2, clipped to 0.6


def test_the_limits_hold_before_the_first_step() -> None:
    deciding = AdaptiveThresholds(10, limits=(0.9, 0.95), mask_first=True)
    assert deciding.thresholds.tolist() == pytest.approx([0.9] * 10)
    even = torch.full((1, 10), 0.1).index_fill(1, torch.tensor([0]), 0.5)
    assert deciding(even / even.sum()).trusted.tolist() == [False]


def test_no_samples_leave_the_averages_as_they_are() -> None:
    deciding = AdaptiveThresholds(2, decay=0.5)
    deciding(torch.tensor(STEPS[0]))
    before = {name: value.clone() for name, value in deciding.state_dict().items()}
    found = deciding(torch.zeros(0, 2))
    assert len(found.labels) == len(found.trusted) == 0
    for name, value in deciding.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("decay", "steps"), [(0.5, 200), pytest.param(0.99, 15_000, marks=pytest.mark.slow)]
)
def test_a_class_met_once_after_a_long_time_has_a_finite_loss(decay: float, steps: int) -> None:
    deciding = AdaptiveThresholds(3, decay=decay)
    q = torch.tensor([[0.8, 0.15, 0.05], [0.2, 0.75, 0.05]])
    for _ in range(steps):
        deciding(q)
    p, h = deciding.probabilities, deciding.histogram
    assert (p[2] / h[2]).isinf()  # the histogram has decayed out of range
    strong = torch.tensor([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]], requires_grad=True)
    loss = fairness_loss(p, h, strong, torch.ones(2, dtype=torch.bool))
    loss.backward()
    means = strong.detach().mean(0)  # over the shares, which are equal
    assert float(loss.detach()) == pytest.approx(float((means[2] / (means[0] + means[2])).log()))
    assert strong.grad.isfinite().all()
    assert (strong.grad[:, 2] > 0).all()  # a - b, and all of a is the third class's
    assert (strong.grad[:, 0] < 0).all()


def logits(seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(30, 7, generator=draws, dtype=torch.float64)


def test_many_steps_are_the_papers_formulas() -> None:
    deciding = AdaptiveThresholds(7, decay=0.9).double()
    state = restated.FreeMatch(7, decay=0.9)
    kinds = set()
    for step in range(30):
        q = logits(step).softmax(1)
        found = deciding(q)
        state.update(q.numpy())
        assert found.trusted.tolist() == state.mask(q.numpy())
        np.testing.assert_allclose(deciding.thresholds, state.thresholds(), rtol=1e-6)
        np.testing.assert_allclose(deciding.histogram, state.h, rtol=1e-6)
        kinds |= set(found.trusted.tolist())
    assert kinds == {True, False}


class TwoProcesses:
    """This process as the first of two, of which the other gives what it is told to."""

    several, count, index = True, 2, 0

    def __init__(self, other: Tensor) -> None:
        self.other = other

    def sum(self, shares: Tensor, *, guarded: bool) -> Tensor:
        assert not shares[1].any()
        return torch.stack([shares[0], self.other])


def test_all_processes_store_the_labels_of_the_whole_batch(monkeypatch) -> None:
    curriculum = CurriculumThresholds(num_classes=2, count=4, threshold=0.9)
    other = torch.tensor([[2, 0], [1, -1]])  # of its images 2 and 0 only the first is confident
    monkeypatch.setattr(f"{CurriculumThresholds.__module__}.ALL", TwoProcesses(other))
    found = curriculum(torch.tensor([[0.95, 0.05], [0.6, 0.4]]), torch.tensor([1, 3]))
    assert curriculum.labels.tolist() == [-1, 0, 1, -1]
    assert curriculum.counts.tolist() == [1, 1]
    assert len(found.labels) == len(found.trusted) == 2  # of this process


def test_fixmatch_trusts_one_confidence_and_remembers_nothing() -> None:
    fixed = trust(short("fixmatch"), 3)
    found = fixed(torch.tensor([[0.96, 0.02, 0.02], [0.03, 0.94, 0.03]]))
    assert found.trusted.tolist() == [True, False]
    assert found.labels.tolist() == [0, 1]
    assert fixed.state_dict() == {}
