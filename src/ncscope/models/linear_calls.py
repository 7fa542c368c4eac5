"""Calls of linear layers in a forward pass: their shapes, and a few rows of inputs and outputs."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ncscope.models.forward import first_tensor
from ncscope.models.hooks import guard_hook
from ncscope.models.sharding import gather_shards, is_sharded, rows_at
from ncscope.models.wrappers import assemble_parameters, walk_modules

# Rows of inputs, and of outputs, that are kept of a pass: those of a language model can take 90 GB.
KEPT_ROWS = 32
# The head is one of the last linear layers: only the last calls keep rows, of which they share 24.
LAST_CALLS = 3
# The token whose outputs are the logits is searched in these samples, by these columns.
TRACED_SAMPLES, TRACED_COLUMNS = 2, 4


@dataclass(frozen=True)
class CallRows:
    """A few rows of a call's inputs and outputs: copies, because the model may change both.

    Attributes:
        index: Index of each row, counted over all axes of the output but the last.
        features: Rows of the input.
        output: The same rows of the output.
        output_step: Step of which the output is a multiple if the module rounds it; else 0.
        columns: First columns of all tokens' outputs, of the first samples: the first two on axis 0
            and the first two on axis 1, as the input may be sequence-first. Empty if not asked for.
        whole: Whole input of a call on samples, if asked for.
    """

    index: Int[Tensor, " rows"]
    features: Float[Tensor, "rows d"]
    output: Float[Tensor, "rows k"]
    output_step: float = 0.0
    columns: tuple[Tensor, ...] = ()
    whole: Tensor | None = None


@dataclass(frozen=True)
class LinearCall:
    """One call of a module that applies a weight matrix to one vector for each sample or token.

    Attributes:
        name: Name of the module in the model.
        module: The module.
        shape: Shape of the outputs: B x K, or B x T x K (or T x B x K) for a call on tokens.
        turns: True if the input may be sequence-first: it has three axes.
        row: Shape of the input of one sample.
        rows: A few rows of inputs and outputs; None if a later call has taken their place.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    turns: bool = False
    row: tuple[int, ...] = ()
    rows: CallRows | None = None

    @property
    def by_token(self) -> bool:
        """Return whether the layer was applied to every token of a sequence."""
        return len(self.shape) == 3

    def index_in_logits(self, logits: torch.Size, axis: int = 0) -> tuple[Tensor, ...]:
        """Return the index, in logits of this shape, of the rows that were kept.

        Args:
            logits: Shape of the logits.
            axis: Axis of the input that is the first axis of the logits.
        """
        assert self.rows is not None
        lengths = self.shape[:-1] if self.by_token else logits[:-1]
        index = torch.unravel_index(self.rows.index, tuple(lengths))
        return index[::-1] if axis == 1 else index


@dataclass(frozen=True)
class Wanted:
    """Choice of what to keep of the calls of a forward pass.

    Attributes:
        modules: Modules of which rows are kept, of every call; None for the last calls of any.
        each: Number of rows to keep of a call.
        columns: Keep a few columns of all tokens if True, to find a chosen token.
        whole: Keep the whole inputs of calls on samples if True.
        widths: Record calls of modules with or without a weight matrix, whose outputs have one of
            these widths, or any width if empty; None for all modules with a weight matrix.
    """

    modules: Collection[nn.Module] | None = None
    each: int = KEPT_ROWS // (LAST_CALLS + 1)
    columns: bool = False
    whole: bool = False
    widths: Collection[int] | None = None


