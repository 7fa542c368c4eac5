"""Analysis of a model on its first batch: head, layers, and the batch axis of each output."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.evaluation import evaluation_mode, restore_buffers
from ncscope.models.forward import (
    LABEL_ARGUMENTS,
    argument_names,
    first_tensor,
    forward,
    possible_logits,
    tensors_in,
)
from ncscope.models.heads import Head, Look, Rows, find_head_after_pass, record_first_pass
from ncscope.models.layers import find_layer, match_layers, residual_blocks
from ncscope.models.masks import PassMasks, in_encoder
from ncscope.models.resizing import repeat_first_sample
from ncscope.models.sharding import rows_at
from ncscope.models.taps import HEAD_INPUT, BatchAxis, Taps, call_name, check_mask
from ncscope.models.wrappers import walk_modules

# Tokens of each copy that show the order of the rows: 16 rows of two copies.
_TOKENS = 8


@dataclass(frozen=True)
class Trace:
    """A model's head, its layers to tap, and the batch axis of the output of each of their calls.

    Attributes:
        head: The classifier head.
        layers: Names of the modules to tap.
        axes: Batch axis of the head's input and of every call of a layer, by the name of the
            features in `Taps`.
        whole: True if the loop calls the model; False if it calls parts of the model.
        label_argument: Name of the argument by which the model must be given the labels; empty if
            it runs without them.
        notes: Sentences on what was chosen or left out.
    """

    head: Head
    layers: tuple[str, ...]
    axes: Mapping[str, BatchAxis]
    whole: bool = True
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
        layers: Names or patterns of layers; None for the repeated blocks, see `residual_blocks`.
        head: Name of the head, if known.
        labels: Labels of the batch, for a model whose forward pass needs them.
        pool: Choice of the user, see `Taps`.

    Returns:
        The trace. Cost: a forward pass of the batch; and a pass of two samples (three for a batch
        of two) if there are layers to tap, or if the logits are the scaled outputs of a named head
        on tokens.

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
        BatchAxis(tensor=0, axis=1)
    """
    with evaluation_mode(model):
        modules = dict(walk_modules(model))
        masks = PassMasks(model, modules)
        with masks.recorded(), _recorded(modules.values()) as calls:
            look, argument = _first_look(model, inputs, head, labels)
        if argument:
            inputs = add_labels(model, inputs, labels, argument)
        found, shape = find_head_after_pass(model, inputs, look, head)
        del look  # with the logits of the whole batch
        choice = _Choice(model, found, masks, pool, layers is not None)
        if layers is None:
            names = residual_blocks(model, {module: len(made) for module, made in calls.items()})
        else:
            names = match_layers(model, layers)
        names = choice.without_encoder([name for name in names if name != found.name])
        modules = {name: find_layer(model, name) for name in names}
        by_head = found.rows != "token" or found.gives_logits
        axes: dict[str, BatchAxis] = {}
        if names or not by_head:
            tapped = [*modules.values(), found.module]
            other = _rerun(model, inputs, found, shape, tapped)
            for name, module in modules.items():
                axes |= choice.axes(other, name, module, calls.get(module, []))
            if not by_head:
                one, few = (made[found.module][0].given for made in (calls, other.calls))
                assert one is not None
                assert few is not None
                axes[HEAD_INPUT] = other.axis(HEAD_INPUT, [one], [few])
    axes = {HEAD_INPUT: BatchAxis(axis=found.axis)} | axes
    kept = [name for name in names if name in axes]
    said = (f"the model is given the labels as {argument!r}",) if argument else ()
    return Trace(
        found,
        tuple(kept),
        axes,
        label_argument=argument,
        notes=(*said, *found.notes, *choice.notes),
    )


def _first_look(
    model: nn.Module, inputs: object, head: str | None, labels: Tensor | None
) -> tuple[Look, str]:
    """Run the model without the labels, or else with them; return the argument that takes them."""
    try:
        return record_first_pass(model, inputs, head), ""
    except InputError:
        raise
    except Exception:
        named = inputs_by_name(model, inputs)
        free = [name for name in argument_names(model) if name in LABEL_ARGUMENTS]
        argument = next((name for name in free if named is not None and name not in named), "")
        if labels is None or not argument:
            raise
        given = add_labels(model, inputs, labels, argument)
        return record_first_pass(model, given, head), argument


