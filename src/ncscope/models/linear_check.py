"""Check that a head is linear, on the few rows that were kept of its call."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.linear_calls import CallRows, LinearCall, dequantized, own_tensor

# Classes whose weights are converted at once.
_BLOCK = 8192


def check_linear(call: LinearCall, weight: Tensor, bias: Tensor | None) -> None:
    """Check that the outputs equal ``features @ weight.T + bias`` up to rounding.

    Args:
        call: Call of a linear layer, with rows of its inputs and outputs.
        weight: Whole weight of the layer, K x d.
        bias: Whole bias, or None.

    Raises:
        InputError: If a row differs.
    """
    if bias is not None and bias.shape != weight.shape[:1]:
        shapes = f"bias of shape {tuple(bias.shape)} and weight {tuple(weight.shape)}"
        raise InputError(
            expected=f"one bias a class in head {call.name!r}",
            found=shapes,
            fix="pass another head",
        )
    assert call.rows is not None
    rows = call.rows
    gaps = (_product(rows.features, weight, bias) - rows.output).abs().amax(dim=0)
    scale = float(rows.output.abs().max())
    rounding = _rounding(rows, weight) if _is_quantised(call.module) else 0.0
    allowed = _tolerance(rows.output) * scale + rounding
    if not (gaps <= allowed).all() and not (gaps <= allowed + _cancelled(rows, weight)).all():
        expected = f"outputs of head {call.name!r} equal to features @ weight.T + bias"
        found = f"a gap of {gaps.max():.3g} at outputs of up to {scale:.3g}"
        fix = "a normalised (cosine), scaled or masked head is not linear: pass another head"
        raise InputError(expected=expected, found=found, fix=fix)


def _product(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply in float64 where the device has it; by blocks, as a weight may take gigabytes."""
    wide = torch.float32 if features.device.type == "mps" else torch.float64
    blocks = [features.to(wide) @ block.to(wide).T for block in weight.split(_BLOCK)]
    product = torch.cat(blocks, dim=1)
    return product if bias is None else product + bias.to(wide)


def _is_quantised(module: nn.Module) -> bool:
    """Return whether the weight is quantised: such a module may round its input too."""
    weight = own_tensor(module, "weight")
    return weight is not None and dequantized(weight) is not weight


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
