"""Calls of linear layers: a few rows of inputs and outputs, and the weight that leads between them.

A forward pass is recorded as a list of `LinearCall`. `find_affine_reader` then finds weight and
bias of a call: those of the module, or those that its outputs on unit vectors show.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from ncscope.errors import InputError
from ncscope.models.evaluation_mode import evaluation_mode, restore_buffers
from ncscope.models.forward import first_tensor, is_map, pixel_rows
from ncscope.models.hooks import guard_hook
from ncscope.models.sharding import gather_shards, is_sharded, rows_at
from ncscope.models.wrappers import assemble_parameters, walk_modules

# Rows of inputs, and of outputs, that are kept of a pass: those of a language model can take 90 GB.
KEPT_ROWS = 32
# The head is one of the last linear layers: only the last calls keep rows, of which they share 24.
LAST_CALLS = 3
# The token whose outputs are the logits is searched in these samples, by these columns.
TRACED_SAMPLES, TRACED_COLUMNS = 2, 4

# Classes whose weights are converted to float64 at once.
_BLOCK = 8192
# Numbers of the outputs on unit vectors that are computed at once.
_OUTPUTS = 2**24

Affine = tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]
"""Weight and bias."""


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
        whole_input: Whole input of a call on samples, if asked for.
    """

    index: Int[Tensor, " rows"]
    features: Float[Tensor, "rows d"]
    output: Float[Tensor, "rows k"]
    output_step: float = 0.0
    columns: tuple[Tensor, ...] = ()
    whole_input: Tensor | None = None


