"""Splitting of batches into inputs and labels, and selection of the tokens to measure."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ncscope.array_checks import IGNORED, as_tensor
from ncscope.devices import move_to, refuse_without_float64
from ncscope.errors import InputError
from ncscope.models.forward import LABEL_ARGUMENTS, first_tensor
from ncscope.models.heads import Head


class EmptyLoaderError(InputError):
    """A loader without samples, which is no error if another process has samples."""


def peek(loader: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """Return the first batch, and an iterable of all batches; batches without samples are skipped.

    Raises:
        EmptyLoaderError: If there is no sample.
        InputError: If a batch has another form than `split` takes.
    """
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        found, fix = type(loader).__name__, "pass a DataLoader or a list of (inputs, labels)"
        raise InputError(expected="an iterable of batches", found=found, fix=fix)
    batches, skipped = iter(loader), 0
    for first in batches:
        if _has_samples(first):
            return first, chain([first], filter(_has_samples, batches))
        skipped += 1
    found = f"{skipped} batches without samples" if skipped else "an empty loader"
    fix = "pass a loader with at least one sample; a generator can be read only once"
    raise EmptyLoaderError(expected="batches to measure", found=found, fix=fix)


def split(batch: Any, device: torch.device) -> tuple[Any, Tensor]:
    """Return the inputs of a batch on the model's device, and its labels.

    Labels stay where they are: checking them on the CPU does not wait for an accelerator.

    Args:
        batch: Batch of the loader.
        device: Device of the model.

    Raises:
        InputError: If the batch is neither a pair nor a mapping with labels, the labels are no
            numbers or a single number, or there are labels but no inputs.
    """
    inputs, given = _parts(batch)
    labels = _numbers(given)
    if labels.ndim == 0:
        fix = "pass a DataLoader, which makes batches of the samples"
        found = "a single label"
        raise InputError(expected="a label for each sample of a batch", found=found, fix=fix)
    if isinstance(inputs, Tensor) and inputs.shape[:1] == (0,) and len(labels):
        expected = f"inputs of {len(labels)} samples, as many as labels"
        raise InputError(expected=expected, found="none", fix="pass matching inputs and labels")
    return _move(inputs, device), labels


def find_module_device(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters; the CPU for a model without any.

    Raises:
        InputError: If the device has no float64.
    """
    parameter = next(model.parameters(), None)
    if parameter is None:
        return torch.device("cpu")
    refuse_without_float64(parameter.device, "model")
    return parameter.device


