"""Ranks that merge by reduction have what one process would have, to the last bit alike."""

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ncscope.stats import merging
from ncscope.stats.merging import merge_across_processes, merge_in_place
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments
from ncscope.stats.processes import ALL, Processes

from ..ranks import joined_ranks
from .states import with_means

K, D, N = 7, 5, 60
OFFSET = 2.0**20
# Class 5 has samples in the first third alone, class 6 none anywhere.
LABELS = torch.cat([torch.full((3,), 5), torch.arange(N - 3) % 5])
# Multiples of 1/1024, so that the offset can be added and taken away without rounding.
FEATURES = torch.randint(-4096, 4096, (N, D), generator=torch.Generator().manual_seed(0)) / 1024.0
FEATURES = FEATURES.double() + LABELS[:, None]
COUNTS = torch.bincount(LABELS, minlength=K)
CASES: dict[str, dict[str, Any]] = {
    "all": {},
    "uniform": {"prior": "uniform", "class_counts": COUNTS},
    "blocked": {"precision": "blocked"},
    "means": {"statistics": ()},
    "scatter": {"statistics": ("scatter",)},
}


def share(rank: int, count: int) -> slice:
    """The rows of a rank: uneven shares, and none for the last of four."""
    ends = {1: [0, N], 2: [0, 7, N], 4: [0, 4, 25, N, N]}[count]
    return slice(ends[rank], ends[rank + 1])


def gathered(rows: slice, offset: float = 0.0, **options: Any) -> ClassMoments:
    moments = ClassMoments(K, D, **options)
    for part in range(rows.start, rows.stop, 9):
        batch = slice(part, min(part + 9, rows.stop))
        moments.update(FEATURES[batch] + offset, LABELS[batch])
    return moments


def crossed(rows: slice) -> CrossMoments:
    pair = CrossMoments(K, D)
    pair.update(FEATURES[rows], FEATURES[rows].flip(1).square(), LABELS[rows])
    return pair


def state_of(rows: slice, case: str) -> dict[str, Tensor]:
    if case == "cross":
        return crossed(rows).state_dict()
    if case == "offset":
        return with_means(gathered(rows, OFFSET).state_dict(), OFFSET)
    return with_means(gathered(rows, **CASES[case]).state_dict())


def merged_state(rank: int, count: int, case: str) -> dict[str, Tensor]:
    rows = share(rank, count)
    if case == "cross":
        return merge_across_processes(crossed(rows)).state_dict()
    options = CASES.get(case, {})
    moments = gathered(rows, OFFSET if case == "offset" else 0.0, **options)
    merge_in_place(moments, ALL)
    return with_means(moments.state_dict(), OFFSET if case == "offset" else 0.0)


def written(state: dict[str, Tensor]) -> dict[str, Any]:
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values()))
    return {"values": {k: v.tolist() for k, v in state.items()}, "digest": digest.hexdigest()}


def far_means(rank: int, sign: int) -> ClassMoments:
    """Moments without spread of a rank, whose means are multiples of 1/4096 far from zero."""
    draws = torch.Generator().manual_seed(rank)
    moments = ClassMoments(K, D, statistics=())
    moments.counts = torch.randint(1, 10, (K,), generator=draws)
    steps = torch.randint(-4096, 4096, (K, D), generator=draws).double()
    moments.pilot.fill_(sign * OFFSET)
    moments.offsets = sign * steps / 4096
    moments.load_state_dict(moments.state_dict())
    return moments


def units_off(rank: int, count: int, sign: int) -> float:
    """The largest error of the merged means, in units in the last place."""
    moments = far_means(rank, sign)
    merge_in_place(moments, ALL)
    parts = [far_means(other, sign) for other in range(count)]
    sums = sum((part.means - sign * OFFSET) * part.counts[:, None] for part in parts)
    total = sum(part.counts for part in parts)[:, None]
    exact = sums / total  # deviations from the offset, to 16 digits
    return float(((moments.means - sign * OFFSET) - exact).abs().max() / 2**-32)


NAMES = [*CASES, "cross", "offset"]


def merged_states(rank: int, count: int) -> dict[str, Any]:
    """The merged state of every case, once in one block and once a class at a time."""
    whole = {case: written(merged_state(rank, count, case)) for case in NAMES}
    with patch.object(merging, "_BLOCK_BYTES", 2 * 8 * D):
        blocks = {case: written(merged_state(rank, count, case)) for case in NAMES}
    off = [units_off(rank, count, sign) for sign in (1, -1)]
    return {"whole": whole, "blocks": blocks, "off": off}


