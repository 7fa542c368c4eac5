"""Batches with another number of samples, for inputs of any structure."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

# A tensor; packed sequences; or a list of numbers or words, such as the lengths of sequences.
Leaf: TypeAlias = Tensor | PackedSequence | list[Any] | tuple[Any, ...]


def repeat_first_sample(inputs: object, count: int, times: int) -> Iterator[object]:
    """Yield the inputs with copies of the first sample, for every possible choice of batch axes.

    The batch axis of a tensor is its first or second axis, if that axis is as long as the batch.
    Tensors of one shape have the same batch axis. A tensor without such an axis is not changed. If
    only the second axis is as long as the batch, the tensor is also yielded unchanged. The choice
    of first axes comes first.

    Args:
        inputs: Batch without the labels, nested in lists, tuples and mappings.
        count: Number of samples in the batch.
        times: Number of copies of the first sample that replace the samples.

    Example:
        >>> x = torch.arange(9).reshape(3, 3)
        >>> [cut["x"].tolist() for cut in repeat_first_sample({"x": x, "scale": 2}, 3, times=2)]
        [[[0, 1, 2], [0, 1, 2]], [[0, 0], [3, 3], [6, 6]]]
    """
    shapes = list(dict.fromkeys(_shape(leaf) for leaf in _leaves(inputs)))
    for axes in product(*(_axes(shape, count) for shape in shapes)):
        if any(axis is not None for axis in axes):
            yield _cut(inputs, dict(zip(shapes, axes, strict=True)), times)


def _axes(shape: tuple[int, ...], count: int) -> list[int | None]:
    axes: list[int | None] = [axis for axis in (0, 1) if shape[axis : axis + 1] == (count,)]
    return axes if axes[:1] == [0] else [*axes, None]


def _cut(value: Any, axes: Mapping[tuple[int, ...], int | None], times: int) -> Any:
    if _is_leaf(value):
        axis = axes[_shape(value)]
        return value if axis is None else _repeated(value, axis, times)
    if isinstance(value, Mapping):
        return {name: _cut(item, axes, times) for name, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_cut(item, axes, times) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _repeated(leaf: Leaf, axis: int, times: int) -> Leaf:
    if isinstance(leaf, Tensor):
        return torch.cat([leaf.narrow(axis, 0, 1)] * times, dim=axis)
    if isinstance(leaf, PackedSequence):
        padded, lengths = pad_packed_sequence(leaf, batch_first=True)
        first = padded[:1].expand(times, *padded.shape[1:])
        return pack_padded_sequence(first, lengths[:1].expand(times), batch_first=True)
    return leaf[:1] * times


def _leaves(value: Any) -> Iterator[Leaf]:
    if _is_leaf(value):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)


def _is_leaf(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_nested
    if isinstance(value, PackedSequence):
        return True
    scalars = isinstance(value, tuple | list) and len(value) > 0
    return scalars and all(isinstance(item, int | float | str) for item in value)


def _shape(leaf: Leaf) -> tuple[int, ...]:
    if isinstance(leaf, PackedSequence):
        return (int(leaf.batch_sizes[0]),)
    return tuple(leaf.shape) if isinstance(leaf, Tensor) else (len(leaf),)