def token_labels(
    labels: Tensor, tokens: torch.Size, next_token: bool, mask: Tensor | None = None
) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Return the labels of the tokens to measure, and the indices of these tokens.

    Args:
        labels: B x T labels, `IGNORED` for tokens that are not to be measured.
        tokens: Shape B x T of the model's logits, without the classes.
        next_token: Take the label of the following token as a token's class if True; the last
            token of a sequence is then not measured.
        mask: B x T, false for padding, which is not measured and predicts nothing; None for none.

    Raises:
        InputError: If there is not one label for each token.

    Example:
        >>> token_labels(torch.tensor([[5, 6, -100, 8]]), torch.Size([1, 4]), next_token=True)
        (tensor([6, 8]), tensor([0, 2]))
    """
    if labels.shape != tokens:
        raise InputError(
            expected=f"a label for each of {' x '.join(map(str, tokens))} tokens",
            found=f"labels of shape {tuple(labels.shape)}",
            fix=f"pass labels of that shape, {IGNORED} where there is nothing to measure",
        )
    if mask is not None:
        real = mask.to(labels.device)
        if next_token:  # padding on the left would predict the first token
            real = torch.cat([real[:, :1], real[:, 1:] & real[:, :-1]], dim=1)
        labels = labels.masked_fill(~real, IGNORED)
    if next_token:
        labels = torch.cat([labels[:, 1:], labels.new_full((len(labels), 1), IGNORED)], dim=1)
    kept = torch.nonzero(labels.flatten() != IGNORED).squeeze(1)
    return labels.flatten()[kept], kept


def ood_batches(loader: Iterable[Any], device: torch.device) -> Iterator[tuple[Any, Any]]:
    """Yield the inputs of batches on the model's device, and labels if there are any, else None.

    Args:
        loader: Iterable of inputs, of ``(inputs, labels)``, of tuples or lists with the inputs
            alone, or of mappings with or without ``labels``. Batches without samples are skipped.
        device: Device of the model.

    Raises:
        InputError: If the loader is not iterable, or yields samples instead of batches.
    """
    fix = "pass a DataLoader, or [inputs] for one batch"
    iterable = isinstance(loader, Iterable) or hasattr(loader, "__getitem__")
    if not iterable or isinstance(loader, Tensor | np.ndarray):  # an array yields its samples
        found = type(loader).__name__
        raise InputError(expected="an iterable of OOD batches", found=found, fix=fix)
    for batch in iter(loader):
        inputs, labels = batch, None
        if isinstance(batch, Mapping):
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            labels = batch.get("labels")
        elif isinstance(batch, tuple | list) and len(batch) in (1, 2):
            inputs, labels = batch[0], batch[1] if len(batch) == 2 else None
        if isinstance(labels, int) or (isinstance(labels, Tensor) and labels.ndim == 0):
            found = "a sample with a single label"
            raise InputError(expected="batches of OOD samples", found=found, fix=fix)
        first = first_tensor(inputs)
        if first is None or first.shape[:1] != (0,):
            yield _move(inputs, device), labels


def token_indices(
    labels: Any, tokens: torch.Size, next_token: bool, mask: Tensor | None
) -> Int[Tensor, " m"]:
    """Return the indices of the tokens to compare, which labels and mask do not exclude.

    Args:
        labels: Labels of the tokens, of which only `IGNORED` counts; anything else for none.
        tokens: Shape B x T of the model's logits, without the classes.
        next_token: Leave out tokens without a following token if True.
        mask: B x T, false for padding; None for none.
    """
    given = labels if isinstance(labels, Tensor) and labels.shape == tokens else torch.zeros(tokens)
    return token_labels(given.to(torch.int64), tokens, next_token, mask)[1]


def check_next_token(head: Head, inputs: Any, labels: Tensor, next_token: bool) -> None:
    """Check that the labels are what the model predicts.

    Raises:
        InputError: If ``next_token`` is set for a model with one row of logits for each sample or
            for labels that are those of the next token already, or is not set although every label
            equals the token that the model reads.
    """
    if next_token and head.rows != "token":
        raise InputError(
            expected="logits of every token for next_token",
            found=f"one row a sample from head {head.name!r}",
            fix="leave next_token out",
        )
    if head.rows != "token":
        return
    if isinstance(inputs, Mapping):  # a model may also be given its targets
        inputs = [value for name, value in inputs.items() if name not in LABEL_ARGUMENTS]
    shown = first_tensor(inputs)
    if shown is None or shown.shape != labels.shape or shown.is_floating_point():
        return
    tokens = shown.to(labels.device)
    same = bool(((tokens == labels) | (labels == IGNORED)).all())
    before, after = labels[:, :-1], tokens[:, 1:]
    if next_token:
        if not same and after.numel() and bool(((before == after) | (before == IGNORED)).all()):
            raise InputError(
                expected="labels of the tokens that the model is shown, for next_token",
                found="those of the tokens that follow",
                fix="leave next_token out: the labels are what the model is to predict",
            )
        return
    if same:
        raise InputError(
            expected="labels that the model is to predict",
            found="those of the tokens that it is shown",
            fix="pass next_token=True for a model that predicts the next token",
        )


def _parts(batch: Any) -> tuple[Any, Any]:
    """Return the inputs and the labels of a batch as the loader yields it."""
    if isinstance(batch, Mapping) and "labels" in batch:
        return {name: value for name, value in batch.items() if name != "labels"}, batch["labels"]
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    found, fix = type(batch).__name__, "wrap the loader, or pass [(inputs, labels)] for one batch"
    if isinstance(batch, Mapping):
        found, fix = f"{found} with keys {', '.join(map(str, batch))}", "name the labels 'labels'"
    elif isinstance(batch, tuple | list):
        found = f"{found} of {len(batch)}"
    expected = "batches of (inputs, labels), or mappings with 'labels'"
    raise InputError(expected=expected, found=found, fix=fix)


def _numbers(labels: Any) -> Tensor:
    """Return labels as a tensor; if they are no numbers, advise to number them in the data set."""
    fix = "let the data set number its classes, with the same number in every batch"
    if labels is None:
        raise InputError(expected="a label for each sample", found="None as labels", fix=fix)
    try:
        return as_tensor(labels, "labels")
    except InputError as error:
        found = error.found
        if isinstance(labels, list | tuple | np.ndarray) and len(labels):
            kinds = sorted({type(label).__name__ for label in labels})
            found = f"{type(labels).__name__} of {', '.join(kinds)}"
        raise InputError(expected=error.expected, found=found, fix=fix) from error


def _has_samples(batch: Any) -> bool:
    """Return whether a batch holds inputs or labels."""
    inputs, labels = _parts(batch)
    first = first_tensor(inputs)
    if first is not None:
        empty = first.shape[:1] == (0,)
    else:
        empty = isinstance(inputs, Sized) and len(inputs) == 0
    return not empty or _numbers(labels).shape[:1] != (0,)


def _move(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return move_to(inputs, device)
    if isinstance(inputs, PackedSequence):
        packed: Any = inputs
        return packed.to(device)
    if isinstance(inputs, Mapping):
        return {name: _move(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [_move(value, device) for value in inputs]
    return inputs


def with_progress(
    batches: Iterable[Any], total: int | None, what: str, show: bool
) -> Iterable[Any]:
    """Return batches that move a progress bar on stderr as they are read.

    Args:
        batches: Iterable of batches.
        total: Number of batches, if it is known.
        what: Word before the bar.
        show: Show the bar if True, and if stderr is a terminal.
    """
    # Imported inside `evaluation_mode`, which restores the random states: rich draws a number when
    # it is imported.
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    hidden = not (show and console.is_terminal)  # outside of a terminal, rich writes an empty line
    return track(batches, what, total, console=console, disable=hidden, transient=True)
