"""Forward passes: the batch that goes in, and tensors, logits and decisions that come out."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ncscope.array_checks import type_name
from ncscope.errors import InputError, list_names
from ncscope.models.networks.simplex_head import SimplexHead
from ncscope.models.sharding import is_sharded

LABEL_ARGUMENTS = ("labels", "label", "targets", "target", "y")
"""Names that models give to the argument for the labels."""

_ROWS = 1024
"""Rows of logits that are compared at once, so that the comparisons take little memory."""

_DEEPEST = 8
"""Depth at which the search in nested values ends: an object may contain itself."""


def forward(model: nn.Module, inputs: object) -> Any:
    """Call a model on a batch in the form in which a loader yields it.

    Args:
        model: Any module.
        inputs: A tensor; a tuple or list, passed as positional arguments; or a mapping, passed as
            keyword arguments.

    Example:
        >>> import torch
        >>> forward(nn.Linear(3, 2), {"input": torch.ones(4, 3)}).shape
        torch.Size([4, 2])
    """
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple | list) and not isinstance(inputs, PackedSequence):
        return model(*inputs)
    return model(inputs)


def argument_names(module: nn.Module) -> list[str]:
    """Return the names of the arguments of a module's forward pass; none if they are unknown."""
    try:
        return list(signature(module.forward).parameters)
    except (TypeError, ValueError):
        return []


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
            # The rows of `data` are sorted by length; unpacking restores the order of the batch.
            padded, lengths = pad_packed_sequence(value, batch_first=True)
            total = padded.sum(dim=1)  # the padding is zero
            shape = (-1, *[1] * (total.ndim - 1))
            yield name, total / lengths.to(total.device, total.dtype).view(shape)
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


def possible_logits(output: object, *, maps: bool = True) -> dict[str, Tensor]:
    """Return the outputs of a model that may be logits, by their places in its output.

    These are the floating-point tensors with a row for each sample, or for each token; if there are
    none, those with a row for each pixel. An output with a tensor under the name ``logits`` has
    said which one it is.

    Args:
        output: Output of the model.
        maps: False to take no tensors with a row for each pixel.

    Returns:
        Tensors of shape B x K, after dropping dimensions of size one other than the batch, or of
        shape B x T x K, where a token may be a pixel of a map B x K x H x W. A tensor of length B
        is B x 1: one logit a sample.

    Example:
        >>> outputs = possible_logits((torch.zeros(4, 9, 9, 9), torch.zeros(4, 3, 1, 1)))
        >>> {name: tuple(tensor.shape) for name, tensor in outputs.items()}
        {'1': (4, 3)}
    """
    if isinstance(output, Mapping):
        logits = output.get("logits")
    elif isinstance(output, Tensor | PackedSequence):
        logits = None
    else:
        logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        output = {"logits": logits}
    tensors = dict(tensors_by_place(output))
    rows_by_place = {place: _rows(tensor) for place, tensor in tensors.items()}
    found = {place: rows for place, rows in rows_by_place.items() if rows is not None}
    if found or not maps:  # a map beside logits of samples is one of features
        return found
    return {place: pixel_rows(t) for place, t in tensors.items() if is_map(t)}


def is_map(tensor: Tensor) -> bool:
    """Return whether a tensor may be a map of features or logits, B x C x H x W or more."""
    numbers = tensor.is_floating_point() or tensor.is_quantized
    return numbers and not tensor.is_nested and tensor.ndim > 3 and tensor.numel() > 0


def pixel_rows(tensor: Tensor) -> Tensor:
    """Return a map B x C x H x W as rows, one a pixel, B x HW x C, without a copy if possible."""
    return tensor.flatten(2).transpose(1, 2)


