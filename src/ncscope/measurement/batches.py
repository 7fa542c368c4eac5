"""Splitting of batches into inputs and labels, and selection of the tokens to measure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from inspect import Parameter, signature
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ncscope.arguments import describe
from ncscope.array_checks import IGNORED
from ncscope.devices import move_to, refuse_without_float64
from ncscope.errors import InputError, say_error
from ncscope.labels import IgnoreIndex, is_ignored
from ncscope.measurement.head_classes import LABEL_KEYS, HeadClasses
from ncscope.measurement.options import SplitBatch
from ncscope.models.forward import LABEL_ARGUMENTS, advise_resolution, first_tensor
from ncscope.models.heads import Head

Loader: TypeAlias = Iterable[Any] | Dataset[Any]
"""Batches, or a data set of samples."""

Batch: TypeAlias = tuple[Any, Any]
"""Inputs and labels of a batch, as the loader yields them."""

_BATCH = 64
"""Samples in a batch of a data set that is given without a loader."""


class EmptyLoaderError(InputError):
    """A loader without samples, which is no error if another process has samples."""


def as_batches(loader: Loader, split_batch: SplitBatch = None) -> Iterable[Any]:
    """Return a loader of batches of a data set or a list of samples; a loader is returned as is.

    A data set of torch or of the library ``datasets`` holds samples, and so does a list of pairs
    with a single label each. Samples are read in their order, 64 in a batch.

    Args:
        loader: Loader, data set, or list of batches or samples.
        split_batch: Option of the user; a function tells nothing about a sample.

    Raises:
        InputError: If an item of the data set may be a sample or a batch, or is not of torch.
    """
    given: Any = loader  # a data set of torch is no iterable for a type checker
    if hasattr(given, "column_names") and hasattr(given, "__getitem__"):  # of the library
        if isinstance(given, Mapping):
            found, fix = f"the splits {', '.join(map(str, given))}", "pass one of them"
            raise InputError(expected="one data set", found=found, fix=fix)
        if given.format["type"] not in ("torch", "custom"):
            fix = "pass dataset.with_format('torch'), or a DataLoader"
            kinds = {
                name: getattr(kind, "dtype", "") for name, kind in (given.features or {}).items()
            }
            texts = [name for name, kind in kinds.items() if kind == "string"]
            if texts and all(kind in ("string", "int64") for kind in kinds.values()):
                fix = f"map the model's tokenizer over the column {texts[0]!r}, then {fix}"
            raise InputError(
                expected="a data set in the format of torch",
                found=f"format {given.format['type']}",
                fix=fix,
            )
        holds_samples = True
    elif isinstance(given, Dataset):
        items: Any = loader
        holds_samples = isinstance(given, Sized) and not isinstance(given, IterableDataset)
        first = items[0] if holds_samples and len(items) else None
        pair = first[:2] if isinstance(first, tuple | list) else ()
        tensors = [first_tensor([part]) for part in pair]
        lengths = [tensor.shape[:1] for tensor in tensors if tensor is not None]
        if len(lengths) > 1 and lengths[0] == lengths[1] != torch.Size():
            raise InputError(
                expected="a loader, or a data set of single samples",
                found=f"a data set of items with {lengths[1][0]} labels",
                fix="pass DataLoader(dataset, batch_size=64) if an item is a sample, and "
                "DataLoader(dataset, batch_size=None) if it is a batch",
            )
    else:
        first, label = None, None
        if isinstance(given, list | tuple) and given and not callable(split_batch):
            first = given[0]
        if isinstance(first, Mapping):
            keys = LABEL_KEYS if split_batch is None else (split_batch,)
            label = next((first[key] for key in keys if key in first), None)
        elif isinstance(first, tuple | list) and len(first) in (2, 3):
            label = first[1]
        holds_samples = _is_single(label)
    return DataLoader(given, _BATCH, collate_fn=_collate) if holds_samples else given


def _is_single(label: Any) -> bool:
    """Return whether a label is that of one sample."""
    if isinstance(label, Tensor | np.ndarray):
        return label.ndim == 0
    return isinstance(label, int | float | str | np.generic)


def _collate(samples: list[Any]) -> Any:
    """Make a batch of samples."""
    try:
        return default_collate(samples)
    except (TypeError, RuntimeError, KeyError) as error:
        raise InputError(
            expected="samples as tensors of one size, with a label each",
            found=say_error(error),
            fix="pass a DataLoader with the transform and collate_fn of your training",
        ) from error


def peek(
    loader: Iterable[Any], model: nn.Module, split_batch: SplitBatch = None
) -> tuple[Batch, Iterable[Batch], Any]:
    """Return the first batch and an iterable of all batches, each as inputs and labels.

    The third value is the first batch as the loader yields it.

    Batches without samples are skipped.

    Args:
        loader: Iterable of batches.
        model: Model that will run on the batches.
        split_batch: Option of the user, as for `split`.

    Raises:
        EmptyLoaderError: If there is no sample.
        InputError: If a batch has another form than `split` takes.
    """
    if not isinstance(loader, Iterable) and not hasattr(loader, "__getitem__"):
        found, fix = type(loader).__name__, "pass a DataLoader or a list of (inputs, labels)"
        raise InputError(expected="an iterable of batches", found=found, fix=fix)
    given = iter(loader)
    skipped = 0
    for batch in given:
        first = split(batch, model, split_batch)
        if _has_samples(first):
            others = (split(other, model, split_batch) for other in given)
            return first, chain([first], filter(_has_samples, others)), batch
        skipped += 1
    found = f"{skipped} batches without samples" if skipped else "an empty loader"
    fix = "pass a loader with at least one sample; a generator can be read only once"
    raise EmptyLoaderError(expected="batches to measure", found=found, fix=fix)


def split(batch: Any, model: nn.Module, split_batch: SplitBatch = None) -> Batch:
    """Return the inputs and the labels of a batch as the loader yields it.

    Args:
        batch: Batch of the loader: a pair; three entries of which the second is certainly the
            labels, as in (images, labels, indices); or a mapping with labels.
        model: Model that will run on the batch.
        split_batch: Function that returns inputs and labels of a batch, or name of the entry of
            the labels; None for the usual forms.

    Raises:
        InputError: If the batch has another form, or the user's function fails.
    """
    if callable(split_batch):
        expected, fix = "inputs and labels from split_batch", "return the two from a batch"
        try:
            parts = split_batch(batch)
        except Exception as error:
            found = f"{type(error).__name__}: {say_error(error)}"
            raise InputError(expected=expected, found=found, fix=fix) from error
        if isinstance(parts, tuple | list) and len(parts) == 2:
            return parts[0], parts[1]
        raise InputError(expected=expected, found=describe(parts), fix=fix)
    advice = "pass split_batch, a function that returns inputs and labels of a batch"
    expected = "batches of (inputs, labels), or mappings with 'labels'"
    found = type(batch).__name__
    if isinstance(batch, Mapping):
        found = f"{found} with keys {', '.join(map(str, batch))}"
        key, several = split_batch, False
        if key is None:
            keys = [key for key in LABEL_KEYS if key in batch]
            several = len(keys) > 1 and keys[0] != LABEL_KEYS[0]
            key = keys[0] if keys else LABEL_KEYS[0]
        if key in batch and not several:
            # Tokens are labels (of next_token) and inputs in one.
            inputs = {each: batch[each] for each in batch if each != key or key == "input_ids"}
            return inputs, batch[key]
        if several:
            expected = "one entry of labels in a batch"
        fix = "pass split_batch, the name of the entry of the labels"
        if "input_ids" in batch:
            fix += "; for next_token=True that is split_batch='input_ids'"
        raise InputError(expected=expected, found=found, fix=fix)
    if split_batch is not None:
        expected = f"mappings with {split_batch!r}, as split_batch says"
    elif isinstance(batch, tuple | list):
        if len(batch) == 2 or _is_indexed(batch, model):
            return batch[0], batch[1]
        found = f"{found} of {len(batch)}"
    else:
        advice = "wrap the loader, or pass [(inputs, labels)] for one batch"
    raise InputError(expected=expected, found=found, fix=advice)


def _is_indexed(batch: Sequence[Any], model: nn.Module) -> bool:
    """Return whether the second of three entries is certainly the labels, and the third is not.

    The third may be anything but labels: texts, or numbers that all differ, as indices do. The
    first is all that the model takes: else the second could be an input, such as lengths.
    """
    if len(batch) != 3 or not isinstance(batch[0], Tensor) or batch[0].ndim == 0:
        return False
    _, second, third = batch
    count = len(batch[0])
    parameters = _positional(model)
    if parameters is None or sum(each.default is each.empty for each in parameters) > 1:
        return False

    def is_one_a_sample(entry: Any) -> bool:
        if not isinstance(entry, Tensor):
            return False
        integers = not (entry.is_floating_point() or entry.is_complex())
        return integers and entry.shape == (count,)

    words = isinstance(second, list | tuple) and all(isinstance(each, str) for each in second)
    if not is_one_a_sample(second) and not (words and len(second) == count):
        return False
    if isinstance(third, Tensor):
        return is_one_a_sample(third) and len(third.unique()) == count
    if not isinstance(third, list | tuple) or not all(isinstance(e, int | str) for e in third):
        return not isinstance(third, np.ndarray)
    return len(set(third)) == len(third)  # else these may be labels or their names


def check_third_entry(batch: Any, rows: int, split_batch: SplitBatch = None) -> None:
    """Refuse a first batch of three entries whose third could be the labels.

    Numbers that all differ are no labels only if one is too large: samples of many classes may all
    have different labels, and the second entry may be their domain.

    Args:
        batch: First batch with samples, as the loader yields it.
        rows: Number of rows of the model's head.
        split_batch: Option of the user, as for `split`.

    Raises:
        InputError: If the third entry is integers that are all below ``rows``.

    Example:
        >>> x, domains = torch.zeros(2, 4), torch.tensor([0, 1])
        >>> check_third_entry((x, domains, torch.tensor([0, 7])), rows=3)
        >>> check_third_entry((x, domains, torch.tensor([0, 2])), rows=3)
        Traceback (most recent call last):
        ...
        ncscope.errors.InputError: expected batches of (inputs, labels), found three entries, of ...
    """
    if split_batch is not None or not isinstance(batch, tuple | list) or len(batch) != 3:
        return
    third = batch[2]
    if isinstance(third, list | tuple) and all(isinstance(each, int) for each in third):
        third = torch.tensor(third, device="cpu")
    if isinstance(third, Tensor) and bool((third < max(rows, 2)).all()):
        raise InputError(
            expected="batches of (inputs, labels)",
            found="three entries, of which the second or the third may be the labels",
            fix="pass split_batch=lambda batch: (batch[0], batch[1]), or batch[2] for the third",
        )


def _positional(model: nn.Module) -> list[Parameter] | None:
    """Return the parameters of a forward pass that may be given by position; None if unknown."""
    try:
        parameters = list(signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return None
    if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        return None
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in parameters if each.kind in kinds]


def prepare_batch(batch: Batch, model: nn.Module, classes: HeadClasses) -> tuple[Any, Tensor]:
    """Return the inputs of a batch as the model takes them, on its device, and numbers as labels.

    Labels stay where they are: checking them on the CPU does not wait for an accelerator.

    Args:
        batch: Inputs and labels, as `split` returns them.
        model: Model that will run on the batch.
        classes: Names of the classes.

    Raises:
        InputError: If the labels are no numbers or known names, or a single one; there are labels
            but no inputs; or the inputs are not those that the model takes.
    """
    inputs, given = batch
    labels = classes.number(given)
    if labels.ndim == 0:
        fix = "pass a DataLoader, which makes batches of the samples"
        found = "a single label"
        raise InputError(expected="a label for each sample of a batch", found=found, fix=fix)
    if isinstance(inputs, Tensor) and inputs.shape[:1] == (0,) and len(labels):
        expected = f"inputs of {len(labels)} samples, as many as labels"
        raise InputError(expected=expected, found="none", fix="pass matching inputs and labels")
    _refuse_views(inputs, labels, model)
    # A loader may write the next batch into the same memory, as FFCV's does, and labels are kept.
    return move_inputs(inputs, model), labels.clone()


def move_inputs(inputs: Any, model: nn.Module) -> Any:
    """Return inputs in the form in which the model takes them, on its device.

    A mapping is passed by name. If the model's forward pass has no argument of the name of a single
    entry, the entry is passed by position.

    Raises:
        InputError: If several entries have names that the forward pass does not take.
    """
    positional = _positional(model)
    if isinstance(inputs, Mapping) and positional is not None:
        parameters = signature(model.forward).parameters
        unknown = [name for name in inputs if name not in parameters]
        takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
        if unknown and len(inputs) == 1 and positional:
            (only,) = inputs.values()
            inputs = only if isinstance(only, Tensor) else [only]
        elif unknown and not takes_any:
            raise InputError(
                expected=f"inputs that the model takes: {', '.join(parameters) or 'none'}",
                found=f"also {', '.join(map(repr, unknown))}",
                fix="pass split_batch, a function that returns inputs and labels of a batch",
            )
    return _move(inputs, find_module_device(model))


def _refuse_views(inputs: Any, labels: Tensor, model: nn.Module) -> None:
    """Refuse several views of each sample, as contrastive learning has, for a model of one."""
    if not isinstance(inputs, tuple | list) or len(inputs) < 2:
        return
    positional = _positional(model)
    alike = all(
        isinstance(each, Tensor) and each.is_floating_point() and each.shape == inputs[0].shape
        for each in inputs
    )
    if alike and inputs[0].shape[:1] == labels.shape[:1] and positional and len(positional) == 1:
        views = len(inputs)
        raise InputError(
            expected="one tensor of inputs, as the model takes",
            found=f"{views} of shape {tuple(inputs[0].shape)} for {len(labels)} labels, as of "
            f"{views} views of each sample",
            fix="measure every view as a sample: split_batch=lambda batch: (torch.cat(batch[0]), "
            f"batch[1].repeat({views}))",
        )


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
    labels: Tensor,
    tokens: torch.Size,
    next_token: bool,
    mask: Tensor | None = None,
    pixels: Sequence[int] = (),
    ignored: IgnoreIndex = IGNORED,
) -> tuple[Shaped[Tensor, " m"], Int[Tensor, " m"]]:
    """Return the labels of the tokens to measure, and the indices of these tokens.

    Args:
        labels: B x T labels, or B x H x W for pixels.
        tokens: Shape B x T of the model's logits, without the classes.
        next_token: Take the label of the following token as a token's class if True; the last
            token of a sequence is then not measured.
        mask: B x T, false for padding, which is not measured and predicts nothing; None for none.
        pixels: Shape H x W of a map of logits, whose pixels are the tokens; empty for sequences.
        ignored: Labels of tokens that are not to be measured.

    Raises:
        InputError: If there is not one label for each token.

    Example:
        >>> token_labels(torch.tensor([[5, 6, -100, 8]]), torch.Size([1, 4]), next_token=True)
        (tensor([6, 8]), tensor([0, 2]))
    """
    if pixels:
        labels = _flatten_pixels(labels, tokens[0], pixels)
    if labels.shape != tokens:
        raise InputError(
            expected=f"a label for each of {' x '.join(map(str, tokens))} tokens",
            found=f"labels of shape {tuple(labels.shape)}",
            fix=f"pass labels of that shape, {IGNORED} where there is nothing to measure",
        )
    is_measured = torch.ones_like(labels, dtype=torch.bool)
    if mask is not None:
        is_measured = mask.to(labels.device)
        if next_token:  # padding on the left would predict the first token
            is_measured = torch.cat(
                [is_measured[:, :1], is_measured[:, 1:] & is_measured[:, :-1]], dim=1
            )
    if next_token:
        last = torch.zeros_like(is_measured[:, :1])
        is_measured = torch.cat([is_measured[:, 1:], last], dim=1)
        labels = torch.cat([labels[:, 1:], labels[:, :1]], dim=1)
    is_measured = is_measured & ~is_ignored(labels, ignored)
    kept = torch.nonzero(is_measured.flatten()).squeeze(1)
    return labels.flatten()[kept], kept


def ood_batches(
    loader: Iterable[Any], model: nn.Module, split_batch: SplitBatch = None
) -> Iterator[tuple[Any, Any]]:
    """Yield the inputs of batches on the model's device, and labels if there are any, else None.

    Args:
        loader: Iterable of inputs, of batches as `split` takes them, or of tuples or lists with the
            inputs alone. Batches without samples are skipped.
        model: Model that will run on the batches.
        split_batch: Option of the user, as for `split`; tensors alone are inputs in any case.

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
        keys = LABEL_KEYS if not isinstance(split_batch, str) else (split_batch,)
        if isinstance(batch, Mapping) and not callable(split_batch):
            if any(key in batch for key in keys):
                inputs, labels = split(batch, model, split_batch)
        elif isinstance(batch, tuple | list) and len(batch) == 1:
            inputs = batch[0]
        elif callable(split_batch) and not isinstance(batch, Tensor):
            inputs, labels = split(batch, model, split_batch)
        elif isinstance(batch, tuple | list) and (len(batch) == 2 or _is_indexed(batch, model)):
            inputs, labels = batch[:2]
        if isinstance(labels, int) or (isinstance(labels, Tensor) and labels.ndim == 0):
            found = "a sample with a single label"
            raise InputError(expected="batches of OOD samples", found=found, fix=fix)
        first = first_tensor(inputs)
        if first is None or first.shape[:1] != (0,):
            yield move_inputs(inputs, model), labels


