"""The endless stream: every sample once a pass, the same batches from any place, shared evenly."""

from collections import Counter

import pytest

from ncscope.errors import InputError
from ncscope_lab.training.semi_supervised.streams import StreamBatches


def keys(batches: StreamBatches, epochs: int) -> list:
    found = []
    for epoch in range(epochs):
        batches.begin(epoch)
        found += [key for batch in batches for key in batch]
    return found


@pytest.mark.parametrize(("count", "size"), [(3, 8), (10, 4), (7, 7)])
def test_every_sample_comes_once_a_pass(count: int, size: int) -> None:
    found = keys(StreamBatches(count, size, steps=5, seed=0), epochs=4)
    assert len(found) == 4 * 5 * size
    assert len(set(found)) == len(found)  # no augmentation is drawn twice
    whole = len(found) // count
    passes = Counter(key.epoch for key in found)
    assert [passes[lap] for lap in range(whole)] == [count] * whole
    assert {key.image for key in found if key.epoch == 1} == set(range(count))


def test_any_place_is_reached_directly() -> None:
    whole = StreamBatches(5, 4, steps=6, seed=1)
    whole.begin(2)
    rest = StreamBatches(5, 4, steps=6, seed=1)
    rest.begin(2, step=4)
    assert len(rest) == 2
    assert list(rest) == list(whole)[4:]


def test_processes_share_what_one_would_see() -> None:
    shares = [StreamBatches(5, 6, 3, 0, rank, world=3) for rank in range(3)]
    together = [[key for part in parts for key in part] for parts in zip(*shares, strict=True)]
    assert together == list(StreamBatches(5, 6, 3, 0))
    with pytest.raises(InputError, match="4 processes can share evenly, found 6 samples"):
        StreamBatches(5, 6, 3, 0, 0, world=4)