@dataclass(frozen=True)
class LinearCall:
    """One call of a module that applies a weight matrix to one vector for each sample or token.

    Attributes:
        name: Name of the module in the model.
        module: The module.
        shape: Shape of the outputs: B x K, or B x T x K (or T x B x K) for a call on tokens.
        may_be_sequence_first: True if the input has three axes.
        sample_shape: Shape of the input of one sample.
        by_pixel: True if the layer is a convolution of kernel 1 on a map: the pixels are tokens.
        rows: A few rows of inputs and outputs; None if a later call has taken their place.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    may_be_sequence_first: bool = False
    sample_shape: tuple[int, ...] = ()
    by_pixel: bool = False
    rows: CallRows | None = None

    @property
    def by_token(self) -> bool:
        """True if the layer was applied to every token of a sequence."""
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
class RecordOptions:
    """Choice of what to keep of the calls of a forward pass.

    Attributes:
        modules: Modules of which rows are kept, of every call; None for the last calls of any.
        each: Number of rows to keep of a call.
        columns: Keep a few columns of all tokens if True, to find a chosen token.
        whole_input: Keep the whole inputs of calls on samples if True.
        widths: Record calls of modules with or without a weight matrix, whose outputs have one of
            these widths, or any width if empty; None for all modules with a weight matrix.
    """

    modules: Collection[nn.Module] | None = None
    each: int = KEPT_ROWS // (LAST_CALLS + 1)
    columns: bool = False
    whole_input: bool = False
    widths: Collection[int] | None = None


@contextmanager
def record_calls(
    model: nn.Module,
    on_error: Callable[[Exception], None] | None = None,
    options: RecordOptions | None = None,
) -> Iterator[list[LinearCall]]:
    """Record the calls of linear layers inside the context, in the order in which they end.

    Args:
        model: Model that runs inside the context.
        on_error: Function that is called with an exception of a hook; by default, the exception is
            raised in the forward pass.
        options: Choice of the rows to keep; by default, eight of each of the last three calls.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> with record_calls(model) as calls:
        ...     _ = model(torch.zeros(5, 4))
        >>> [call.name for call in calls]
        ['0', '2']
    """
    options = options or RecordOptions()
    calls: list[LinearCall] = []

    def recorder(name: str) -> Any:
        def record(
            module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
        ) -> None:
            features, result = first_tensor((args, kwargs)), first_tensor(output)
            if features is None or result is None or features.is_nested or result.is_nested:
                return
            matrix: tuple[int, ...]
            if options.widths is None:
                weight = read_tensor(module, "weight")
                if weight is None or weight.ndim < 2:
                    return
                matrix = tuple(dequantize(weight).shape)
            else:
                if options.modules is not None and module not in options.modules:
                    return
                if features.ndim < 2 or result.ndim < 2:
                    return
                if options.widths and result.shape[-1] not in options.widths:
                    return
                matrix = result.shape[-1], features.shape[-1]
            shape = _output_shape(matrix, features, result)
            by_pixel = shape is None and _is_pixelwise(matrix, features, result)
            may_be_sequence_first = features.ndim == 3
            sample_shape = tuple(features.shape[1:])
            if by_pixel:
                features, result = pixel_rows(features), pixel_rows(result)
                shape = tuple(result.shape)
            if shape is None:
                return
            call = LinearCall(name, module, shape, may_be_sequence_first, sample_shape, by_pixel)
            if options.modules is None and options.widths is None:
                if by_pixel:
                    # Most networks have many of these, and few have one as the head: only a second
                    # pass keeps their rows.
                    calls.append(call)
                    return
                # Now and not at the end: rows of every layer of the model would be alive at once.
                with_rows = [at for at, before in enumerate(calls) if before.rows is not None]
                for index in with_rows[: len(with_rows) - (LAST_CALLS - 1)]:
                    calls[index] = replace(calls[index], rows=None)
            if options.modules is None or module in options.modules:
                call = replace(call, rows=_copy_rows(call, features, result, options))
            calls.append(call)

        return record

    with ExitStack() as hooks:
        for name, module in walk_modules(model):
            hook = guard_hook(recorder(name), on_error)
            hooks.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        yield calls


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


def _is_pixelwise(weight: tuple[int, ...], features: Tensor, output: Tensor) -> bool:
    """Return whether a layer is a convolution of kernel 1 on a map, B x d x H x W or more."""
    classes, size, *kernel = weight
    return (
        is_map(features)
        and set(kernel) == {1}
        and len(weight) == features.ndim
        and features.shape[1] == size
        and output.shape == (len(features), classes, *features.shape[2:])
    )


def _copy_rows(
    call: LinearCall, features: Tensor, output: Tensor, options: RecordOptions
) -> CallRows:
    """Copy a few rows of the input and of the output of a call, always the same ones."""
    count = prod(call.shape[:-1])
    index = torch.arange(count, device="cpu")
    if count > options.each:
        # At random, not evenly spaced: of as many tokens as samples, the diagonal alone could be
        # chosen, on which B x T and T x B are the same.
        generator = torch.Generator().manual_seed(0)
        index = (
            torch.randint(count, (options.each,), generator=generator, device="cpu").sort().values
        )
    if call.by_token:
        place = torch.unravel_index(index, features.shape[:-1])
    else:
        place, features, output = (index,), features.flatten(1), output.flatten(1)
    columns: tuple[Tensor, ...] = ()
    if options.columns and call.by_token:
        # Of classes that are sharded, the first process has the first columns.
        first = gather_shards(output.detach()[..., :TRACED_COLUMNS])
        tokens = dequantize(first).flatten(1, -2)
        columns = tuple(x[:TRACED_SAMPLES].clone() for x in (tokens, tokens.transpose(0, 1)))
    whole_input = None
    if options.whole_input and not call.by_token:
        whole_input = dequantize(gather_shards(features.detach())).clone()
    step = output.q_scale() if output.is_quantized else 0.0
    rows = [dequantize(rows_at(tensor, place)) for tensor in (features, output)]
    return CallRows(index, rows[0], rows[1], step, columns, whole_input)


def find_affine_reader(model: nn.Module, call: LinearCall) -> Callable[[], Affine | None]:
    """Return a function that reads the weight and the bias of a layer.

    With these, ``features @ weight.T + bias`` is the output of the call. The module's own weight
    and bias are taken if they give its outputs. Otherwise, and first for a module around another
    one, the module runs on the unit vectors, which shows the map of an adapter (low-rank, IA3), of
    a quantised layer, and of a layer that holds its matrix under another name or as its transpose.

    Args:
        model: Model that contains the module.
        call: Call of the module, with rows of its inputs and outputs.

    Returns:
        Function that returns copies of the present weight, K x d, and bias. Its cost, for a layer
        whose own weight does not give its outputs, is 2d + 1 rows through the layer.

    Raises:
        InputError: If neither gives the outputs up to rounding: the layer is not affine.
    """
    # The weight of an adapter's module is that of its base. In bfloat16 the change by the adapter
    # can be within rounding, and the base would pass the comparison: it is not tried first.
    plain = {"parametrizations", "_packed_params"}  # of torch's own layers
    wraps = any(name not in plain for name, _ in call.module.named_children())
    ways = (_map_on_unit_vectors, _read_affine) if wraps else (_read_affine, _map_on_unit_vectors)
    rows = call.rows
    assert rows is not None
    for read in ways:
        affine = read(model, call)
        if affine is None:
            continue
        weight, bias = affine
        gaps = (_multiply(rows.features, weight, bias) - rows.output).abs().amax(dim=0)
        allowed = _tolerance(rows.output) * rows.output.abs().max().to(gaps)
        parts = [read_tensor(part, "weight") for part in call.module.modules()]
        if any(
            part is not None and (dequantize(part) is not part or not part.dtype.is_floating_point)
            for part in parts
        ):
            # A quantised head may round its input to 127 steps between the extremes and zero. The
            # error of an entry is half a step, and half a step more for the rounding of zero; the
            # sum of |w_c| multiplies this error.
            low, high = rows.features.amin().clamp(max=0), rows.features.amax().clamp(min=0)
            rounding = (high - low) / 127 * weight.abs().sum(dim=1) + rows.output_step
            allowed = allowed + rounding
        # The products that cancel are bounded only if they must be, by one more product.
        if (gaps <= allowed).all() or (gaps <= allowed + _cancellation(rows, weight)).all():
            return partial(read, model, call)
    raise InputError(
        expected=f"outputs of head {call.name!r} equal to features @ weight.T + bias",
        found="outputs that are no affine function of its input",
        fix="if another layer is the head, leave head out: it is found by its outputs. A "
        "normalised (cosine, ArcFace) head has no weight: collect the features that it reads, and "
        "call ncscope.measure(features, labels)",
    )


def _read_affine(model: nn.Module, call: LinearCall) -> Affine | None:
    """Return the weight and the bias that a module holds; None if they have other shapes."""
    # A parametrisation of the user may write buffers, as spectral normalisation does in training.
    with evaluation_mode(call.module), restore_buffers(call.module):
        weight, bias = (copy_whole_tensor(model, call.module, part) for part in ("weight", "bias"))
    assert call.rows is not None
    size = call.rows.features.shape[1]
    if weight is None or weight.ndim < 2 or not weight.is_floating_point():
        return None  # bare integers of a quantised matrix are no weight
    if weight.flatten(1).shape != (call.shape[-1], size):
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InputError(
            expected=f"one bias a class in head {call.name!r}",
            found=f"bias of shape {tuple(bias.shape)} and weight {tuple(weight.shape)}",
            fix="give the layer a bias with an entry for each of its outputs",
        )
    return weight.flatten(1), bias


def _map_on_unit_vectors(model: nn.Module, call: LinearCall) -> Affine | None:
    """Run a module on the unit vectors and on zero; None if it does not run on them.

    If the module is affine, these outputs are its columns and its bias. Half the difference of the
    outputs on a unit vector and on its negative is free of the bias, whose rounding could hide a
    small column.

    Args:
        model: Model that contains the module, in evaluation mode.
        call: Call of the module, with rows of its inputs.
    """
    assert call.rows is not None
    like = call.rows.features
    size, classes = like.shape[1], call.shape[-1]

    def run(rows: Tensor) -> Tensor:
        shaped = rows[None] if call.by_token else rows.unflatten(1, call.sample_shape)
        if call.by_pixel:
            shaped = rows.T.reshape(1, size, len(rows), *[1] * (len(call.sample_shape) - 2))
        # Not a call of the module: that would run hooks, which count passes of the user's loop.
        output = call.module.forward(shaped)
        output = pixel_rows(output) if call.by_pixel else output
        return dequantize(output.detach()).reshape(len(rows), classes)

    columns = []
    step = max(1, _OUTPUTS // classes)
    try:
        with evaluation_mode(call.module), assemble_parameters(model, call.module):
            bias = run(like.new_zeros(1, size))[0]
            for start in range(0, size, step):
                unit = torch.eye(size, dtype=like.dtype, device=like.device)[start : start + step]
                columns.append((run(unit) - run(-unit)) / 2)
    except (TypeError, ValueError, RuntimeError, IndexError, KeyError, AttributeError):
        return None  # a module may need inputs of another form, and fails in a way of its own
    weight = torch.cat(columns).T.contiguous()
    return weight, bias.clone() if bool(bias.any()) else None


def _multiply(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply in float64 where the device has it; by blocks, as a weight may take gigabytes."""
    wide = torch.float32 if features.device.type == "mps" else torch.float64
    blocks = [features.to(wide) @ block.to(wide).T for block in weight.split(_BLOCK)]
    product = torch.cat(blocks, dim=1)
    return product if bias is None else product + bias.to(wide)


