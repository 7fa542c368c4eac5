"""What several threads update at once is what one would have gathered, at every moment."""

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ncscope.stats.directions import DirectionMoments
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments
from ncscope.stats.statistics import finish
from ncscope.stats.store import FeatureStore

from ..threads import at_once
from .states import with_means

K, D, THREADS, BATCHES = 5, 6, 8, 2


def batch(seed: int, n: int = 40) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, D, generator=draws, dtype=torch.float64)
    rows[seed % n] = 0  # a row without a direction
    return rows + (seed % 7 == 0), torch.randint(K, (n,), generator=draws)


def update_pair(pair: CrossMoments, rows: Tensor, labels: Tensor) -> None:
    pair.update(rows, rows.flip(1), labels)


def state_of_directions(moments: DirectionMoments) -> dict[str, Tensor]:
    zeros = torch.tensor([moments.zeros, len(moments.zero_rows)])
    return {"counts": moments.counts, "second": moments.second, "zeros": zeros}


KINDS = {
    "class moments": (
        lambda: ClassMoments(K, D),
        ClassMoments.update,
        ClassMoments.state_dict,
    ),
    "cross moments": (lambda: CrossMoments(K, D), update_pair, CrossMoments.state_dict),
    "directions": (
        lambda: DirectionMoments(K, D),
        DirectionMoments.update,
        state_of_directions,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads_gather_what_one_does(kind: str) -> None:
    make, update, state = KINDS[kind]
    seeds = [range(t * BATCHES, (t + 1) * BATCHES) for t in range(THREADS)]
    alone, together = make(), make()
    batches = {seed: batch(seed) for part in seeds for seed in part}
    for rows, labels in batches.values():
        update(alone, rows, labels)

    def work(part: range) -> Callable[[], None]:
        return lambda: [update(together, *batches[seed]) for seed in part] and None

    at_once(*map(work, seeds))
    for name, expected in state(alone).items():
        torch.testing.assert_close(state(together)[name], expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_eight_threads_merge_what_one_does(kind: str) -> None:
    make, update, state = KINDS[kind]
    alone, together = make(), make()
    parts = [make() for _ in range(THREADS)]
    for seed, part in enumerate(parts):
        update(part, *batch(seed))
        alone.merge(part)
    at_once(*(lambda part=part: together.merge(part) for part in parts))
    for name, expected in state(alone).items():
        torch.testing.assert_close(state(together)[name], expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_merging_into_each_other_ends(kind: str) -> None:
    make, update, state = KINDS[kind]
    for seed in range(10):
        one, other = make(), make()
        update(one, *batch(seed))
        update(other, *batch(seed + 1))
        at_once(lambda a=one, b=other: a.merge(b), lambda a=one, b=other: b.merge(a))
        counts = sorted(int(state(moments)["counts"].sum()) for moments in (one, other))
        assert counts in ([80, 80], [80, 120])  # both saw the other before, or one after


def counted(moments: ClassMoments) -> tuple[Tensor, Tensor]:
    state = moments.state_dict()
    return state["counts"].double(), with_means(state)["means"][:, 0]


def merged(moments: ClassMoments) -> ClassMoments:
    whole = ClassMoments(K, 1)
    whole.merge(moments)
    return whole


def reloaded(moments: ClassMoments) -> ClassMoments:
    whole = ClassMoments(K, 1)
    whole.load_state_dict(moments.state_dict())
    return whole


READERS = {
    "its state": counted,
    "a copy": lambda moments: counted(copy.copy(moments)),
    "a deep copy": lambda moments: counted(copy.deepcopy(moments)),
    "a pickle": lambda moments: counted(pickle.loads(pickle.dumps(moments))),
    "a merge": lambda moments: counted(merged(moments)),
    "a state loaded": lambda moments: counted(reloaded(moments)),
    "its statistics": lambda moments: (
        (stats := finish(moments)).counts.double(),
        stats.means[:, 0],
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_read_meanwhile_is_a_whole_number_of_batches(name: str) -> None:
    moments, done = ClassMoments(K, 1), threading.Event()
    moments.update(torch.zeros(K, 1), torch.arange(K))

    def write() -> None:
        try:
            for step in range(1, 8):
                moments.update(torch.full((K, 1), float(step)), torch.arange(K))
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            counts, means = READERS[name](moments)
            assert (counts == counts[0]).all()
            # one sample of each class a batch, with the values 0, 1, 2, ...
            torch.testing.assert_close(means, (counts - 1) / 2, rtol=1e-9, atol=0)

    at_once(write, read)


def test_copies_are_independent_and_go_on() -> None:
    rows, labels = batch(1)
    moments = ClassMoments(K, D)
    moments.update(rows, labels)
    before = moments.state_dict()
    for twin in (copy.copy(moments), copy.deepcopy(moments), pickle.loads(pickle.dumps(moments))):
        twin.update(rows, labels)
        assert torch.equal(twin.counts, 2 * before["counts"])
        for name, value in moments.state_dict().items():
            assert torch.equal(value, before[name])


@pytest.mark.parametrize("budget", [0, 4_000, 10**7])
def test_eight_threads_fill_a_store(budget: int, tmp_path: Path) -> None:
    with FeatureStore(budget, tmp_path) as store:

        def append(thread: int) -> None:
            for step in range(BATCHES):
                value = thread * BATCHES + step
                store.append({"a": torch.full((3, 4), value)}, torch.full((3,), value))

        at_once(*(lambda thread=thread: append(thread) for thread in range(THREADS)))
        kept = list(store)
        assert sorted(int(labels[0]) for _, labels in kept) == list(range(THREADS * BATCHES))
        for rows, labels in kept:
            assert (rows["a"] == labels[0]).all()
            assert (labels == labels[0]).all()
        in_memory = sum(features["a"].nbytes + labels.nbytes for features, labels in kept)
        assert store.bytes_in_memory <= min(budget, in_memory)
