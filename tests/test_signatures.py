"""The hook of conftest.py is in place if CI is set: what a signature says is checked."""

import os
from collections.abc import Callable

import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from ncscope.math.pairs import row_blocks
from ncscope.metrics.duality import alignment
from tests.signatures import EVERY, check_some_calls, checked, jaxtyped

hooked = pytest.mark.skipif(
    not os.environ.get("CI") or os.environ.get("SIGNATURES") == "0",
    reason="signatures are checked if CI is set and SIGNATURES is not 0",
)


@hooked
def test_shapes_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError):
        alignment(torch.ones(2, 3), torch.ones(2, 4))
    alignment(torch.ones(2, 3), torch.ones(2, 3))


@hooked
def test_types_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError):
        row_blocks("3", 4)


def every(step: int) -> Callable[[Tensor], Tensor]:
    @jaxtyped(typechecker=checked)
    def chosen(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return rows[::step]

    return chosen


def test_what_is_returned_is_held_against_the_parameters() -> None:
    assert every(2)(torch.ones(1, 3)).shape == (1, 3)
    with pytest.raises(TypeCheckError, match="return value"):
        every(2)(torch.ones(4, 3))


def test_a_function_inside_of_another_is_checked_each_time_that_it_is_defined() -> None:
    for step in (1, 2):
        with pytest.raises(TypeCheckError, match="parameters"):
            every(step)(torch.ones(4))
        with pytest.raises(TypeCheckError, match="parameters"):
            every(step)(torch.ones(4, 3, dtype=torch.int64))
    assert every(1)(torch.ones(4, 3)).shape == (4, 3)


def same(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return rows


def is_caught(function: Callable[[Tensor], Tensor]) -> bool:
    try:
        function(torch.ones(3))
    except TypeCheckError:
        return True
    return False


def test_the_first_of_ten_calls_in_a_test_is_checked() -> None:
    sampled = check_some_calls(jaxtyped)(typechecker=checked)(same)
    found = [at for at in range(1, 4 * EVERY) if is_caught(sampled)]
    assert found == [1, EVERY + 1, 2 * EVERY + 1, 3 * EVERY + 1]
    assert sampled.__wrapped__ is same


@pytest.mark.usefixtures("unchecked_signatures")
def test_the_check_can_be_put_aside() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        alignment(torch.ones(2, 3), torch.ones(2, 4))