def _tolerance(output: Tensor) -> float:
    """Return the relative tolerance: 1e-5, or the rounding of the outputs' type if coarser."""
    rounding = torch.finfo(output.dtype).eps
    # CUDA may multiply float32 in TF32, which keeps 10 bits.
    tf32 = output.is_cuda and output.dtype == torch.float32
    return max(1e-5, 2 * rounding, 2**-9 if tf32 else 0)


def _cancellation(rows: CallRows, weight: Tensor) -> Float[Tensor, " k"]:
    r"""Estimate the rounding of each output of large products that cancel.

    The sum $\langle w_c,h\rangle$ is rounded in units of $\sum_j|w_{cj}h_j|$, which is far larger
    than the output where the features have a large common offset.
    """
    unit = torch.finfo(rows.output.dtype).eps
    if rows.output.itemsize < torch.float32.itemsize:
        unit = torch.finfo(torch.float32).eps  # of which the sums are
    return 4 * unit * _multiply(rows.features.abs(), weight.abs(), None).amax(dim=0)


def read_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Return a module's present weight or bias; None if it has none.

    The attribute is not enough. Weight normalisation as a hook computes it before each pass, so
    that it is the weight of the pass before; torch's quantised modules have methods of these names.
    """
    with ExitStack() as stack:
        if is_parametrized(module, name):
            # To read a weight under spectral normalisation in training mode is a step of its power
            # iteration: a run that is watched would train unlike a run that is not.
            parametrizations: Any = module.parametrizations
            for part in parametrizations[name].modules():
                stack.callback(setattr, part, "training", part.training)
                part.training = False
        value: Any = getattr(module, name, None)
    hooks: Any = module._forward_pre_hooks.values()
    for hook in hooks:
        if name == "weight" and type(hook).__name__ == "WeightNorm":
            value = hook.compute_weight(module)
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