def inputs_by_name(model: nn.Module, inputs: object) -> dict[str, Any] | None:
    """Return inputs as arguments by name; None if the model has too few names."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    given = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
    names = argument_names(model)
    return None if len(names) < len(given) else dict(zip(names, given, strict=False))


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
    named = inputs_by_name(model, inputs)
    assert named is not None
    assert labels is not None
    first = first_tensor(inputs)
    return {**named, argument: labels if first is None else labels.to(first.device)}


class _Choice:
    """Choice of layers that can be measured, and sentences on it.

    Args:
        model: Model that was traced.
        head: Its head.
        masks: Masks of the pass of the first batch.
        pool: Choice of the user, see `Taps`.
        named: True if the user named the layers: a layer that cannot be measured is then refused.
    """

    def __init__(
        self, model: nn.Module, head: Head, masks: PassMasks, pool: bool | None, named: bool
    ) -> None:
        self._model, self._head, self._masks, self._pool = model, head, masks, pool
        self._named = named
        self._left_out: dict[str, list[str]] = defaultdict(list)
        self._notes: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on layers that were left out, and on outputs that were chosen."""
        left = [f"layers left out: {', '.join(n)}; {why}" for why, n in self._left_out.items()]
        return (*left, *self._notes)

    def without_encoder(self, names: Sequence[str]) -> list[str]:
        """Return the names without layers whose tokens are not those of the logits."""
        if self._head.rows == "sample":
            return list(names)
        kept = []
        for name in names:
            if not in_encoder(self._model, name, self._head.name):
                kept.append(name)
            elif self._named:
                raise InputError(
                    expected=f"layer {name!r} to return one row a token of the logits",
                    found="a layer of the encoder, whose tokens are those of the source",
                    fix="name layers of the decoder, or measure the encoder's features by "
                    "ncscope.measure with labels of their own",
                )
            else:
                self._left_out["the encoder's tokens are not those of the logits"].append(name)
        return kept

    def axes(
        self, other: "_Rerun", layer: str, module: nn.Module, calls: list["_Call"]
    ) -> dict[str, BatchAxis]:
        """Return the batch axis of each call of a layer; nothing for a layer that is left out."""
        try:
            axes = other.axes(layer, module, calls)
            if self._head.rows == "sample":
                for (name, at), call in zip(axes.items(), calls, strict=True):
                    shape = list(call.returned[at.tensor].shape)
                    check_mask(
                        self._masks,
                        name,
                        torch.Size([shape.pop(at.axis), *shape]),
                        self._pool,
                        strict=not self._named,
                    )
        except InputError as error:
            if self._named:
                raise
            wanted = error.expected.replace(f"layer {layer!r}", "each")
            self._left_out[f"expected {wanted}, found {error.found}"].append(layer)
            return {}
        for name, at in axes.items():
            if len(also := other.qualified.get(name, [])) > 1:
                rest = " or ".join(str(index) for index in also if index != at.tensor)
                self._notes.append(
                    f"layer {name!r} returns several tensors with a row a sample: number "
                    f"{at.tensor} is measured, not number {rest}"
                )
        return axes


class _Seen(NamedTuple):
    """Shape of a tensor of a call, the order of its rows, and whether it may be features."""

    shape: torch.Size
    in_order: bool = False
    floating: bool = True


class _Call(NamedTuple):
    """Record of one call of a module: the first input tensor, and all output tensors."""

    given: _Seen | None
    returned: list[_Seen]


_Calls: TypeAlias = Mapping[nn.Module, list[_Call]]


