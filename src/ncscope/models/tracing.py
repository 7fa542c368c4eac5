"""Analysis of a model on its first batch: head, layers, and the batch axis of each output."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ncscope.array_checks import type_name
from ncscope.errors import InputError
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.forward import (
    LABEL_ARGUMENTS,
    argument_names,
    copy_inputs,
    first_tensor,
    forward,
    possible_logits,
    tensors_in,
)
from ncscope.models.heads import Head, Rows, find_head_after_pass, record_first_pass
from ncscope.models.layers import find_layer, find_repeated_blocks, match_layers
from ncscope.models.masks import PassMasks, check_mask, in_encoder
from ncscope.models.sharding import gather_shards, rows_at
from ncscope.models.taps import HEAD_INPUT, BatchAxis, Taps, call_name
from ncscope.models.wrappers import walk_modules

# Tokens of each copy that show the order of the rows: 16 rows of two copies.
_TOKENS = 8

# A tensor; packed sequences; or a list of numbers or words, such as the lengths of sequences.
Leaf: TypeAlias = Tensor | PackedSequence | list[Any] | tuple[Any, ...]


@dataclass(frozen=True)
class Trace:
    """A model's head, its layers to tap, and the batch axis of the output of each of their calls.

    Attributes:
        head: The classifier head.
        layers: Names of the modules to tap.
        axes: Batch axis of the head's input and of every call of a layer, by the name of the
            features in `Taps`.
        whole: True if the loop calls the model; False if it calls parts of the model.
        of_pairs: Masks of pairs of tokens, as for `PassMasks`.
        label_argument: Name of the argument by which the model must be given the labels; empty if
            it runs without them.
        notes: Sentences on what was chosen or left out.
    """

    head: Head
    layers: tuple[str, ...]
    axes: Mapping[str, BatchAxis]
    whole: bool = True
    of_pairs: frozenset[tuple[nn.Module, str]] = frozenset()
    label_argument: str = ""
    notes: tuple[str, ...] = ()

    def taps(
        self,
        model: nn.Module,
        *,
        pool: bool | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> Taps:
        """Return taps on the layers and the head of the model that was traced."""
        return Taps(
            model,
            self.layers,
            self.head,
            pool=pool,
            rows=self.head.rows,
            axes=self.axes,
            whole=self.whole,
            of_pairs=self.of_pairs,
            on_error=on_error,
        )

    def run(self, model: nn.Module, inputs: object, labels: Tensor) -> None:
        """Run the model on a batch, with the labels if it needs them."""
        if self.label_argument:
            inputs = add_labels(model, inputs, labels, self.label_argument)
        forward(model, inputs)


def trace(
    model: nn.Module,
    inputs: object,
    layers: Sequence[str] | None = None,
    head: str | None = None,
    *,
    labels: Tensor | None = None,
    pool: bool | None = None,
) -> Trace:
    """Decide what is measured in a model: its head, its layers, and the rows of each layer.

    The model runs on the batch, which shows the head and the layers that the forward pass calls,
    and then on copies of the first sample. The batch axis of a layer is the axis whose length
    changes with the number of samples. Lengths in one pass would not suffice: a sequence-first
    layer may have as many tokens as samples. Only floating-point tensors are features.

    Layers that are named and cannot be measured are refused; of the repeated blocks they are left
    out, with a note: layers without a row for each sample or token, layers of an encoder beside
    the decoder that the head reads, and sequences whose padding no mask tells.

    Args:
        model: A classifier, as for `find_head`.
        inputs: First batch, without the labels. If a tensor has several axes as long as the batch,
            the first axis is tried first; the logits show whether it is the batch axis.
        layers: Names or patterns of layers; None for those that `find_repeated_blocks` returns.
        head: Name of the head, if known.
        labels: Labels of the batch, for a model whose forward pass needs them.
        pool: Choice of the user, see `Taps`.

    Returns:
        The trace. Cost: a forward pass of the batch; and a pass of two samples (three for a batch
        of two) and two of at most eight if there are layers to tap, or the head was named and the
        logits are not its outputs.

    Raises:
        InputError: If no head is found, a pattern matches nothing, a named layer is not called or
            cannot be measured, or the model does not run on another number of samples.

    Example:
        >>> class Last(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.recurrent, self.head = nn.LSTM(4, 3), nn.Linear(3, 2)
        ...
        ...     def forward(self, x):
        ...         return self.head(self.recurrent(x.transpose(0, 1))[0][-1])
        >>> trace(Last(), torch.zeros(5, 5, 4), ["recurrent"]).axes["recurrent"]
        BatchAxis(tensor=0, axis=1, channels=None)
    """
    inputs = copy_inputs(inputs)
    with evaluation_mode(model):
        modules = dict(walk_modules(model))
        masks = PassMasks(model, modules)
        argument = ""
        # The passes of the user start from the state before: a recurrent model may keep its last.
        with masks.record(), _record_shapes(modules.values()) as calls, restore_buffers(model):
            try:
                record = record_first_pass(model, inputs, head)
            except InputError:
                raise
            except Exception:  # the model may need the labels: run it again with them
                arguments = inputs_by_name(model, inputs)
                free = [name for name in argument_names(model) if name in LABEL_ARGUMENTS]
                if arguments is not None:
                    argument = next((name for name in free if name not in arguments), "")
                if labels is None or not argument:
                    raise
                inputs = add_labels(model, inputs, labels, argument)
                # The pass may have failed at its end, in the loss: its calls would count twice.
                calls.clear()
                masks.forget()
                record = record_first_pass(model, inputs, head)
        head_found, shape = find_head_after_pass(model, inputs, record, head)
        del record  # with the logits of the whole batch
        choice = _LayerChoice(model, head_found, masks, pool, layers is not None)
        if layers is None:
            counts = {module: len(of_module) for module, of_module in calls.items()}
            names = find_repeated_blocks(model, counts)
        else:
            names = match_layers(model, layers)
            choice.note_head(names)
        names = choice.drop_encoder_layers([name for name in names if name != head_found.name])
        modules = {name: find_layer(model, name) for name in names}
        # The outputs of a named head on tokens may be scaled or masked logits: only a run on copies
        # shows which axis of its input is the batch.
        by_head = head_found.rows != "token" or head_found.gives_logits
        axes: dict[str, BatchAxis] = {}
        of_pairs: frozenset[tuple[nn.Module, str]] = frozenset()
        # A head that was named, and does not make the logits, may run in another order than theirs.
        asks_order = head_found.rows == "sample" and not head_found.gives_logits
        copies: _RunOnCopies | None = None
        if names or not by_head or masks.has_square or asks_order:
            layers_and_head = [*modules.values(), head_found.module]
            fewer = PassMasks(model, dict(walk_modules(model)))
            # Without layers a model that takes batches of one size only is measured nevertheless.
            is_needed = names or not by_head
            with fewer.record(), nullcontext() if is_needed else suppress(InputError):
                copies = _run_on_copies(model, inputs, head_found, shape, layers_and_head)
        if copies is not None:
            of_pairs = masks.find_pairs(fewer)
            masks.drop(of_pairs)
            for name, module in modules.items():
                axes |= choice.find_axes(copies, name, module, calls.get(module, []))
            if head_found.rows == "sample":
                by_name = {name: modules[name.partition("#")[0]] for name in axes}
                if asks_order and not head_found.is_matrix:
                    by_name[HEAD_INPUT] = head_found.module
                    axes[HEAD_INPUT] = BatchAxis(axis=head_found.axis)
                for name in _find_disorder(model, inputs, copies, by_name, axes):
                    del axes[name]
                    choice.leave_out_disordered(name)
            if not by_head:
                many, few = (run[head_found.module][0].first_input for run in (calls, copies.calls))
                assert many is not None
                assert few is not None
                axes[HEAD_INPUT] = copies.find_axis(HEAD_INPUT, [many], [few])
    channels = (-1 if head_found.is_channels_last else 1) if head_found.pixels else None
    axes = {HEAD_INPUT: BatchAxis(axis=head_found.axis, channels=channels)} | axes
    notes = (f"the model is given the labels as {argument!r}",) if argument else ()
    return Trace(
        head_found,
        tuple(name for name in names if name in axes),
        axes,
        of_pairs=of_pairs,
        label_argument=argument,
        notes=(*notes, *head_found.notes, *choice.notes),
    )


def inputs_by_name(model: nn.Module, inputs: object) -> dict[str, Any] | None:
    """Return inputs as arguments by name; None if the model has too few names."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    values = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
    names = argument_names(model)
    return None if len(names) < len(values) else dict(zip(names, values, strict=False))


def add_labels(
    model: nn.Module, inputs: object, labels: Tensor | None, argument: str
) -> dict[str, Any]:
    """Return inputs by name, with the labels on the device of the first input.

    Args:
        model: Model that takes the labels.
        inputs: Batch without the labels.
        labels: Labels of the batch.
        argument: Name of the argument for the labels.
    """
    arguments = inputs_by_name(model, inputs)
    assert arguments is not None
    assert labels is not None
    first = first_tensor(inputs)
    return {**arguments, argument: labels if first is None else labels.to(first.device)}


class _LayerChoice:
    """Choice of layers that can be measured, and sentences on it.

    Args:
        model: Model that was traced.
        head: Its head.
        masks: Masks of the pass of the first batch.
        pool: Choice of the user, see `Taps`.
        by_name: True if the user named the layers: a layer that cannot be measured is then refused.
    """

    def __init__(
        self, model: nn.Module, head: Head, masks: PassMasks, pool: bool | None, by_name: bool
    ) -> None:
        self._model, self._head, self._masks, self._pool = model, head, masks, pool
        self._by_name = by_name
        self._left_out: dict[str, list[str]] = defaultdict(list)
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on layers that were left out, and on outputs that were chosen."""
        left_out = [f"layers left out: {', '.join(n)}; {why}" for why, n in self._left_out.items()]
        return (*left_out, *self._notes)

    def note_head(self, names: Sequence[str]) -> None:
        """Note that the head is among the layers, whose input is measured in any case."""
        if self._head.name in names:
            self._notes.append(
                f"layer {self._head.name!r} is the head: its input is measured, not its outputs"
            )

    def leave_out_disordered(self, name: str) -> None:
        """Refuse or leave out a layer whose rows are not in the order of the samples."""
        if self._by_name or name == HEAD_INPUT:
            what = f"head {self._head.name!r}" if name == HEAD_INPUT else f"layer {name!r}"
            raise InputError(
                expected=f"{what} to have the samples in the order of the labels",
                found="another order, as of a batch that the model sorts by length",
                fix="let pack_padded_sequence sort the batch (enforce_sorted=False), or collect "
                "the features in order and call ncscope.measure(features, labels)",
            )
        self._left_out["their samples are in another order than the labels"].append(name)

    def drop_encoder_layers(self, names: Sequence[str]) -> list[str]:
        """Return the names without layers of an encoder beside the decoder that has the head."""
        if self._head.rows == "sample":
            return list(names)
        of_logits = []
        for name in names:
            if not in_encoder(self._model, name, self._head.name):
                of_logits.append(name)
            elif self._by_name:
                raise InputError(
                    expected=f"layer {name!r} to return one row a token of the logits",
                    found="a layer of the encoder, whose tokens are those of the source",
                    fix="name layers of the decoder, or measure the encoder's features by "
                    "ncscope.measure with labels of their own",
                )
            else:
                self._left_out["the encoder's tokens are not those of the logits"].append(name)
        return of_logits

    def find_axes(
        self, copies: "_RunOnCopies", layer: str, module: nn.Module, calls: list["_CallFacts"]
    ) -> dict[str, BatchAxis]:
        """Return the batch axis of each call of a layer; nothing for a layer that is left out."""
        try:
            axes = copies.find_axes(layer, module, calls)
            if self._head.rows == "sample":
                for (name, at), call in zip(axes.items(), calls, strict=True):
                    shape = list(call.outputs[at.tensor].shape)
                    check_mask(
                        self._masks,
                        name,
                        torch.Size([shape.pop(at.axis), *shape]),
                        self._pool,
                        strict=not self._by_name,
                    )
        except InputError as error:
            if self._by_name:
                raise
            expected = error.expected.replace(f"layer {layer!r}", "each")
            self._left_out[f"expected {expected}, found {error.found}"].append(layer)
            return {}
        for name, at in axes.items():
            if len(also := copies.qualified.get(name, [])) > 1:
                rest = " or ".join(str(index) for index in also if index != at.tensor)
                self._notes.append(
                    f"layer {name!r} returns several tensors with a row a sample: number "
                    f"{at.tensor} is measured, not number {rest}"
                )
        return axes


class _TensorFacts(NamedTuple):
    """Shape of a tensor of a call, the order of its rows, and its type if it is no features."""

    shape: torch.Size
    in_order: bool = False
    other_type: str = ""


class _CallFacts(NamedTuple):
    """Record of one call of a module: the first input tensor, and all output tensors."""

    first_input: _TensorFacts | None
    outputs: list[_TensorFacts]


_CallsByModule: TypeAlias = dict[nn.Module, list[_CallFacts]]


@contextmanager
def _record_shapes(
    modules: Iterable[nn.Module], copies: torch.Size | None = None, batch: int = 0
) -> Iterator[_CallsByModule]:
    """Record the calls of modules inside the context; no tensor is kept.

    Args:
        modules: Modules whose calls are recorded.
        copies: Shape of the logits of tokens if the pass is one of copies of the first sample.
        batch: Batch axis of these logits.
    """
    calls: _CallsByModule = defaultdict(list)

    def facts(tensor: Tensor) -> _TensorFacts:
        shape = torch.Size() if tensor.is_nested else tensor.shape  # a nested tensor has no shape
        is_real = tensor.is_floating_point() or tensor.is_quantized
        if copies is None or not is_real or shape[:1] != (copies[:-1].numel(),):
            return _TensorFacts(shape, other_type="" if is_real else type_name(tensor.dtype))
        return _TensorFacts(shape, _is_in_order(tensor, copies, batch))

    def record(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        first = first_tensor((args, kwargs))
        outputs = [facts(tensor) for tensor in tensors_in(output)]
        calls[module].append(_CallFacts(None if first is None else facts(first), outputs))

    with ExitStack() as hooks:
        for module in dict.fromkeys(modules):
            hooks.callback(module.register_forward_hook(record, with_kwargs=True).remove)
        yield calls


@dataclass(frozen=True)
class _RunOnCopies:
    """A run of the model on copies of the first sample.

    Attributes:
        calls: Shapes of the tensors of each call in this run.
        whole: Shape of the logits of the whole batch.
        copies: Shape of the logits of the copies.
        batch: Batch axis of the logits: 1 for logits of tokens of shape T x B x K, else 0.
        rows: Unit to which the head is applied.
        pixels: Shape H x W of the logits if the tokens are pixels; else empty.
        guess: Batch axes of the inputs, by their shapes.
        qualified: Indices of the tensors of each call that have a row a sample, once asked for.
    """

    calls: _CallsByModule
    whole: torch.Size
    copies: torch.Size
    batch: int
    rows: Rows
    guess: Mapping[tuple[int, ...], int | None]
    pixels: tuple[int, ...] = ()
    qualified: dict[str, list[int]] = field(default_factory=dict)

    def find_axes(
        self, layer: str, module: nn.Module, calls: list[_CallFacts]
    ) -> dict[str, BatchAxis]:
        """Return the batch axis of each call of a layer in the run on the whole batch."""
        again = self.calls.get(module, [])
        if len(calls) != len(again):
            many, few = self._counts
            raise InputError(
                expected=f"layer {layer!r} to run as often for any number of samples",
                found=f"{len(calls)} calls on {many} and {len(again)} on {few}",
                fix="tap the block around it, or leave it out of layers=[...]",
            )
        axes = {}
        for number, (one, other) in enumerate(zip(calls, again, strict=True), start=1):
            name = call_name(layer, number)
            axes[name] = self.find_axis(name, one.outputs, other.outputs)
        return axes

    def find_axis(self, name: str, many: list[_TensorFacts], few: list[_TensorFacts]) -> BatchAxis:
        """Find the first floating-point tensor of which one axis changes like the batch size."""
        axes_of_samples = []
        for index, (one, other) in enumerate(zip(many, few, strict=False)):
            if one.other_type or other.other_type:
                continue
            sizes = zip(one.shape, other.shape, strict=False)
            axes = [axis for axis, both in enumerate(sizes) if both == self._counts]
            alike = len(one.shape) == len(other.shape)
            if alike and len(axes) == 1 and (self.batch == 0 or axes[0] < 2):
                # If the logits are T x B x K, their first axis is that of the tokens, which is the
                # other one of the tensor's first two axes.
                axis = abs(axes[0] - self.batch)
                shape = (*one.shape[:axis], *one.shape[axis + 1 :])  # of a sample
                if not self.pixels or shape[:-1] == (math.prod(self.pixels),):
                    axes_of_samples.append(BatchAxis(index, axis))
                elif shape[1:] == self.pixels:
                    axes_of_samples.append(BatchAxis(index, axis, channels=1))
                elif shape[:-1] == self.pixels:
                    axes_of_samples.append(BatchAxis(index, axis, channels=-1))
            # Samples and tokens in one axis, in the order of the logits.
            elif other.in_order and one.shape[:1] == (self.whole[:-1].numel(),):
                axes_of_samples.append(BatchAxis(index))
        if axes_of_samples:
            self.qualified[name] = [at.tensor for at in axes_of_samples]
            return axes_of_samples[0]
        counts = self._counts
        unit = "token" if self.rows == "token" else "sample"
        unit = "pixel of the logits" if self.pixels else unit
        shapes = [
            " and ".join(
                f"{tuple(facts.shape)}{facts.other_type and f' of {facts.other_type}'}"
                for facts in tensors
            )
            or "no tensor"
            for tensors in (many, few)
        ]
        raise InputError(
            expected=f"layer {name!r} to return one row a {unit}",
            found=f"{shapes[0]} of {counts[0]} samples, {shapes[1]} of {counts[1]}",
            fix="tap the block around it, or leave it out of layers=[...]",
        )

    @property
    def _counts(self) -> tuple[int, int]:
        """Number of samples in the batch, and of the copies."""
        return self.whole[self.batch], self.copies[self.batch]


def _is_in_order(tensor: Tensor, copies: torch.Size, batch: int) -> bool:
    """Return whether the rows of a tensor, one for each token, are in the order of the logits.

    In this order, and only in this order, the rows of the copies are equal up to rounding. A few
    tokens show it.

    Args:
        tensor: Tensor with one row for each token of each copy.
        copies: Shape of the logits.
        batch: Batch axis of the logits.
    """

    def difference(index: Tensor) -> float:
        """Return the greatest difference of the same tokens of several copies, of an index each."""
        tokens = index.shape[1]
        index = index[:, torch.linspace(0, tokens - 1, min(tokens, _TOKENS), device="cpu").long()]
        rows = rows_at(tensor, (index.flatten(),)).flatten(1).double().unflatten(0, index.shape)
        return float((rows - rows[:1]).abs().max())

    places = torch.arange(copies[:-1].numel(), device="cpu")
    ordered = places.unflatten(0, copies[:2]).movedim(batch, 0)
    turned = places.unflatten(0, copies[:2][::-1]).movedim(1 - batch, 0)
    # Compared and not tested for zero: the copies of a sample differ by rounding, as the products
    # of a batch are computed in blocks.
    return difference(ordered) < difference(turned)


def _run_on_copies(
    model: nn.Module, inputs: object, head: Head, logits: torch.Size, modules: Iterable[nn.Module]
) -> _RunOnCopies:
    """Run the model on copies of the first sample.

    Each guess of the inputs' batch axes is tried; the first that gives logits for each copy counts.
    """
    failure: Exception | None = None
    for batch in range(len(logits) - 1):
        count = logits[batch]
        # Another number than that of the batch, and not 1: a squeeze could remove the axis.
        times = 3 if count == 2 else 2
        expected = torch.Size([*logits[:batch], times, *logits[batch + 1 :]])
        for guess in guess_axes(inputs, count):
            copies = take_samples(inputs, guess, [0] * times)
            try:
                tokens = expected if head.rows == "token" else None
                with restore_buffers(model), _record_shapes(modules, tokens, batch) as calls:
                    returned = possible_logits(forward(model, copies))
                if head.gives_logits:
                    output = returned.get(head.logits_place)
                    shape = None if output is None else output.shape
                else:  # the logits are not known: the shape of the head's outputs
                    of_head = calls[head.module]
                    shape = of_head[0].outputs[0].shape if of_head else torch.Size()
                    if head.pixels and shape:
                        moved = shape if head.is_channels_last else (shape[0], *shape[2:], shape[1])
                        shape = torch.Size([moved[0], math.prod(moved[1:-1]), moved[-1]])
                    elif head.rows != "token":
                        shape = torch.Size([*shape[:1], shape[1:].numel()])
                    elif len(shape) == 2:  # samples and tokens in one axis
                        of_tokens = (each.shape for each in returned.values() if each.ndim == 3)
                        rows = shape[0]
                        shape = next((s for s in of_tokens if s[:2].numel() == rows), None)
            except Exception as error:  # an axis that is no batch axis may fail in any way
                failure = failure or error
                continue
            if shape == expected:
                return _RunOnCopies(calls, logits, shape, batch, head.rows, guess, head.pixels)
    raise InputError(
        expected="a model that also runs on copies of the first sample, to find the batch axis of "
        "its layers",
        found="no logits for each copy" if failure is None else str(failure).strip().split("\n")[0],
        fix="pass layers=[] to measure the head's input alone",
    ) from failure


_COMPARED, _COLUMNS = 8, 512
"""Samples of a batch of which the order of rows is compared, and about how many columns of each."""


def _find_disorder(
    model: nn.Module,
    inputs: object,
    copies: _RunOnCopies,
    modules: Mapping[str, nn.Module],
    axes: Mapping[str, BatchAxis],
) -> list[str]:
    """Return the layers whose rows stay where they are if the samples of a batch are turned round.

    Args:
        model: Model that runs.
        inputs: Batch without the labels.
        copies: A run on copies of the first sample.
        modules: Module of every call of a layer; the input counts of the one for `HEAD_INPUT`.
        axes: Batch axes of these calls.

    Returns:
        Names of calls. Cost: two passes of at most eight samples; few columns of rows are kept.
    """
    count = min(copies.whole[copies.batch], _COMPARED)

    def run(indices: Sequence[int]) -> dict[str, Tensor]:
        """Return some columns of the rows of every call for some samples."""
        rows: dict[str, Tensor] = {}
        done: Counter[nn.Module] = Counter()

        def record(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            done[module] += 1
            for name in (name for name, of_call in modules.items() if of_call is module):
                if name != HEAD_INPUT and int(name.partition("#")[2] or 1) != done[module]:
                    continue
                value = (args, kwargs) if name == HEAD_INPUT else output
                tensor = list(tensors_in(value))[axes[name].tensor].detach()
                own = gather_shards(tensor).movedim(axes[name].axis, 0).flatten(1)
                rows[name] = own[:, :: max(1, own.shape[1] // _COLUMNS)].double()

        with ExitStack() as hooks:
            hooks.enter_context(restore_buffers(model))
            for module in dict.fromkeys(modules.values()):
                hooks.callback(module.register_forward_hook(record, with_kwargs=True).remove)
            forward(model, take_samples(inputs, copies.guess, indices))
        return rows

    def count_equal(some: Tensor, others: Tensor) -> int:
        if some.shape != others.shape:
            return 0
        return int(torch.isclose(some, others, rtol=1e-4, atol=1e-6).all(1).sum())

    try:
        ahead, back = run(range(count)), run(range(count)[::-1])
    except Exception:  # a model that does not run on fewer samples: nothing tells
        return []
    return [
        name
        for name in modules
        if name in ahead
        and name in back
        and count_equal(ahead[name], back[name]) > count_equal(ahead[name], back[name].flip(0))
    ]


def guess_axes(inputs: object, count: int) -> Iterator[dict[tuple[int, ...], int | None]]:
    """Yield every possible choice of the batch axes of inputs, by their shapes.

    The batch axis of a tensor is its first or second axis, if that axis is as long as the batch.
    Tensors of one shape have the same batch axis. If only the second axis is as long as the batch,
    the tensor may also have none. The choice of first axes comes first.

    Args:
        inputs: Batch without the labels, nested in lists, tuples and mappings.
        count: Number of samples in the batch.

    Example:
        >>> list(guess_axes({"x": torch.zeros(3, 3), "scale": 2}, 3))
        [{(3, 3): 0}, {(3, 3): 1}]
    """

    def possible_axes(shape: tuple[int, ...]) -> list[int | None]:
        axes: list[int | None] = [axis for axis in (0, 1) if shape[axis : axis + 1] == (count,)]
        # The second axis may be as long as the batch by chance, as of a table of positions.
        return axes if axes[:1] == [0] else [*axes, None]

    shapes = list(dict.fromkeys(_leaf_shape(leaf) for leaf in _leaves(inputs)))
    for axes in product(*map(possible_axes, shapes)):
        if any(axis is not None for axis in axes):
            yield dict(zip(shapes, axes, strict=True))


def take_samples(
    value: Any, axes: Mapping[tuple[int, ...], int | None], indices: Sequence[int]
) -> Any:
    """Return inputs of some of the samples, which may be repeated.

    Args:
        value: Batch without the labels, nested in lists, tuples and mappings.
        axes: Batch axis of the tensors of every shape; None for those without one.
        indices: Samples, in order.

    Example:
        >>> take_samples({"x": torch.arange(4).reshape(2, 2), "scale": 2}, {(2, 2): 1}, [1, 1, 0])
        {'x': tensor([[1, 1, 0],
                [3, 3, 2]]), 'scale': 2}
    """
    if _is_leaf(value):
        axis = axes[_leaf_shape(value)]
        if axis is None:
            return value
        if isinstance(value, Tensor):
            return torch.cat([value.narrow(axis, at, 1) for at in indices], dim=axis)
        if isinstance(value, PackedSequence):
            padded, lengths = pad_packed_sequence(value, batch_first=True)
            chosen, lengths = padded[list(indices)], lengths[list(indices)]
            return pack_padded_sequence(chosen, lengths, batch_first=True, enforce_sorted=False)
        return type(value)(value[at] for at in indices)
    if isinstance(value, Mapping):
        return {name: take_samples(item, axes, indices) for name, item in value.items()}
    if isinstance(value, tuple | list):
        items = [take_samples(item, axes, indices) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


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


def _leaf_shape(leaf: Leaf) -> tuple[int, ...]:
    if isinstance(leaf, PackedSequence):
        return (int(leaf.batch_sizes[0]),)
    return tuple(leaf.shape) if isinstance(leaf, Tensor) else (len(leaf),)