def _flatten_pixels(labels: Tensor, count: int, pixels: Sequence[int]) -> Tensor:
    """Return labels of pixels as B x T; an axis of one channel is dropped."""
    if labels.shape == (count, math.prod(pixels)):
        return labels
    if labels.shape in ((count, *pixels), (count, 1, *pixels)):
        return labels.flatten(1)
    fix = "pass the label of each pixel; a model of whole samples needs logits that are pooled"
    if labels.ndim > len(pixels):
        advice = advise_resolution(labels.shape[-len(pixels) :], pixels)
        fix = f"take the labels of these pixels: {advice}"
    raise InputError(
        expected=f"a label for each pixel of the logits, {count} x {' x '.join(map(str, pixels))}",
        found=f"labels of shape {tuple(labels.shape)}",
        fix=fix,
    )


def token_indices(
    labels: Any,
    tokens: torch.Size,
    next_token: bool,
    mask: Tensor | None,
    pixels: Sequence[int] = (),
) -> Int[Tensor, " m"]:
    """Return the indices of the tokens to compare, which labels and mask do not exclude.

    Args:
        labels: Labels of the tokens, of which only `IGNORED` counts; anything else for none.
        tokens: Shape B x T of the model's logits, without the classes.
        next_token: Leave out tokens without a following token if True.
        mask: B x T, false for padding; None for none.
        pixels: Shape of a map of logits, as for `token_labels`.
    """
    if pixels and isinstance(labels, Tensor) and labels.shape == (tokens[0], *pixels):
        labels = labels.flatten(1)
    given = (
        labels
        if isinstance(labels, Tensor) and labels.shape == tokens
        else torch.zeros(tokens, device="cpu")
    )
    return token_labels(given.to(torch.int64), tokens, next_token, mask)[1]