@contextmanager
def _recorded(
    modules: Iterable[nn.Module], copies: torch.Size | None = None, batch: int = 0
) -> Iterator[_Calls]:
    """Record the calls of modules inside the context; no tensor is kept.

    Args:
        modules: Modules whose calls are recorded.
        copies: Shape of the logits of tokens if the pass is one of copies of the first sample.
        batch: Batch axis of these logits.
    """
    calls: dict[nn.Module, list[_Call]] = defaultdict(list)

    def seen(tensor: Tensor) -> _Seen:
        shape, floating = _shape(tensor), tensor.is_floating_point() or tensor.is_quantized
        if copies is None or not floating or shape[:1] != (copies[:-1].numel(),):
            return _Seen(shape, floating=floating)
        return _Seen(shape, _is_in_order(tensor, copies, batch))

    def record(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        given = first_tensor((args, kwargs))
        returned = [seen(tensor) for tensor in tensors_in(output)]
        calls[module].append(_Call(None if given is None else seen(given), returned))

    with ExitStack() as hooks:
        for module in dict.fromkeys(modules):
            hooks.callback(module.register_forward_hook(record, with_kwargs=True).remove)
        yield calls


@dataclass(frozen=True)
class _Rerun:
    """A run of the model on copies of the first sample.

    Attributes:
        calls: Shapes of the tensors of each call in this run.
        whole: Shape of the logits of the whole batch.
        copies: Shape of the logits of the copies.
        batch: Batch axis of the logits: 1 for logits of tokens of shape T x B x K, else 0.
        rows: Unit to which the head is applied.
        qualified: Indices of the tensors of each call that have a row a sample, once asked for.
    """

    calls: _Calls
    whole: torch.Size
    copies: torch.Size
    batch: int
    rows: Rows
    qualified: dict[str, list[int]] = field(default_factory=dict)

    def axes(self, layer: str, module: nn.Module, calls: list[_Call]) -> dict[str, BatchAxis]:
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
            axes[name] = self.axis(name, one.returned, other.returned)
        return axes

    def axis(self, name: str, many: list[_Seen], few: list[_Seen]) -> BatchAxis:
        """Find the first floating-point tensor of which one axis changes like the batch size."""
        found = []
        for index, (one, other) in enumerate(zip(many, few, strict=False)):
            if not (one.floating and other.floating):
                continue
            sizes = zip(one.shape, other.shape, strict=False)
            axes = [axis for axis, both in enumerate(sizes) if both == self._counts]
            alike = len(one.shape) == len(other.shape)
            if alike and len(axes) == 1 and (self.batch == 0 or axes[0] < 2):
                # If the logits are T x B x K, their first axis is that of the tokens, which is the
                # other one of the tensor's first two axes.
                found.append(BatchAxis(index, abs(axes[0] - self.batch)))
            elif other.in_order and one.shape[:1] == (self.whole[:-1].numel(),):
                found.append(BatchAxis(index))
        if found:
            self.qualified[name] = [at.tensor for at in found]
            return found[0]
        counts = self._counts
        unit = "token" if self.rows == "token" else "sample"
        shapes = [
            " and ".join(
                f"{tuple(seen.shape)}{'' if seen.floating else ' of integers'}" for seen in tensors
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


def _shape(tensor: Tensor) -> torch.Size:
    """Return a tensor's shape; the empty shape for a nested tensor, which has none."""
    return torch.Size() if tensor.is_nested else tensor.shape


def _is_in_order(tensor: Tensor, copies: torch.Size, batch: int) -> bool:
    """Return whether the rows of a tensor, one for each token, are in the order of the logits.

    In this order, and only in this order, the rows of the copies are equal up to rounding. A few
    tokens show it.

    Args:
        tensor: Tensor with one row for each token of each copy.
        copies: Shape of the logits.
        batch: Batch axis of the logits.
    """
    places = torch.arange(copies[:-1].numel())
    ordered = places.unflatten(0, copies[:2])
    turned = places.unflatten(0, copies[:2][::-1])
    one, other = (
        _difference_of_copies(tensor, index.movedim(axis, 0))
        for index, axis in ((ordered, batch), (turned, 1 - batch))
    )
    return one < other


def _difference_of_copies(tensor: Tensor, index: Tensor) -> float:
    """Return the greatest difference of the same tokens of several copies.

    Args:
        tensor: Tensor with a row for each index.
        index: Index of each token of each copy, copies x tokens.
    """
    tokens = index.shape[1]
    index = index[:, torch.linspace(0, tokens - 1, min(tokens, _TOKENS)).long()]
    rows = rows_at(tensor, (index.flatten(),)).flatten(1).double().unflatten(0, index.shape)
    return float((rows - rows[:1]).abs().max())


def _shape_in(head: Head, returned: Mapping[str, Tensor], calls: _Calls) -> torch.Size | None:
    """Return the shape of the logits in a run; that of the head's outputs if they are others."""
    if head.gives_logits:
        return returned[head.output].shape if head.output in returned else None
    tokens = [output.shape for output in returned.values() if output.ndim == 3]
    made = calls[head.module][0].returned[0].shape if calls[head.module] else torch.Size()
    if head.rows == "token" and len(made) == 2:
        return next((shape for shape in tokens if shape[:2].numel() == made[0]), None)
    return made if head.rows == "token" else torch.Size([*made[:1], made[1:].numel()])


def _rerun(
    model: nn.Module, inputs: object, head: Head, logits: torch.Size, modules: Iterable[nn.Module]
) -> _Rerun:
    """Run the model on copies of the first sample.

    Each guess of the inputs' batch axes is tried; the first that gives logits for each copy counts.
    """
    failure: Exception | None = None
    for batch in range(len(logits) - 1):
        count = logits[batch]
        times = 3 if count == 2 else 2  # not 1: a squeeze could remove the axis
        wanted = torch.Size([*logits[:batch], times, *logits[batch + 1 :]])
        for copies in repeat_first_sample(inputs, count, times):
            try:
                tokens = wanted if head.rows == "token" else None
                with restore_buffers(model), _recorded(modules, tokens, batch) as calls:
                    returned = possible_logits(forward(model, copies))
                shape = _shape_in(head, returned, calls)
            except Exception as error:
                failure = failure or error
                continue
            if shape == wanted:
                return _Rerun(calls, logits, shape, batch, head.rows)
    raise InputError(
        expected="a model that also runs on copies of the first sample, to find the batch axis of "
        "its layers",
        found="no logits for each copy" if failure is None else str(failure).strip().split("\n")[0],
        fix="pass layers=[] to measure the head's input alone",
    ) from failure
