"""The hook of conftest.py is in place: what a signature says is checked."""

import pytest
import torch
from jaxtyping import TypeCheckError

from ncscope.math.pairs import row_blocks
from ncscope.metrics.duality import alignment


def test_shapes_that_do_not_fit_are_caught() -> None:
    alignment(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(TypeCheckError):
        alignment(torch.ones(2, 3), torch.ones(2, 4))


def test_types_that_do_not_fit_are_caught() -> None:
    with pytest.raises(TypeCheckError):
        row_blocks("3", 4)


@pytest.mark.usefixtures("unchecked_signatures")
def test_the_check_can_be_put_aside() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        alignment(torch.ones(2, 3), torch.ones(2, 4))