def check_next_token(
    head: Head, inputs: Any, labels: Tensor, next_token: bool, ignore_index: IgnoreIndex = None
) -> None:
    """Check that the labels are what the model predicts.

    Args:
        head: The model's head.
        inputs: Inputs of the batch.
        labels: Labels of the batch.
        next_token: Option of the user.
        ignore_index: Label of tokens to leave out besides `IGNORED`, or several.

    Raises:
        InputError: If ``next_token`` is set for a model with one row of logits for each sample or
            for labels that are those of the next token already, or is not set although every label
            equals the token that the model reads.
    """
    if next_token and (head.rows != "token" or head.pixels):
        raise InputError(
            expected="logits of every token for next_token",
            found=f"one row a {'pixel' if head.pixels else 'sample'} from head {head.name!r}",
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
    left_out = (labels == IGNORED) | is_ignored(labels, ignore_index)
    same = bool(((tokens == labels) | left_out).all())
    before, after = labels[:, :-1], tokens[:, 1:]
    if next_token:
        follow = (before == after) | left_out[:, :-1]
        if not same and after.numel() and bool(follow.all()):
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


def _has_samples(batch: Batch) -> bool:
    """Return whether a batch holds inputs or labels."""
    inputs, labels = batch
    first = first_tensor(inputs)
    if first is not None:
        empty = first.shape[:1] == (0,)
    else:
        empty = isinstance(inputs, Sized) and len(inputs) == 0
    if not empty:
        return True
    if isinstance(labels, Tensor):
        return labels.shape[:1] != (0,)
    return not isinstance(labels, Sized) or len(labels) > 0


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
