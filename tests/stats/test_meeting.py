"""What processes tell each other, with threads in their place: every call is seen by one process.

`test_distributed` and the tests of `probing` do the same with real processes.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats import processes
from ncscope.stats.merging import merge_across_processes
from ncscope.stats.moments import ClassMoments
from ncscope.stats.processes import ALL, Processes, compare_descriptions

from .states import with_means

CPU = torch.device("cpu")


class Meeting:
    """The collective calls of torch.distributed, among threads."""

    ReduceOp = torch.distributed.ReduceOp

    def __init__(self, size: int) -> None:
        self.size, self.backend = size, "cpu:gloo"
        self.barrier = threading.Barrier(size, timeout=10)
        self.posted: list[Any] = [None] * size
        self.local = threading.local()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def get_world_size(self, group: None = None) -> int:
        return self.size

    def get_process_group_ranks(self, group: None) -> list[int]:
        return list(range(self.size))

    def get_backend_config(self, group: None) -> str:
        return self.backend

    def exchange(self, value: Tensor) -> list[Tensor]:
        self.posted[self.local.rank] = value.clone()
        self.barrier.wait()
        values = list(self.posted)
        self.barrier.wait()
        return values

    def all_gather(self, copies: list[Tensor], value: Tensor, group: None) -> None:
        for copied, given in zip(copies, self.exchange(value), strict=True):
            assert (copied.shape, copied.dtype) == (given.shape, given.dtype)
            copied.copy_(given)

    def all_reduce(self, value: Tensor, operation: Any, group: None) -> None:
        values = torch.stack(self.exchange(value))
        value.copy_(values.amax(0) if operation == self.ReduceOp.MAX else values.sum(0))

    def broadcast(self, value: Tensor, rank: int, group: None) -> None:
        value.copy_(self.exchange(value)[rank])


Meet = Callable[..., list[Any]]


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    """Return a function that runs each work as a process; it returns their results or errors."""

    def together(*works: Callable[[], Any]) -> list[Any]:
        meeting, results = Meeting(len(works)), [None] * len(works)
        monkeypatch.setattr(processes, "dist", meeting)

        def run(rank: int) -> None:
            meeting.local.rank = rank
            try:
                results[rank] = works[rank]()
            except BaseException as error:
                results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(1, len(works))]
        for thread in threads:
            thread.start()
        run(0)  # here, where it is seen what is called
        for thread in threads:
            thread.join()
        return results

    return together


def test_one_process_alone_is_not_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, several in {1: False, 2: True, 3: True}.items():
        monkeypatch.setattr(processes, "dist", Meeting(size))
        assert ALL.several == several
    for name in ("is_available", "is_initialized"):
        meeting = Meeting(2)
        monkeypatch.setattr(meeting, name, lambda: False)
        monkeypatch.setattr(processes, "dist", meeting)
        assert not ALL.several


def test_values_of_any_length_are_known_to_all(meet: Meet) -> None:
    values = [None, {"a": [1, 2.5, "long enough to be padded"]}, 7]
    found = meet(*(lambda value=value: ALL.gather(value) for value in values))
    assert found == [values] * 3


def step(error: BaseException | None) -> Callable[[], str]:
    def work() -> str:
        with ALL.fail_together():
            if error is not None:
                raise error
        return "done"

    return work


def test_a_step_that_no_process_fails_ends_well(meet: Meet) -> None:
    assert meet(step(None), step(None)) == ["done", "done"]


def test_a_step_that_one_process_fails_ends_on_all(meet: Meet) -> None:
    error = ValueError("two\n words")
    told, own, later = meet(step(None), step(error), step(KeyError()))
    assert own is error
    assert isinstance(told, InputError)
    assert isinstance(later, KeyError)
    assert "expected no error in any of 3 processes" in str(told)
    assert "found on rank 1: ValueError: two words;" in str(told)
    refused = InputError(expected="this", found="that", fix="do")
    first, _ = meet(step(refused), step(None))
    assert first is refused
    told, _ = meet(step(None), step(refused))
    assert "on rank 1: expected this, found that; do" in str(told)
    told, _ = meet(step(None), step(KeyError()))
    assert "on rank 1: KeyError;" in str(told)


def test_the_description_that_all_share() -> None:
    one = {"classes": 3, "layers": ["a", "b"]}
    assert compare_descriptions([None, one, None, dict(one)]) == one
    assert compare_descriptions([None, one]) == one
    assert compare_descriptions([None, None]) is None


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"classes": 4, "layers": ["a", "b"]}, "the same classes .* 3 on rank 1 and 4 on rank 3"),
        ({"classes": 3, "layers": ["a", "c"]}, "the same layers .* b on rank 1 and c on rank 3"),
        ({"classes": 3, "layers": ["a"]}, r"\['a', 'b'\] on rank 1 and \['a'\] on rank 3"),
        ({"classes": 3, "layers": None}, r"\['a', 'b'\] on rank 1 and None on rank 3"),
    ],
)
def test_the_first_difference_of_two_descriptions_is_named(other: dict, difference: str) -> None:
    one = {"classes": 3, "layers": ["a", "b"]}
    with pytest.raises(InputError, match=difference):
        compare_descriptions([None, one, dict(one), other])


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
def test_merged_moments_are_those_of_one_process(meet: Meet, prior: str) -> None:
    draws = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(20, 3, generator=draws), torch.arange(20) % 4

    def gathered(part: slice) -> ClassMoments:
        counts = torch.bincount(labels)
        moments = ClassMoments(4, 3, prior=prior, class_counts=counts)
        moments.update(rows[part], labels[part])
        return moments

    shares = [gathered(part) for part in (slice(0, 3), slice(3, 3), slice(3, 20))]
    before = [share.state_dict() for share in shares]
    found = meet(*(lambda share=share: merge_across_processes(share) for share in shares))
    whole = gathered(slice(None)).state_dict()
    for merged, share, old in zip(found, shares, before, strict=True):
        state = with_means(merged.state_dict())
        torch.testing.assert_close(state, with_means(whole), rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(merged.state_dict(), found[0].state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(share.state_dict(), old, rtol=0, atol=0)


def test_sums_and_the_values_of_one_process(meet: Meet) -> None:
    values = [torch.tensor([1, 2]), torch.tensor([10, 20])]
    found = meet(*(lambda value=value: ALL.sum(value) for value in values))
    assert [total.tolist() for total in found] == [[11, 22], [11, 22]]
    assert values[0].tolist() == [1, 2]


@pytest.mark.parametrize(("options", "expected"), [({}, [1.0, 2.0]), ({"source": 1}, [3.0, 0.0])])
def test_one_process_gives_its_values_to_all(meet: Meet, options: dict, expected: list) -> None:
    own = [[torch.tensor([1.0]), torch.tensor([2.0])], [torch.tensor([3.0]), torch.zeros(1)]]
    meet(*(lambda tensors=tensors: ALL.send(tensors, **options) for tensors in own))
    assert [[float(tensor) for tensor in tensors] for tensors in own] == [expected] * 2


def test_alone_everything_is_left_as_it_is() -> None:
    value = torch.ones(2)
    ALL.send([value])
    assert ALL.sum(value) is value
    assert ALL.gather("own") == ["own"]
    batches = [(value[:, None], torch.tensor([0, 1]))]
    assert ALL.gather_batches(batches, CPU) == batches


def batch(first: int, count: int) -> tuple[Tensor, Tensor]:
    numbers = torch.arange(first, first + count, dtype=torch.int16)
    return torch.stack([numbers, -numbers], 1).half(), numbers


def test_batches_of_all_processes_come_in_order_of_rank(meet: Meet) -> None:
    """Three samples in two batches, none, one, and none but an empty batch."""
    given = [[batch(0, 2), batch(2, 1)], [], [batch(3, 1)], [batch(0, 0)]]
    works = [lambda own=own: ALL.gather_batches(iter(own), CPU) for own in given]
    for order in (works, works[::-1]):
        for found in meet(*order):
            expected = [batch(0, 3), batch(3, 1)][:: 1 if order is works else -1]
            assert len(found) == 2
            for (rows, labels), (wanted, numbers) in zip(found, expected, strict=True):
                assert torch.equal(rows, wanted)
                assert rows.dtype == torch.float16
                assert torch.equal(labels, numbers.long())
                assert labels.dtype == torch.int64


def test_batches_that_do_not_fit_together_are_refused(meet: Meet) -> None:
    one, labels = batch(0, 2), torch.tensor([0, 1])
    wide, other = (torch.zeros(2, 3).half(), labels), (torch.zeros(2, 2), labels)
    cases = {
        "the same width in every process, found 2 on rank 0 and 3 on rank 1": [[one], [wide]],
        "the same type in every process, found float16 on rank 0 and float32": [[one], [other]],
        "expected batches to measure, found none in any process": [[], []],
    }
    for said, given in cases.items():
        for error in meet(*(lambda own=own: ALL.gather_batches(own, CPU) for own in given)):
            assert isinstance(error, InputError)
            assert said in str(error)


def test_one_process_without_a_batch_is_told_so() -> None:
    assert "expected batches to measure, found none;" in str(ALL.no_samples_error())


def test_the_device_to_meet_on_is_the_cpu_unless_there_is_nccl_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meeting = Meeting(2)
    monkeypatch.setattr(processes, "dist", meeting)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    for backend, device in {
        "cpu:gloo": "cpu",
        "cpu:gloo,cuda:nccl": "cpu",
        "cuda:nccl,cpu:gloo": "cpu",
        "cuda:nccl": "cuda:3",
    }.items():
        meeting.backend = backend
        assert Processes().device == torch.device(device)
