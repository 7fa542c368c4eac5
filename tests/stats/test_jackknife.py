"""Dealing, replicates and the jackknife's formulas, against direct computation."""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ncscope.stats.jackknife import (
    GROUPS,
    T_QUANTILE,
    Dealer,
    Replicate,
    jackknife,
    leave_one_out,
    take_rows,
)
from ncscope.stats.moments import ClassMoments

from ..pace import others_slow
from .states import with_means


def weights(labels: torch.Tensor, **options: bool) -> torch.Tensor:
    """Number of times that each replicate (row) counts each sample (column)."""
    left_out, twice = Dealer(torch.bincount(labels), **options)(labels)
    groups = torch.arange(GROUPS)[:, None]
    return 1 - (left_out == groups).int() + (twice == groups).int()


@given(st.lists(st.integers(2, 90), min_size=1, max_size=4), st.randoms())
def test_replicates_have_the_class_sizes_and_every_sample_is_left_out_once(
    sizes: list[int], random: Random
) -> None:
    order = [c for c, size in enumerate(sizes) for _ in range(size)]
    random.shuffle(order)
    labels = torch.tensor(order)
    counts = weights(labels)
    for c, size in enumerate(sizes):
        of_class = counts[:, labels == c]
        assert of_class.sum(1).tolist() == [size] * GROUPS
        assert of_class.sum(0).tolist() == [GROUPS] * size  # left out as often as doubled
        # A sample that is alone in its block is never left out.
        dealt = size - (size % GROUPS == 1)
        assert int((of_class == 0).sum()) == int((of_class == 2).sum()) == dealt


def test_random_sizes_vary_as_those_of_samples_drawn_with_their_classes() -> None:
    labels = torch.arange(4).repeat_interleave(torch.tensor([200, 100, 60, 40]))
    counts = weights(labels, random_sizes=True)
    assert counts.sum(1).tolist() == [400] * GROUPS
    sizes = torch.stack([counts[:, labels == c].sum(1) for c in range(4)], 1).double()
    # Twice a binomial variance n p (1-p) / n over the groups, and the errors of 20 numbers.
    share = torch.tensor([0.5, 0.25, 0.15, 0.1]).double()
    expected = 2 * 400 / GROUPS * share * (1 - share)
    assert torch.all((sizes.var(0) / expected - 1).abs() < 1)
    assert float((sizes.var(0) / expected).mean()) == pytest.approx(1, abs=0.35)


def replicated(values: np.ndarray, function: Callable[[Any], Any]) -> list[float]:
    counts = weights(torch.zeros(len(values), dtype=torch.int64)).numpy()
    return [function(np.repeat(values, row)) for row in counts]


@pytest.mark.parametrize("size", others_slow([22, 28, 50, 60, 101], 22, 101))
def test_error_and_bias_are_right_on_average_for_any_class_size(size: int) -> None:
    """Over the orders of the same values; of a mean and a variance both are known."""
    rng = np.random.default_rng(0)
    values = rng.gamma(2.0, size=size)
    orders = [rng.permutation(values) for _ in range(400)]
    of_mean = [jackknife(values.mean(), replicated(each, np.mean)) for each in orders]
    error = np.mean([each.standard_error**2 for each in of_mean])
    lone = 1 - (size % GROUPS == 1) / size
    assert error == pytest.approx(lone * values.var(ddof=1) / size, rel=0.05)
    assert all(abs(each.bias_corrected - values.mean()) < 1e-12 for each in of_mean)
    corrected = [jackknife(values.var(), replicated(o, np.var)).bias_corrected for o in orders]
    spread = np.std(corrected) / 20
    assert abs(np.mean(corrected) - values.var(ddof=1)) < 4 * spread + 0.002 * values.var()


def test_the_quantile_is_that_of_students_t() -> None:
    stats = pytest.importorskip("scipy.stats")
    assert pytest.approx(stats.t.ppf(0.975, 2 * GROUPS // 3), abs=1e-6) == T_QUANTILE


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.integers(0, 200), st.booleans())
def test_the_deal_is_one_however_samples_are_batched_or_spread_over_processes(
    labels: list[int], cut: int, random_sizes: bool
) -> None:
    classes, cut = torch.tensor(labels), min(cut, len(labels))
    counts = torch.bincount(classes, minlength=4)
    whole = Dealer(counts, random_sizes=random_sizes)(classes)
    deal = Dealer(counts, random_sizes=random_sizes)
    before = torch.bincount(classes[:cut], minlength=4)
    other = Dealer(counts, before, random_sizes=random_sizes)
    first = deal(classes[:cut])
    for later in (deal, other):
        rest = later(classes[cut:])
        assert all(
            torch.equal(torch.cat([a, b]), c) for a, b, c in zip(first, rest, whole, strict=True)
        )


def test_moments_without_each_group_are_those_of_the_others() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (300,), generator=generator)
    features = torch.randn(300, 5, generator=generator).double() + 1e3
    groups, twice = Dealer(torch.bincount(labels))(labels)
    parts = [ClassMoments(3, 5) for _ in range(GROUPS)]
    for group, part in enumerate(parts):
        part.update(features[groups == group], labels[groups == group])
    batches = list(zip(features.split(70), labels.split(70), strict=True))
    for group, moments in enumerate(leave_one_out(parts)):
        others = ClassMoments(3, 5)
        others.update(features[groups != group], labels[groups != group])
        states = with_means(moments.state_dict()), with_means(others.state_dict())
        torch.testing.assert_close(*states, rtol=1e-10, atol=1e-9)
        replicate = Replicate(batches, lambda: Dealer(torch.bincount(labels)), group)
        rows = torch.cat([rows for rows, _ in replicate])
        kept, doubled = features[groups != group], features[twice == group]
        assert torch.equal(rows.sort(0).values, torch.cat([kept, doubled]).sort(0).values)
        assert torch.equal(torch.cat([each for each, _ in replicate.doubles()]), doubled)
    assert group == GROUPS - 1


def test_rows_are_taken_with_their_labels() -> None:
    features, labels = take_rows(torch.eye(3), torch.tensor([5, 6, 7]), torch.tensor([2, 0]))
    assert (features.argmax(1).tolist(), labels.tolist()) == ([2, 0], [7, 5])
