"""Tensors in what modules return, and which of them may be logits."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from ncscope.models.forward import possible_logits, tensors_by_place, tensors_in

ROWS, MAP = torch.zeros(4, 3), torch.zeros(4, 3, 2, 2)


@dataclass
class Output:
    first: Tensor
    second: Any


@pytest.mark.parametrize(
    ("value", "places"),
    [
        (ROWS, [""]),
        ((ROWS, [MAP, None]), ["0", "1.0"]),
        ({"a": ROWS, "b": {"c": MAP}}, ["a", "b.c"]),
        (Output(ROWS, (MAP,)), ["first", "second.0"]),
        (SimpleNamespace(x=ROWS, name="text"), ["x"]),
        ("text", []),
        (None, []),
    ],
)
def test_places_are_named_depth_first(value: object, places: list[str]) -> None:
    assert [name for name, _ in tensors_by_place(value)] == places


def test_a_value_that_holds_itself_ends_the_search() -> None:
    endless = SimpleNamespace(rows=ROWS)
    endless.own = endless
    assert len(list(tensors_in(endless))) < 10


def test_a_packed_sequence_is_the_mean_of_each_sequence() -> None:
    rows, lengths = torch.randn(4, 5, 3), torch.tensor([2, 5, 1, 3])
    packed = pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
    (means,) = tensors_in(packed)
    expected = torch.stack([rows[i, :n].mean(0) for i, n in enumerate(lengths.tolist())])
    torch.testing.assert_close(means, expected)
    index = pack_padded_sequence(rows.long(), lengths, batch_first=True, enforce_sorted=False)
    assert list(tensors_in(index)) == []


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (ROWS, {"": (4, 3)}),
        ((ROWS.argmax(1), ROWS), {"1": (4, 3)}),
        ((MAP, ROWS[:, :, None, None]), {"1": (4, 3)}),
        ({"score": ROWS[:, 0], "loss": torch.tensor(1.0)}, {"score": (4, 1)}),
        (SimpleNamespace(logits=ROWS, hidden=torch.zeros(4, 9)), {"logits": (4, 3)}),
        ({"logits": [ROWS, ROWS]}, {"logits.0": (4, 3), "logits.1": (4, 3)}),
        (torch.zeros(4, 7, 3), {"": (4, 7, 3)}),
        (torch.zeros(0, 3), {}),
    ],
)
def test_what_may_be_logits(output: object, found: dict[str, tuple[int, ...]]) -> None:
    outputs = possible_logits(output)
    assert {place: tuple(tensor.shape) for place, tensor in outputs.items()} == found
