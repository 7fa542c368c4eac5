"""Weight and bias of a head: its own, or those that its outputs show; checked on a few rows."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.evaluation import evaluation_mode, restore_buffers
from ncscope.models.linear_calls import (
    CallRows,
    LinearCall,
    copy_whole_tensor,
    dequantize,
    read_tensor,
)
from ncscope.models.wrappers import assemble_parameters

# Classes whose weights are converted at once.
_BLOCK = 8192
# Numbers of the outputs on unit vectors that are computed at once.
_OUTPUTS = 2**24

Affine = tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]


def find_affine_map(model: nn.Module, call: LinearCall) -> Callable[[], Affine | None]:
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
    # In bfloat16 the change of an adapter can be within rounding, so its base is not tried first.
    plain = {"parametrizations", "_packed_params"}  # of torch's own layers
    wraps = any(name not in plain for name, _ in call.module.named_children())
    for find in (map_on_unit_vectors, _own) if wraps else (_own, map_on_unit_vectors):
        found = find(model, call)
        if found is not None and _gives_outputs(call, *found):
            return partial(find, model, call)
    raise InputError(
        expected=f"outputs of head {call.name!r} equal to features @ weight.T + bias",
        found="outputs that are no affine function of its input",
        fix="if another layer is the head, leave head out: it is found by its outputs. A "
        "normalised (cosine, ArcFace) head has no weight: collect the features that it reads, and "
        "call ncscope.measure(features, labels)",
    )


def _own(model: nn.Module, call: LinearCall) -> Affine | None:
    """Return the weight and the bias that a module holds; None if they have other shapes."""
    # Not in training mode: spectral normalisation would do a step of its iteration.
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


def map_on_unit_vectors(model: nn.Module, call: LinearCall) -> Affine | None:
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
        shaped = rows[None] if call.by_token else rows.unflatten(1, call.row)
        # Not a call: hooks of the module belong to the passes of the user's loop.
        output = call.module.forward(shaped)
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
        return None
    weight = torch.cat(columns).T.contiguous()
    return weight, bias.clone() if bool(bias.any()) else None


def _gives_outputs(call: LinearCall, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether ``features @ weight.T + bias`` is the output of a call, up to rounding."""
    assert call.rows is not None
    rows = call.rows
    gaps = (_product(rows.features, weight, bias) - rows.output).abs().amax(dim=0)
    allowed = _tolerance(rows.output) * rows.output.abs().max().to(gaps)
    if _is_quantised(call.module):
        allowed = allowed + _rounding(rows, weight)
    fits = (gaps <= allowed).all() or (gaps <= allowed + _cancelled(rows, weight)).all()
    return bool(fits)


def _product(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply in float64 where the device has it; by blocks, as a weight may take gigabytes."""
    wide = torch.float32 if features.device.type == "mps" else torch.float64
    blocks = [features.to(wide) @ block.to(wide).T for block in weight.split(_BLOCK)]
    product = torch.cat(blocks, dim=1)
    return product if bias is None else product + bias.to(wide)


def _is_quantised(module: nn.Module) -> bool:
    """Return whether the weight is quantised: such a module may round its input too."""
    weights = [read_tensor(part, "weight") for part in module.modules()]
    return any(
        weight is not None
        and (dequantize(weight) is not weight or not weight.dtype.is_floating_point)
        for weight in weights
    )


def _tolerance(output: Tensor) -> float:
    """Return the relative tolerance: 1e-5, or the rounding of the outputs' type if coarser."""
    rounding = torch.finfo(output.dtype).eps
    # CUDA may multiply float32 in TF32, which keeps 10 bits.
    tf32 = output.is_cuda and output.dtype == torch.float32
    return max(1e-5, 2 * rounding, 2**-9 if tf32 else 0)


def _cancelled(rows: CallRows, weight: Tensor) -> Float[Tensor, " k"]:
    r"""Estimate the rounding of each output of large products that cancel.

    The sum $\langle w_c,h\rangle$ is rounded in units of $\sum_j|w_{cj}h_j|$, which is far larger
    than the output where the features have a large common offset.
    """
    unit = torch.finfo(rows.output.dtype).eps
    if rows.output.itemsize < torch.float32.itemsize:
        unit = torch.finfo(torch.float32).eps  # of which the sums are
    return 4 * unit * _product(rows.features.abs(), weight.abs(), None).amax(dim=0)


def _rounding(rows: CallRows, weight: Tensor) -> Float[Tensor, " k"]:
    r"""Bound the error of each output of a quantised head.

    The head may round its input to 127 steps between the extremes and zero. The error of an entry
    is half a step, and half a step more for the rounding of zero; $\lVert w_c\rVert_1$ multiplies
    this error.
    """
    low, high = rows.features.amin().clamp(max=0), rows.features.amax().clamp(min=0)
    return (high - low) / 127 * weight.abs().sum(dim=1) + rows.output_step
