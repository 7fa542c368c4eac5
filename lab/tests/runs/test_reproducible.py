"""The same seed draws the same numbers, on one thread, and nothing is left behind."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from ncscope_lab.runs.reproducible import reproducible


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def draw(seed: int) -> torch.Tensor:
    with reproducible(seed):
        return torch.rand(3)


def test_the_seed_decides() -> None:
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_the_caller_keeps_its_generator() -> None:
    torch.manual_seed(0)
    undisturbed = torch.rand(3)
    torch.manual_seed(0)
    draw(1)
    assert torch.equal(torch.rand(3), undisturbed)


def test_one_thread_inside_and_as_many_as_before_afterwards() -> None:
    with reproducible(0):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_the_linear_algebra_under_numpy_has_one_thread_too() -> None:
    def threads() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2):
        with reproducible(0):
            assert threads() == {1}
        assert threads() == {2}


def interrupted() -> None:
    with reproducible(0):
        torch.rand(3)
        raise KeyboardInterrupt


def test_restored_after_an_error() -> None:
    state = torch.get_rng_state()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)
