"""Any call convention, any output."""

import pytest
import torch
from torch import nn

from ncscope.errors import InputError
from ncscope.models.forward import first_tensor, forward, logits_of

ROWS = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("inputs", [ROWS, (ROWS,), [ROWS], {"input": ROWS}])
def test_inputs_are_spread(inputs: object) -> None:
    layer = nn.Linear(3, 4)
    assert torch.equal(forward(layer, inputs), layer(ROWS))


class Named:
    logits = ROWS


@pytest.mark.parametrize(
    "output",
    [ROWS, (ROWS, ROWS + 1), [None, ROWS], {"x": ROWS + 1, "logits": ROWS}, Named(), [[ROWS]]],
)
def test_logits_are_found(output: object) -> None:
    assert torch.equal(logits_of(output), ROWS)


def test_singleton_dimensions_are_dropped() -> None:
    assert torch.equal(logits_of(ROWS[:, :, None, None]), ROWS)
    assert torch.equal(logits_of(ROWS[:, None]), ROWS)


def test_logits_of_every_token_keep_their_tokens() -> None:
    tokens = torch.zeros(2, 3, 5)
    assert logits_of(tokens) is tokens


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ({"loss": torch.tensor(1.0)}, "dict with loss of shape a scalar"),
        ({"labels": torch.arange(3)}, "dict with labels of shape 3"),
        (None, "NoneType"),
        ((), "tuple"),
        (torch.tensor(1.0), "a scalar"),
        (torch.zeros(2, 3, 5, 5), "Tensor with 2x3x5x5"),
    ],
)
def test_no_logits(output: object, found: str) -> None:
    with pytest.raises(InputError, match=found):
        logits_of(output)


def test_first_tensor_is_searched_depth_first() -> None:
    assert first_tensor(("text", {"a": None, "b": (ROWS,)}, ROWS + 1)) is ROWS
    assert first_tensor(["text", 3, {}]) is None
