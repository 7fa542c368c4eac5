"""Dealing, leaving out and the jackknife's formulas, against direct computation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ncscope.stats.jackknife import (
    GROUPS,
    T_QUANTILE,
    Dealer,
    Dealt,
    Estimate,
    jackknife,
    leave_one_out,
)
from ncscope.stats.moments import ClassMoments


def test_of_a_mean_it_is_the_textbooks() -> None:
    values = np.random.default_rng(0).normal(size=40)
    estimate = jackknife(values.mean(), [np.delete(values, i).mean() for i in range(40)])
    assert estimate.standard_error == pytest.approx(values.std(ddof=1) / math.sqrt(40))
    assert estimate.bias_corrected == pytest.approx(values.mean())


def test_the_bias_of_a_variance_is_removed() -> None:
    values = np.random.default_rng(0).normal(size=40)
    estimate = jackknife(values.var(), [np.delete(values, i).var() for i in range(40)])
    assert estimate.bias_corrected == pytest.approx(values.var(ddof=1))


def test_the_interval_is_that_of_students_t() -> None:
    stats = pytest.importorskip("scipy.stats")
    assert pytest.approx(stats.t.ppf(0.975, GROUPS - 1), abs=1e-6) == T_QUANTILE
    assert Estimate(0.5, 1.0).interval == pytest.approx((1 - T_QUANTILE / 2, 1 + T_QUANTILE / 2))


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=200),
    cut=st.integers(0, 200),
    first=st.integers(0, 5),
)
def test_every_class_is_dealt_evenly_however_it_is_batched(
    labels: list[int], cut: int, first: int
) -> None:
    classes = torch.tensor(labels)
    whole = Dealer(4, first=first)(classes)
    deal = Dealer(4, first=first)
    assert torch.equal(torch.cat([deal(classes[:cut]), deal(classes[cut:])]), whole)
    for c in range(4):
        sizes = torch.bincount(whole[classes == c], minlength=GROUPS)
        assert int(sizes.max() - sizes.min()) <= 1
        if len(whole[classes == c]):
            assert int(whole[classes == c][0]) == (c + first) % GROUPS


def test_moments_without_each_group_are_those_of_the_others() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (300,), generator=generator)
    features = torch.randn(300, 5, generator=generator).double() + 1e3
    groups = Dealer(3)(labels)
    parts = [ClassMoments(3, 5) for _ in range(GROUPS)]
    for group, part in enumerate(parts):
        part.update(features[groups == group], labels[groups == group])
    batches = list(zip(features.split(70), labels.split(70), strict=True))
    left = 0
    for group, moments in enumerate(leave_one_out(parts)):
        others = ClassMoments(3, 5)
        others.update(features[groups != group], labels[groups != group])
        for name, value in others.state_dict().items():
            torch.testing.assert_close(moments.state_dict()[name], value, rtol=1e-10, atol=1e-9)
        kept = torch.cat([rows for rows, _ in Dealt(batches, 3, group)])
        assert torch.equal(kept, features[groups != group])
        left += 1
    assert left == GROUPS
