"""FreeMatch's averages and thresholds over steps: by hand, and restated in NumPy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ncscope.lab.training.semi_supervised.thresholds import AdaptiveThresholds, trust
from tests.lab.training.semi_supervised import restated
from tests.lab.training.semi_supervised.runs import short

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


@pytest.mark.parametrize(("limits", "tau"), [((0.0, 0.5), 0.5), ((0.9, 0.95), 0.9)])
def test_the_global_threshold_stays_within_limits(limits: tuple[float, float], tau: float) -> None:
    least, most = limits
    settings = short(memory=0.5, least_threshold=least, most_threshold=most)
    deciding = trust(settings, 2)
    assert isinstance(deciding, AdaptiveThresholds)
    deciding(torch.tensor(STEPS[0]))
    assert deciding.thresholds.tolist() == pytest.approx([tau, 0.6 * tau])
    assert float(deciding.confidence) == pytest.approx(0.625)  # the average itself is free


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


def test_fixmatch_trusts_one_confidence_and_remembers_nothing() -> None:
    fixed = trust(short("fixmatch"), 3)
    found = fixed(torch.tensor([[0.96, 0.02, 0.02], [0.03, 0.94, 0.03]]))
    assert found.trusted.tolist() == [True, False]
    assert found.labels.tolist() == [0, 1]
    assert fixed.state_dict() == {}