def assert_as_one(found: list[dict[str, Any]]) -> None:
    assert all(off <= 0.51 for rank in found for off in rank["off"])  # rounded once
    for way in ("whole", "blocks"):
        for case in NAMES:
            one = state_of(slice(0, N), case)
            first, *others = (rank[way][case] for rank in found)
            assert all(other["digest"] == first["digest"] for other in others), case
            rel = 1e-4 if case == "blocked" else 1e-10
            for name, expected in one.items():
                value = torch.tensor(first["values"][name], dtype=expected.dtype)
                scale = float(expected.double().abs().max())
                torch.testing.assert_close(value, expected, rtol=rel, atol=rel * scale)
        # With a large offset, the deviations are as precise as without one.
        values = found[0][way]["offset"]["values"]
        far = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        near = with_means(gathered(slice(0, N), statistics=("scatter",)).state_dict())
        present = COUNTS > 0
        deviations = far["means"][present]
        torch.testing.assert_close(deviations, near["means"][present], rtol=0, atol=1e-9)
        for name in ("traces", "scatter"):
            atol = 1e-10 * float(near[name].abs().max())
            torch.testing.assert_close(far[name], near[name], rtol=0, atol=atol)


def said_by(action: Callable[[], Any]) -> str:
    try:
        action()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def broken(step: str, rank: int, effect: Any) -> Iterator[None]:
    """Let a step of the merge fail on rank 1."""
    if rank != 1:
        yield
        return
    with patch.object(merging._Reduction, step, autospec=True, side_effect=effect):
        yield


def interrupt(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGINT)


STEPS = ("__init__", "_note_extremes", "_choose_origin", "_weigh", "_refer")


