"""Analysis of a model on its first batch: head, layers, and the batch axis of each output."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import first_tensor, forward, logits_of, tensors_in
from ncscope.models.heads import Head, Rows, first_look, head_of
from ncscope.models.layers import match_layers, named_layer, residual_blocks
from ncscope.models.measuring import kept_buffers, measuring
from ncscope.models.resizing import repeated_first_sample
from ncscope.models.sharding import rows_at
from ncscope.models.taps import HEAD_INPUT, BatchAxis, Taps, call_name

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
    """

    head: Head
    layers: tuple[str, ...]
    axes: Mapping[str, BatchAxis]
    whole: bool = True

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
            self.head.name,
            pool=pool,
            rows=self.head.rows,
            axes=self.axes,
            whole=self.whole,
            on_error=on_error,
        )


def trace(
    model: nn.Module, inputs: object, layers: Sequence[str] | None = None, head: str | None = None
) -> Trace:
    """Find a model's head, its layers and the batch axis of each layer's output.

    The model runs on the batch, which shows the head and the layers that the forward pass calls,
    and then on copies of the first sample. The batch axis of a layer is the axis whose length
    changes with the number of samples. Lengths in one pass would not suffice: a sequence-first
    layer may have as many tokens as samples.

    Args:
        model: A classifier, as for `find_head`.
        inputs: First batch, without the labels. If a tensor has several axes as long as the batch,
            the first axis is tried first; the logits show whether it is the batch axis.
        layers: Names or patterns of layers; None for the repeated blocks, see `residual_blocks`.
        head: Name of the head, if known.

    Returns:
        The trace. Cost: a forward pass of the batch; and a pass of two samples (three for a batch
        of two) if there are layers to tap, or if the logits are the scaled outputs of a named head
        on tokens.

    Raises:
        InputError: If no head is found, a pattern matches nothing, a layer is not called or does
            not return one row for each sample, or the model does not run on another number of
            samples.

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
    with measuring(model):
        with _recorded(model.modules()) as calls:
            look = first_look(model, inputs, head)
        found, shape = head_of(model, inputs, look, head)
        del look  # with the logits of the whole batch
        names = _names(model, layers, calls, found)
        axes = {HEAD_INPUT: BatchAxis(axis=found.axis)}
        modules = {name: named_layer(model, name) for name in names}
        by_head = found.rows != "token" or found.gives_logits
        if names or not by_head:
            tapped = [*modules.values(), found.module]
            other = _rerun(model, inputs, found, shape, tapped)
            for name, module in modules.items():
                axes |= other.axes(name, module, calls.get(module, []))
            if not by_head:
                one, few = (made[found.module][0].given for made in (calls, other.calls))
                assert one is not None
                assert few is not None
                axes[HEAD_INPUT] = other.axis(HEAD_INPUT, [one], [few])
    return Trace(found, tuple(names), axes)


class _Seen(NamedTuple):
    """Shape of a tensor of a call, and whether its rows are in the order of the logits."""

    shape: torch.Size
    in_order: bool = False


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
        shape = _shape(tensor)
        if copies is None or shape[:1] != (copies[:-1].numel(),):
            return _Seen(shape)
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


def _names(model: nn.Module, layers: Sequence[str] | None, calls: _Calls, head: Head) -> list[str]:
    """Return the names of the requested layers without the head, or of the repeated blocks."""
    if layers is None:
        return residual_blocks(model, {module: len(made) for module, made in calls.items()})
    return [name for name in match_layers(model, layers) if name != head.name]


@dataclass(frozen=True)
class _Rerun:
    """A run of the model on copies of the first sample.

    Attributes:
        calls: Shapes of the tensors of each call in this run.
        whole: Shape of the logits of the whole batch.
        copies: Shape of the logits of the copies.
        batch: Batch axis of the logits: 1 for logits of tokens of shape T x B x K, else 0.
        rows: Unit to which the head is applied.
    """

    calls: _Calls
    whole: torch.Size
    copies: torch.Size
    batch: int
    rows: Rows

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
        """Find the first tensor with exactly one axis whose length changes like the batch size."""
        for index, (one, other) in enumerate(zip(many, few, strict=False)):
            sizes = zip(one.shape, other.shape, strict=False)
            axes = [axis for axis, both in enumerate(sizes) if both == self._counts]
            alike = len(one.shape) == len(other.shape)
            if alike and len(axes) == 1 and (self.batch == 0 or axes[0] < 2):
                # If the logits are T x B x K, their first axis is that of the tokens, which is the
                # other one of the tensor's first two axes.
                return BatchAxis(index, abs(axes[0] - self.batch))
            if other.in_order and one.shape[:1] == (self.whole[:-1].numel(),):
                return BatchAxis(index)
        counts = self._counts
        unit = "token" if self.rows == "token" else "sample"
        found = [
            " and ".join(str(tuple(seen.shape)) for seen in tensors) or "no tensor"
            for tensors in (many, few)
        ]
        raise InputError(
            expected=f"layer {name!r} to return one row a {unit}",
            found=f"{found[0]} of {counts[0]} samples, {found[1]} of {counts[1]}",
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
        for copies in repeated_first_sample(inputs, count, times):
            try:
                tokens = wanted if head.rows == "token" else None
                with kept_buffers(model), _recorded(modules, tokens, batch) as calls:
                    shape = logits_of(forward(model, copies)).shape
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
