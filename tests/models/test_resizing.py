"""Copies of the first sample, in inputs of any structure."""

from collections import namedtuple

import torch

from ncscope.models.resizing import repeat_first_sample

Pair = namedtuple("Pair", ["ids", "mask"])


def test_every_structure_is_kept() -> None:
    ids, mask = torch.arange(6).reshape(3, 2), torch.ones(3, 2, dtype=torch.bool)
    inputs = {"pair": Pair(ids, mask), "lengths": [2, 1, 1], "more": (None, {"scale": 2.0}, "on")}
    (found,) = repeat_first_sample(inputs, 3, times=2)
    assert torch.equal(found["pair"].ids, ids[[0, 0]])
    assert torch.equal(found["pair"].mask, mask[[0, 0]])
    assert found["lengths"] == [2, 2]
    assert found["more"] == (None, {"scale": 2.0}, "on")


def test_first_axes_come_first_and_second_ones_may_be_positions() -> None:
    square, positions = torch.rand(3, 3, 1), torch.rand(1, 3)
    shapes = [
        (tuple(a.shape), tuple(b.shape))
        for a, b in repeat_first_sample([square, positions], 3, times=2)
    ]
    first, second = (2, 3, 1), (3, 2, 1)
    assert shapes == [(first, (1, 2)), (first, (1, 3)), (second, (1, 2)), (second, (1, 3))]


def test_inputs_without_the_samples_cannot_be_cut() -> None:
    assert list(repeat_first_sample([torch.rand(4, 4), 3, []], 3, times=2)) == []