@contextmanager
def record_calls(
    model: nn.Module,
    on_error: Callable[[Exception], None] | None = None,
    wanted: Wanted | None = None,
) -> Iterator[list[LinearCall]]:
    """Record the calls of linear layers inside the context, in the order in which they end.

    Args:
        model: Model that runs inside the context.
        on_error: Function that is called with an exception of a hook; by default, the exception is
            raised in the forward pass.
        wanted: Choice of the rows to keep; by default, eight of each of the last three calls.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> with record_calls(model) as calls:
        ...     _ = model(torch.zeros(5, 4))
        >>> [call.name for call in calls]
        ['0', '2']
    """
    calls: list[LinearCall] = []
    handles = []
    try:
        for name, module in walk_modules(model):
            hook = guard_hook(_recorder(name, calls, wanted or Wanted()), on_error)
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _recorder(name: str, calls: list[LinearCall], wanted: Wanted) -> Any:
    def record(
        module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        weight = read_tensor(module, "weight")
        features, result = first_tensor((args, kwargs)), first_tensor(output)
        if features is None or result is None or features.is_nested or result.is_nested:
            return
        if wanted.widths is not None:
            if wanted.modules is not None and module not in wanted.modules:
                return
            if features.ndim < 2 or result.ndim < 2:
                return
            if wanted.widths and result.shape[-1] not in wanted.widths:
                return
            matrix: tuple[int, ...] = (result.shape[-1], features.shape[-1])
        elif weight is None or weight.ndim < 2:
            return
        else:
            matrix = tuple(dequantize(weight).shape)
        shape = _output_shape(matrix, features, result)
        if shape is None:
            return
        row = tuple(features.shape[1:])
        call = LinearCall(name, module, shape, features.ndim == 3, row)
        if wanted.modules is None and wanted.widths is None:
            forget_rows(calls, LAST_CALLS - 1)
        if wanted.modules is None or module in wanted.modules:
            call = replace(call, rows=_kept(call, features, result, wanted))
        calls.append(call)

    return record


def forget_rows(calls: list[LinearCall], last: int) -> None:
    """Drop the rows of all calls but the last ones, in place."""
    for index in range(len(calls) - last):
        if calls[index].rows is not None:
            calls[index] = replace(calls[index], rows=None)


def _output_shape(
    weight: tuple[int, ...], features: Tensor, output: Tensor
) -> tuple[int, ...] | None:
    """Return the outputs' shape if there is one row for each sample or token; else None."""
    floats = features.is_floating_point() or features.is_quantized
    if features.ndim < 2 or not floats:
        return None
    classes, size = weight[0], prod(weight[1:])
    once = features.numel() == len(features) * size
    if once and output.numel() == len(features) * classes:
        return len(features), classes
    token = features.ndim > 2 and len(weight) == 2 and features.shape[-1] == size
    if token and output.shape == (*features.shape[:-1], classes):
        return len(features), prod(features.shape[1:-1]), classes
    return None


def _kept(call: LinearCall, features: Tensor, output: Tensor, wanted: Wanted) -> CallRows:
    """Copy a few rows of the input and of the output of a call."""
    count = prod(call.shape[:-1])
    index = _spread(count, wanted.each)
    if call.by_token:
        place = torch.unravel_index(index, features.shape[:-1])
    else:
        place, features, output = (index,), features.flatten(1), output.flatten(1)
    columns = _columns(output) if wanted.columns and call.by_token else ()
    whole = None
    if wanted.whole and not call.by_token:
        whole = dequantize(gather_shards(features.detach())).clone()
    step = output.q_scale() if output.is_quantized else 0.0
    rows = [dequantize(rows_at(tensor, place)) for tensor in (features, output)]
    return CallRows(index, rows[0], rows[1], step, columns, whole)


def _spread(count: int, most: int) -> Int[Tensor, " rows"]:
    """Choose rows at random, always the same ones; all of them if there are few."""
    if count <= most:
        return torch.arange(count)
    # Not evenly spaced: of as many tokens as samples, the diagonal alone could be chosen.
    generator = torch.Generator().manual_seed(0)
    return torch.randint(count, (most,), generator=generator).sort().values


def _columns(output: Tensor) -> tuple[Tensor, ...]:
    """Copy a few columns of all tokens' outputs of the first samples on axis 0, and on axis 1."""
    # Of classes that are sharded, the first process has the first columns.
    columns = gather_shards(output.detach()[..., :TRACED_COLUMNS])
    rows = dequantize(columns).flatten(1, -2)
    turned = rows.transpose(0, 1)
    return tuple(tokens[:TRACED_SAMPLES].clone() for tokens in (rows, turned))


def read_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Return a module's weight or bias; torch's quantised modules have methods of these names."""
    value: Any = getattr(module, name, None)
    hooks: Any = module._forward_pre_hooks.values()
    for hook in hooks:
        if name == "weight" and type(hook).__name__ == "WeightNorm":
            value = hook.compute_weight(module)  # the attribute is that of the last pass
    if hasattr(module, "_packed_params") and callable(value):
        value = value()
    return value if isinstance(value, Tensor) else None


def copy_whole_tensor(model: nn.Module, module: nn.Module, name: str) -> Tensor | None:
    """Copy the whole weight or bias of one module; nothing else of a sharded model is gathered.

    If the model is sharded, every process that has a shard must call this.

    Args:
        model: Model that contains the module.
        module: Module whose tensor is returned.
        name: Name of the tensor, ``weight`` or ``bias``.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> copy_whole_tensor(layer, layer, "weight").shape
        torch.Size([2, 3])
    """
    with assemble_parameters(model, module):
        value = read_tensor(module, name)
        return None if value is None else gather_shards(dequantize(value).detach()).clone()


def dequantize(tensor: Tensor) -> Tensor:
    """Convert a quantised tensor, of torch or of a library, to plain floats.

    Example:
        >>> import torch
        >>> dequantize(torch.ones(2))
        tensor([1., 1.])
    """
    if tensor.is_quantized or (
        type(tensor).dequantize is not Tensor.dequantize and not is_sharded(tensor)
    ):
        plain: Tensor = tensor.dequantize()
        return plain
    return tensor
