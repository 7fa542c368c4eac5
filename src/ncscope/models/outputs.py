"""Tensors in what a module returns, and which of a model's outputs may be logits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ncscope.errors import InputError

_DEEPEST = 8
"""Depth at which the search in nested values ends: an object may contain itself."""


def tensors_by_place(value: object, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a nested value with their places in it, depth first.

    A packed sequence counts as one tensor: the average of each sequence over its own length.

    Args:
        value: Tensor, or tuples, lists, mappings and objects that hold tensors.
        name: Place of the value, the beginning of all names.
        depth: Depth of the value in a larger one.

    Example:
        >>> [name for name, _ in tensors_by_place((None, {"a": [torch.tensor(3)]}))]
        ['1.a.0']
    """
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, PackedSequence):
        if value.data.is_floating_point():
            yield name, _means_of_sequences(value)
    elif depth < _DEEPEST:
        for key, item in _parts(value):
            yield from tensors_by_place(item, f"{name}.{key}" if name else key, depth + 1)


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in a nested value, depth first.

    Example:
        >>> list(tensors_in((None, {"a": [torch.tensor(3)], "b": torch.tensor(4)})))
        [tensor(3), tensor(4)]
    """
    return (tensor for _, tensor in tensors_by_place(value))


def first_tensor(value: object) -> Tensor | None:
    """Return the first tensor in a nested value, depth first; None if there is none.

    Example:
        >>> first_tensor((None, [torch.tensor(3), torch.tensor(4)]))
        tensor(3)
    """
    return next(tensors_in(value), None)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container, a dataclass or another object that only holds values."""
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield from ((str(index), item) for index, item in enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif not isinstance(value, type | nn.Module | torch.dtype | torch.device):
        yield from getattr(value, "__dict__", {}).items()


def _means_of_sequences(packed: PackedSequence) -> Tensor:
    """Average each sequence over its own length; the rows are in the order of the batch."""
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    total = padded.sum(dim=1)  # the padding is zero
    shape = (-1, *[1] * (total.ndim - 1))
    return total / lengths.to(total.device, total.dtype).view(shape)


def possible_logits(output: object) -> dict[str, Tensor]:
    """Return the outputs of a model that may be logits, by their places in its output.

    These are the floating-point tensors with a row for each sample, or for each token. An output
    with a tensor under the name ``logits`` has said which one it is.

    Args:
        output: Output of the model.

    Returns:
        Tensors of shape B x K, after dropping dimensions of size one other than the batch, or of
        shape B x T x K. A tensor of length B is B x 1: one logit a sample.

    Example:
        >>> outputs = possible_logits((torch.zeros(4, 9, 9, 9), torch.zeros(4, 3, 1, 1)))
        >>> {name: tuple(tensor.shape) for name, tensor in outputs.items()}
        {'1': (4, 3)}
    """
    logits = _called_logits(output)
    if isinstance(logits, Tensor):
        output = {"logits": logits}
    found = {name: _rows(tensor) for name, tensor in tensors_by_place(output)}
    return {name: rows for name, rows in found.items() if rows is not None}


def _called_logits(output: object) -> object:
    if isinstance(output, Tensor | PackedSequence):
        return None
    return output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)


def _rows(tensor: Tensor) -> Tensor | None:
    """Return a tensor as B x K or B x T x K; None if it cannot be logits."""
    if not tensor.is_floating_point() and not tensor.is_quantized:
        return None
    if tensor.is_nested or tensor.ndim == 0 or tensor.numel() == 0:
        return None
    if tensor.ndim == 1:
        return tensor[:, None]
    if tensor.numel() == tensor.shape[0] * max(tensor.shape[1:]):
        return tensor.flatten(1)
    return tensor if tensor.ndim == 3 else None


def no_logits_error(output: object) -> InputError:
    """Return the error to raise for an output without a tensor that may be logits."""
    shapes = [
        f"{f'{name} of shape ' if name else ''}{'x'.join(map(str, tensor.shape)) or 'a scalar'}"
        for name, tensor in tensors_by_place(output)
    ]
    found = type(output).__name__
    if shapes:
        found += f" with {', '.join(shapes[:4])}{', ...' if len(shapes) > 4 else ''}"
    if any(tensor.ndim == 4 and tensor.is_floating_point() for tensor in tensors_in(output)):
        return InputError(
            expected="an output with logits of shape batch x classes, or batch x tokens x classes",
            found=found,
            fix="of logits of every pixel, collect the features as rows, one a pixel, and call "
            "ncscope.measure(features, labels)",
        )
    return InputError(
        expected="an output with logits of shape batch x classes, or batch x tokens x classes",
        found=found,
        fix='pass head="...", the name of the layer that makes the logits; then the output of the '
        "model is not read",
    )


def logits_of(output: object) -> Float[Tensor, "b k"] | Float[Tensor, "b t k"]:
    """Return the logits in the output of a model that is known to return them first.

    `possible_logits` and `ncscope.models.heads.find_head` decide where this is not known.

    Args:
        output: A tensor; a mapping or an object with ``logits``; or a tuple or list, whose
            first tensor with a row for each sample is taken.

    Raises:
        InputError: If the output has no logits.

    Example:
        >>> logits_of({"loss": None, "logits": torch.zeros(4, 3, 1, 1)}).shape
        torch.Size([4, 3])
    """
    outputs = possible_logits(output)
    if not outputs:
        raise no_logits_error(output)
    return next(iter(outputs.values()))
