"""The hook of conftest.py is in place: what a signature says is checked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from ncscope.math.pairs import row_blocks
from ncscope.metrics.duality import alignment
from tests.signatures import jaxtyped


def test_shapes_that_do_not_fit_are_caught() -> None:
    alignment(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(TypeCheckError):
        alignment(torch.ones(2, 3), torch.ones(2, 4))


def test_types_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError):
        row_blocks("3", 4)


def every(step: int) -> Callable[[Tensor], Tensor]:
    @jaxtyped
    def chosen(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return rows[::step]

    return chosen


def test_what_is_returned_is_held_against_the_parameters() -> None:
    assert every(2)(torch.ones(1, 3)).shape == (1, 3)
    with pytest.raises(TypeCheckError, match=r"chosen\(\) return"):
        every(2)(torch.ones(4, 3))


def test_a_function_inside_of_another_is_checked_each_time_that_it_is_defined() -> None:
    for step in (1, 2):
        with pytest.raises(TypeCheckError, match=r"chosen\(\) parameter rows="):
            every(step)(torch.ones(4))
        with pytest.raises(TypeCheckError, match=r"chosen\(\) parameter rows="):
            every(step)(torch.ones(4, 3, dtype=torch.int64))
    assert every(1)(torch.ones(4, 3)).shape == (4, 3)


@pytest.mark.usefixtures("unchecked_signatures")
def test_the_check_can_be_put_aside() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        alignment(torch.ones(2, 3), torch.ones(2, 4))


@jaxtyped
def resized(rows: Float[Tensor, "n d"], to: "int | None" = None) -> Float[Tensor, "n d"]:
    return rows[:to]


def test_a_function_of_a_module_is_held_against_its_parameters_too() -> None:
    assert resized(torch.ones(4, 3)).shape == (4, 3)
    with pytest.raises(TypeCheckError, match=r"resized\(\) return"):
        resized(torch.ones(4, 3), 2)
    with pytest.raises(TypeCheckError, match=r"resized\(\) parameter to="):
        resized(torch.ones(4, 3), "2")
    assert resized(torch.ones(2, 5), to=2).shape == (2, 5)  # sizes are bound anew by each call


@jaxtyped
@dataclass(frozen=True)
class Pair:
    left: Float[Tensor, " n"]
    right: Float[Tensor, " n"]


def test_a_dataclass_is_checked_when_it_is_made() -> None:
    Pair(torch.ones(2), right=torch.ones(2))
    with pytest.raises(TypeCheckError, match="parameter right="):
        Pair(torch.ones(2), torch.ones(3))


@jaxtyped
def counted(rows: Float[Tensor, "n d"]) -> Iterator[int]:
    yield from range(len(rows))


def test_a_generator_is_checked_when_it_is_made() -> None:
    assert list(counted(torch.ones(2, 3))) == [0, 1]
    with pytest.raises(TypeCheckError, match="parameters"):
        counted(torch.ones(2))


@jaxtyped
def stacked(
    square: Float[Tensor, "n n"], pairs: Float[Tensor, "_ 2"], longer: Float[Tensor, " n+1"]
) -> Float[Tensor, "n m"]:
    return square[:, : len(longer)]


@pytest.mark.parametrize("again", range(2))  # what was accepted once is accepted otherwise
def test_sizes_are_those_of_their_names(again: int) -> None:
    square, pairs, longer = torch.ones(3, 3), torch.ones(7, 2), torch.ones(4)
    assert stacked(square, pairs, longer).shape == (3, 3)
    for wrong in (
        (torch.ones(3, 2), pairs, longer),
        (torch.ones(3), pairs, longer),
        (square.int(), pairs, longer),
        (square.numpy(), pairs, longer),
        (square, torch.ones(7, 3), longer),
        (square, pairs, torch.ones(3)),
    ):
        with pytest.raises(TypeCheckError, match=r"stacked\(\) parameter"):
            stacked(*wrong)


@jaxtyped
def either(rows: Float[Tensor, "n 2"] | Float[Tensor, "d n"], n: Float[Tensor, " n"]) -> None: ...


def test_a_shape_that_does_not_fit_binds_nothing() -> None:
    for _ in range(2):
        either(torch.ones(5, 2), torch.ones(5))
        either(torch.ones(5, 3), torch.ones(3))
        with pytest.raises(TypeCheckError, match="parameter n="):
            either(torch.ones(5, 3), torch.ones(5))