def failures(rank: int) -> list[str]:
    """What merges say that fail on rank 1, one after another, and one that does not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    said = []
    for step in STEPS:
        with broken(step, rank, MemoryError("full")):
            said.append(said_by(lambda: merge_in_place(gathered(slice(0, 9)), ALL)))
    with broken("_weigh", rank, interrupt):
        said.append(said_by(lambda: merge_in_place(gathered(slice(0, 9)), ALL)))
    said.append(said_by(lambda: between_communications(rank)))
    said.append(said_by(lambda: interrupted_in_communication(rank)))
    counts = COUNTS + (rank == 1)
    uniform = ClassMoments(K, D, prior="uniform", class_counts=counts)
    said.append(said_by(lambda: merge_across_processes(uniform)))
    many = torch.ones(12, dtype=torch.int64)
    many[10 + rank] += 1
    alike = ClassMoments(12, D, prior="uniform", class_counts=many)
    said.append(said_by(lambda: merge_in_place(alike, ALL)))
    said.append(said_by(lambda: merge_in_place(ClassMoments(K + rank, D), ALL)))
    said.append(said_by(lambda: merge_in_place(gathered(slice(0, 9)), ALL)))
    return said


def between_communications(rank: int) -> None:
    """Fail on rank 1 while the others wait in a communication of an inner step."""
    with ALL.fail_together():
        with ALL.fail_together():
            ALL.gather(rank)
        if rank == 1:
            msg = "between"
            raise OSError(msg)
        with ALL.fail_together():
            ALL.sum(torch.ones(3))
        ALL.gather(rank)


def interrupted_in_communication(rank: int) -> None:
    """Interrupt rank 1 while it waits for rank 0, and rank 0 goes on communicating."""
    with ALL.fail_together():
        if rank == 1:
            threading.Timer(0.1, interrupt).start()
        else:
            time.sleep(0.3)
        ALL.gather("long enough to travel as a second communication")
        ALL.sum(torch.ones(3))


ELSEWHERE = "InputError: expected no error in any of 2 processes, found on rank 1: "
FAILURES = [
    *[("MemoryError: full", ELSEWHERE + "MemoryError: full")] * len(STEPS),
    ("KeyboardInterrupt: ", ELSEWHERE + "KeyboardInterrupt"),
    ("OSError: between", ELSEWHERE + "OSError: between"),
    ("KeyboardInterrupt: ", ELSEWHERE + "KeyboardInterrupt"),
    *[("InputError: expected the same moments in every process, found 7 classes",) * 2],
    *[("InputError: expected the same class_counts in every process, found [1, 1",) * 2],
    *[("InputError: expected the same moments in every process, found 7 classes",) * 2],
    ("", ""),
]


def check_failures(found: list[list[str]]) -> None:
    for number, failure in enumerate(FAILURES):
        for rank, said in enumerate(found):
            expected = failure[0] if rank == 1 else failure[1]
            assert said[number].startswith(expected), (number, rank, said[number])
            assert bool(expected) == bool(said[number])


@pytest.mark.slow
def test_two_ranks_merge_and_fail_as_one(tmp_path: Path) -> None:
    found = joined_ranks(
        2, tmp_path, lambda rank: {**merged_states(rank, 2), "said": failures(rank)}
    )
    assert_as_one(found)
    check_failures([each["said"] for each in found])


class Peak(TorchDispatchMode):
    """The most bytes of tensors alive: of those given, and of those made meanwhile."""

    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.alive: dict[int, tuple[int, int]] = {}
        self.most = 0
        self.add(given)

    def add(self, values: Any) -> None:
        storages = [v.untyped_storage() for v in tree_leaves(values) if isinstance(v, Tensor)]
        for storage in storages:
            if storage._cdata not in self.alive:
                self.alive[storage._cdata] = (storage._weak_ref(), storage.nbytes())
        expired = torch.UntypedStorage._expired
        self.alive = {key: kept for key, kept in self.alive.items() if not expired(kept[0])}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.add(made)
        return made


def states_alive(rank: int) -> dict[str, float]:
    """The most states alive in a merge, the state of this rank included."""
    moments = ClassMoments(2000, 512, statistics=("directions",))
    moments.update(torch.randn(2000, 512), (torch.arange(2000) * (rank + 1)) % 2000)
    state = list(moments.split_for_merge().means.values())
    size = sum(value.nbytes for value in state)
    with patch.object(merging, "_BLOCK_BYTES", 2**20):
        with Peak(state) as copied:
            merge_across_processes(moments)
        with Peak(state) as consumed:
            merge_in_place(moments, ALL)
    return {"copied": copied.most / size, "consumed": consumed.most / size}


def in_groups(rank: int) -> list[Any]:
    """What the ranks of two groups have in all, and what a rank outside of a group is told."""
    groups = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    own, other = Processes(groups[rank % 2]), groups[1 - rank % 2]
    moments = gathered(slice(10 * rank, 10 * rank + 10))
    total = int(merge_across_processes(moments, own.group).counts.sum())
    source = torch.tensor([rank])
    own.send([source], 1)

    def fails() -> None:
        with own.fail_together():
            if rank == 3:
                msg = "broken"
                raise OSError(msg)

    outside = said_by(lambda: merge_across_processes(moments, other))
    return [total, own.gather(rank), int(source), own.ranks, said_by(fails), outside]


@pytest.mark.slow
def test_four_ranks_merge_in_groups_and_with_few_states_alive(tmp_path: Path) -> None:
    def program(rank: int) -> dict[str, Any]:
        found = merged_states(rank, 4)
        return {**found, "alive": states_alive(rank), "groups": in_groups(rank)}

    found = joined_ranks(4, tmp_path, program)
    assert_as_one(found)
    for each in found:
        assert 1 <= each["alive"]["consumed"] < 1.5
        assert 2 <= each["alive"]["copied"] < 2.5
    for rank, each in enumerate(found):
        total, values, source, ranks, failure, outside = each["groups"]
        mates = [rank % 2, rank % 2 + 2]
        assert (total, values, source, ranks) == (20, mates, mates[1], mates)
        told = "InputError: expected no error in any of 2 processes, found on rank 3: OSError"
        assert failure.startswith(["", told, "", "OSError: broken"][rank])
        assert bool(failure) == bool(rank % 2)
        assert f"found a group without rank {rank};" in outside


def test_one_process_of_a_group_is_left_as_it_is(tmp_path: Path) -> None:
    (found,) = joined_ranks(1, tmp_path, lambda rank: merged_states(rank, 1))
    assert_as_one([found])


def test_a_group_without_a_launch_is_refused() -> None:
    assert "expected a process group, found none in this process" in said_by(lambda: Processes(1))
