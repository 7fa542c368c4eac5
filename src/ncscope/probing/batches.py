"""Batches of any kind as inputs and labels, and which rows of features the labels are of."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.heads import Head

IGNORED = -100
"""The label of a token that is not to be measured, as in torch's cross-entropy."""


class EmptyLoaderError(InputError):
    """A loader without a sample, which is no error where another process has samples."""


def peek(loader: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """The first batch, and all of them including it.

    Raises:
        EmptyLoaderError: If there is none.
    """
    batches = iter(loader)
    first = next(batches, None)
    if first is None:
        fix = "pass a loader with at least one batch"
        raise EmptyLoaderError(expected="batches to measure", found="an empty loader", fix=fix)
    return first, chain([first], batches)


def split(batch: Any, device: torch.device) -> tuple[Any, Tensor]:
    """Inputs and labels of a batch, on the model's device.

    Raises:
        InputError: If it is neither a pair nor a mapping with labels.
    """
    if isinstance(batch, Mapping) and "labels" in batch:
        inputs: Any = {name: value for name, value in batch.items() if name != "labels"}
        return _moved(inputs, device), torch.as_tensor(batch["labels"]).to(device)
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return _moved(batch[0], device), torch.as_tensor(batch[1]).to(device)
    fix = "wrap the loader"
    expected = "batches of (inputs, labels), or mappings with 'labels'"
    raise InputError(expected=expected, found=type(batch).__name__, fix=fix)


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's parameters; the CPU for a model without any."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def token_labels(
    labels: Tensor, tokens: torch.Size, next_token: bool
) -> tuple[Int[Tensor, " m"], Bool[Tensor, " n"]]:
    """The labels of the tokens to measure, and which tokens these are.

    Args:
        labels: B x T, `IGNORED` where there is nothing to measure.
        tokens: B x T of the model's logits.
        next_token: Whether a token's class is the label of the token after it; of the last of a
            sequence nothing is measured then.

    Raises:
        InputError: If the labels are not one a token.

    Example:
        >>> token_labels(torch.tensor([[5, 6, -100, 8]]), torch.Size([1, 4]), next_token=True)
        (tensor([6, 8]), tensor([ True, False,  True, False]))
    """
    if labels.shape != tokens:
        raise InputError(
            expected=f"a label for each of {' x '.join(map(str, tokens))} tokens",
            found=f"labels of shape {tuple(labels.shape)}",
            fix=f"pass labels of that shape, {IGNORED} where there is nothing to measure",
        )
    if next_token:
        labels = torch.cat([labels[:, 1:], labels.new_full((len(labels), 1), IGNORED)], dim=1)
    kept = labels.flatten() != IGNORED
    return labels.flatten()[kept], kept


def check_next_token(head: Head, inputs: Any, labels: Tensor, next_token: bool) -> None:
    """Refuse what would measure something else than what is predicted.

    Raises:
        InputError: If next tokens are asked for of a model that gives one row of logits a
            sample; or not asked for where every label is the token that the model is shown.
    """
    if next_token and head.rows != "token":
        raise InputError(
            expected="logits of every token for next_token",
            found=f"one row a sample from head {head.name!r}",
            fix="leave next_token out",
        )
    shown = inputs.get("input_ids") if isinstance(inputs, Mapping) else None
    if next_token or head.rows != "token" or shown is None or shown.shape != labels.shape:
        return
    if ((shown == labels) | (labels == IGNORED)).all():
        raise InputError(
            expected="labels that the model is to predict",
            found="those of the tokens that it is shown",
            fix="pass next_token=True for a model that predicts the next token",
        )


def _moved(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [_moved(value, device) for value in inputs]
    return inputs