def advise_resolution(given: Sequence[int], pixels: Sequence[int]) -> str:
    """Say how to bring labels of pixels to the resolution of the logits.

    Args:
        given: Shape H x W of the labels.
        pixels: Shape of the logits.

    Example:
        >>> advise_resolution([8, 8], [4, 4])
        'split_batch=lambda batch: (batch[0], batch[1][..., ::2, ::2])'
        >>> advise_resolution([6, 8], [8, 6])
        'split_batch=lambda batch: (batch[0], batch[1].transpose(-1, -2))'
    """
    whole = [(given, "batch[1]")]
    if len(given) == 2:
        whole.append((given[::-1], "batch[1].transpose(-1, -2)"))
    for shape, labels in whole:
        step = shape[0] // pixels[0]
        if step < 1 or [step * each for each in pixels] != list(shape):
            continue
        every = f"[..., {', '.join([f'::{step}'] * len(pixels))}]" if step > 1 else ""
        return f"split_batch=lambda batch: (batch[0], {labels}{every})"
    return (
        "split_batch=lambda batch: (batch[0], torch.nn.functional.interpolate(batch[1][:, None]"
        f".float(), {tuple(pixels)})[:, 0].long())"
    )


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
        f"{'' if tensor.is_floating_point() else f' of {type_name(tensor.dtype)}'}"
        for name, tensor in tensors_by_place(output)
    ]
    found = type(output).__name__
    if shapes:
        found += f" with {list_names(shapes, 4)}"
    return InputError(
        expected="an output with logits of shape batch x classes, or batch x tokens x classes",
        found=found,
        fix='pass head="...", the name of the layer that makes the logits; then the output of the '
        "model is not read",
    )


def copy_inputs(inputs: Any) -> Any:
    """Copy a batch: a model may change its inputs in place.

    Tensors in tuples, lists and dictionaries are copied, and objects of other kinds with all that
    they hold, such as a batch of graphs. What cannot be copied is returned.
    """
    if isinstance(inputs, Tensor):
        return inputs.clone().detach_()
    if isinstance(inputs, PackedSequence):
        return inputs._replace(data=inputs.data.clone().detach_())
    if type(inputs) is dict:
        return {name: copy_inputs(value) for name, value in inputs.items()}
    if type(inputs) in (tuple, list):
        return type(inputs)(map(copy_inputs, inputs))
    try:
        return deepcopy(inputs)
    except Exception:  # of any kind, as the objects are
        return inputs


def logits_of(output: object) -> Float[Tensor, "b k"] | Float[Tensor, "b t k"]:
    """Return the logits in the output of a model that is known to return them first.

    `possible_logits` and `ncscope.models.heads.find_head` decide for other models.

    Args:
        output: A tensor; a mapping or an object with ``logits``; or a tuple or list, whose
            first tensor with a row for each sample is taken.

    Raises:
        InputError: If the output has no logits.

    Example:
        >>> logits_of({"loss": None, "logits": torch.zeros(4, 3, 1, 1)}).shape
        torch.Size([4, 3])
    """
    outputs = possible_logits(output, maps=False)
    if not outputs:
        raise no_logits_error(output)
    return next(iter(outputs.values()))


def mark_ties(logits: Tensor, classes: Tensor) -> Tensor:
    """Return which rows have several equal greatest logits, or NaN.

    Args:
        logits: Logits of shape B x K or B x T x K. Of sharded ones (DTensor) no row is marked.
        classes: Class of the greatest logit of each row, as `predict_classes` returns it.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0], [torch.nan, 0.0, 1.0]])
        >>> mark_ties(logits, logits.argmax(1))
        tensor([False,  True,  True])
    """
    if is_sharded(logits):
        return torch.zeros_like(classes, dtype=torch.bool)
    best = logits.gather(-1, classes[..., None]).flatten(0, -2)
    blocks = zip(logits.flatten(0, -2).split(_ROWS), best.split(_ROWS), strict=True)
    return torch.cat([(rows == top).sum(-1) != 1 for rows, top in blocks]).view(classes.shape)


def classifier(model: nn.Module) -> nn.Linear | SimplexHead:
    """Return the classifier of a network of the catalogue: the last of its linear layers.

    Args:
        model: The network, possibly wrapped by Fabric or DDP.

    Example:
        >>> classifier(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
        Linear(in_features=3, out_features=2, bias=True)
    """
    kinds = (nn.Linear, SimplexHead)
    return [module for module in model.modules() if isinstance(module, kinds)][-1]


def features_and_logits(
    model: nn.Module, inputs: Float[Tensor, "b ..."]
) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b k"]]:
    """Return the input and the output of the classifier, both part of the autograd graph.

    The model is called once, as a whole, so that DDP and autocast work as without this function:
    the features are in the precision in which the classifier received them.

    Args:
        model: A network of the catalogue, possibly wrapped by Fabric or DDP.
        inputs: A batch.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> features, logits = features_and_logits(model, torch.ones(5, 4))
        >>> torch.equal(model[2](features), logits)
        True
    """
    inputs_of_head: list[Tensor] = []
    head = classifier(model)
    handle = head.register_forward_pre_hook(lambda module, args: inputs_of_head.append(args[0]))
    try:
        logits = model(inputs)
    finally:
        handle.remove()
    (features,) = inputs_of_head
    return features.flatten(1), logits
