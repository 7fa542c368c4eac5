"""The order is a function of seed, epoch and step; processes share each global batch."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ncscope.data.draws import Draw
from ncscope.data.order import (
    EpochBatches,
    draw_balanced_subset,
    epoch_order,
    process_share,
)
from ncscope.errors import InputError


def batches(epoch: int = 0, step: int = 0, *, rank: int = 0, world: int = 1, seed: int = 0):
    order = EpochBatches(50, 12, seed, rank, world)
    order.begin(epoch, step)
    return list(order)


def test_an_epoch_sees_no_sample_twice_and_leaves_out_less_than_a_batch():
    seen = [draw.image for batch in batches() for draw in batch]
    assert len(seen) == len(set(seen)) == 48
    assert set(seen) < set(range(50))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [tuple(epoch_order(50, seed, epoch).tolist()) for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(orders)) == 4


@pytest.mark.parametrize("step", [0, 1, 3, 4])
def test_an_epoch_taken_up_again_goes_on_where_it_was(step):
    assert batches(7, step) == batches(7)[step:]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_processes_see_what_one_would(world):
    shares = [batches(2, 1, rank=rank, world=world) for rank in range(world)]
    assert [list(chain(*parts)) for parts in zip(*shares, strict=True)] == batches(2, 1)
    assert {len(batch) for share in shares for batch in share} == {12 // world}


def test_keys_carry_seed_and_epoch():
    assert all(draw[:2] == (9, 4) for batch in batches(4, seed=9) for draw in batch)
    assert all(type(draw) is Draw for draw in batches()[0])


def test_the_length_is_what_is_left():
    order = EpochBatches(50, 12, 0)
    assert (len(order), order.per_epoch) == (4, 4)
    order.begin(3, 3)
    assert (len(order), order.per_epoch) == (1, 4)


@pytest.mark.parametrize(("size", "world", "found"), [(0, 1, "0"), (51, 1, "51"), (12, 5, "12")])
def test_batches_that_cannot_be_are_refused(size, world, found):
    with pytest.raises(InputError, match=f"found {found}"):
        EpochBatches(50, size, 0, 0, world)


@given(st.integers(0, 40), st.integers(1, 9))
def test_shares_cover_all_once_and_differ_by_one_at_most(count, world):
    shares = [process_share(count, rank, world) for rank in range(world)]
    assert [i for share in shares for i in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(st.data())
def test_subsets_are_as_balanced_as_can_be(data):
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=60)))
    size = data.draw(st.integers(1, len(labels)))
    chosen = draw_balanced_subset(labels, size, seed=0)
    assert len(chosen.unique()) == len(chosen) == size
    there, taken = labels.bincount(minlength=6), labels[chosen].bincount(minlength=6)
    # No class that has more to give gives less than another by more than one.
    assert all(taken.max() - taken[k] <= 1 for k in range(6) if taken[k] < there[k])


def test_subsets_depend_on_the_seed_alone():
    labels = torch.arange(100) % 10
    assert torch.equal(draw_balanced_subset(labels, 33, 1), draw_balanced_subset(labels, 33, 1))
    assert not torch.equal(draw_balanced_subset(labels, 33, 1), draw_balanced_subset(labels, 33, 2))


@pytest.mark.parametrize("size", [0, 11])
def test_subsets_that_cannot_be_are_refused(size):
    with pytest.raises(InputError, match=f"found {size}"):
        draw_balanced_subset(torch.zeros(10, dtype=torch.int64), size, 0)
