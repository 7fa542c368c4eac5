"""Detection of a classifier's head from its logits, without a list of names."""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import forward, logits_of
from ncscope.models.layers import named_layer
from ncscope.models.linear_calls import LinearCall, recorded_calls
from ncscope.models.measuring import measuring

Rows: TypeAlias = Literal["sample", "token", "chosen token"]


@dataclass(frozen=True)
class Head:
    """A linear classifier in a model: outputs are ``features @ weight.T + bias``.

    Attributes:
        name: Name of the module in the model; empty if the head is the whole model.
        module: Module of the head; its inputs are the features, one row for each of ``rows``.
        weight: Weight of shape K x d, as the forward pass used it: after pruning, weight or
            spectral normalisation, and dequantised. A copy from the time of the detection.
        bias: Bias of length K, a copy; None without a bias.
        gives_logits: True if the outputs of the head are the model's logits; False for a head that
            was given by name and whose outputs the model scales, averages or masks.
        rows: Unit to which the head is applied. ``"sample"``: one vector for each sample.
            ``"token"``: every token, and the logits are those of all tokens, as in language models.
            ``"chosen token"``: every token, and the logits of a sample are those of one token, such
            as the last.
        axis: Axis of the input that is the first axis of the logits: 1 for a head on the tokens of
            a sequence-first layer, T x B x d, else 0.
    """

    name: str
    module: nn.Module
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"] | None
    gives_logits: bool = True
    rows: Rows = "sample"
    axis: int = 0


def find_head(model: nn.Module, inputs: object, name: str | None = None) -> Head:
    """Find the linear layer whose output is the model's logits.

    The model runs once, in evaluation mode, with hooks. The head is the innermost module with a
    weight matrix whose output equals the logits up to a reshape: an ``nn.Linear``, plain,
    pruned, quantised or parametrised, a convolution over a map that it reduces to one pixel, or
    any module that acts like one. The head may be applied to every token of a sequence: the logits
    are then its outputs for all tokens, or for one token of each sample. At the end,
    ``features @ weight.T + bias`` is compared with the output of the head.

    Args:
        model: A classifier that returns logits as a tensor, in a tuple, or under ``logits``.
        inputs: One small batch as the loader yields it, without the labels; see `forward`.
        name: Name of the head, if known. The model may change the outputs of a named head, which
            only has to be linear; ``gives_logits`` is then False.

    Returns:
        The head. Cost: one forward pass, and a copy of the inputs and outputs of the model's
        linear layers (of two samples if they have tokens).

    Raises:
        InputError: If no module, or more than one, has the logits as its output (a scaled or
            averaged head, a distilled model, a pooled map of logits, a scripted model); the head
            is not linear (normalised, cosine) or runs more than once in a forward pass; or there is
            no module of the given name.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> head = find_head(model, torch.zeros(5, 1, 2, 2))
        >>> head.name, head.weight.shape
        ('3', torch.Size([2, 3]))
    """
    return head_and_shape(model, inputs, name)[0]


def head_and_shape(
    model: nn.Module, inputs: object, name: str | None = None
) -> tuple[Head, torch.Size]:
    """Find the head as `find_head` does, and also return the shape of the logits."""
    with measuring(model):
        logits, calls = _trace(model, inputs)
        return head_among(model, calls, logits, name), logits.shape


def head_among(
    model: nn.Module, calls: list[LinearCall], logits: Tensor | None, name: str | None = None
) -> Head:
    """Find the head among the calls of linear layers in one forward pass, as `find_head` does.

    Args:
        model: Model whose layers were called.
        calls: Calls of its linear layers.
        logits: Logits of the pass; None for the outputs of the head that is given by name.
        name: Name of the head, if known.
    """
    if name is not None:
        call = _last_call(model, calls, name)
    else:
        assert logits is not None
        call = _innermost(calls, logits)
    if logits is None:
        logits = call.output
    _check_called_once(call, calls)
    _check_linear(call)
    reading = _reading(call, logits)
    rows, axis = reading or (_rows_of_scaled(call, logits), 0)
    bias = None if call.bias is None else call.bias.clone()
    gives = reading is not None
    return Head(call.name, call.module, call.weight.clone(), bias, gives, rows, axis)


def chosen_tokens(
    output: Float[Tensor, "b t k"], logits: Float[Tensor, "b k"]
) -> Bool[Tensor, "b t"]:
    """Mark the tokens whose outputs equal the logits of their sample.

    Example:
        >>> output = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
        >>> chosen_tokens(output, torch.tensor([[3.0, 4.0]]))
        tensor([[False,  True]])
    """
    return (output.to(logits.dtype) == logits[:, None]).all(dim=2)


def _trace(model: nn.Module, inputs: object) -> tuple[Tensor, list[LinearCall]]:
    """Return the logits, and the calls of linear layers in the order in which they end."""
    with recorded_calls(model) as calls:
        logits = logits_of(forward(model, inputs))
    broken = ~logits.isfinite().flatten(0, -2).all(dim=1)
    if broken.any():
        raise InputError(
            expected="finite logits",
            found=f"NaN or infinity in {int(broken.sum())} of {len(broken)} rows",
            fix="check the inputs' scale and the model's weights",
        )
    return logits, calls


def _reading(call: LinearCall, logits: Tensor) -> tuple[Rows, int] | None:
    """Return the unit of a row of the head's input and its batch axis; None without logits."""
    if not call.by_token:
        kind: Rows = "sample" if logits.ndim == 2 else "token"
        return (kind, 0) if _equal(call.output, logits.flatten(0, -2)) else None
    for axis, output in enumerate((call.output, call.turned)):
        if output is not None and call.lengths[axis] == len(logits):
            rows = _token_rows(output, logits[: len(output)])
            if rows is not None:
                return rows, axis
    return None


def _token_rows(output: Float[Tensor, "b t c"], logits: Tensor) -> Rows | None:
    """Return whether the logits are the outputs of all tokens or of one token; None for neither."""
    if logits.ndim == 3:
        return "token" if _equal(output, logits) else None
    if output.shape[2] != logits.shape[1]:
        return None
    return "chosen token" if chosen_tokens(output, logits).any(dim=1).all() else None


def _rows_of_scaled(call: LinearCall, logits: Tensor) -> Rows:
    """Return the unit of a head whose outputs the model changes to the logits."""
    if logits.ndim == 3:
        return "token"
    if call.by_token:
        raise InputError(
            expected=f"logits that are outputs of head {call.name!r} for one token a sample",
            found="logits that are not",
            fix="wrap the model so that it returns the outputs of the head",
        )
    return "sample"


def _equal(output: Tensor, logits: Tensor) -> bool:
    return output.shape == logits.shape and torch.equal(output.to(logits.dtype), logits)


def _innermost(calls: list[LinearCall], logits: Tensor) -> LinearCall:
    """Return the call of the only innermost module whose output is the logits."""
    matches = [call for call in calls if _reading(call, logits) is not None]
    names = {call.name for call in matches}
    inner = [name for name in names if not any(_inside(other, name) for other in names)]
    if not inner:
        raise _no_head(calls, logits)
    if len(inner) > 1:
        found = " and ".join(map(repr, sorted(inner)))
        raise InputError(
            expected="one layer whose output is the logits", found=found, fix='pass head="..."'
        )
    return next(call for call in matches if call.name == inner[0])


def _inside(name: str, outer: str) -> bool:
    return name != outer and (outer == "" or name.startswith(f"{outer}."))


def _no_head(calls: list[LinearCall], logits: Tensor) -> InputError:
    expected = "a linear layer whose output is the logits"
    alike = {call.name: call.output.to(logits.dtype) for call in calls if _alike(call, logits)}
    for name, output in alike.items():
        traced = logits[: len(output)]
        scale = (traced * output).sum() / output.square().sum()
        if torch.allclose(scale * output, traced, rtol=1e-4):
            found = f"logits that are {scale:.4g} times the output of {name!r}"
            fix = f'pass head="{name}" to measure it unscaled'
            return InputError(expected=expected, found=found, fix=fix)
    for (one, output), (two, other) in combinations(alike.items(), 2):
        if torch.allclose((output + other) / 2, logits[: len(output)], rtol=1e-4, atol=1e-6):
            found = f"the average of {one!r} and {two!r}, as in a distilled model"
            fix = f'pass head="{one}" or head="{two}" to measure one of them'
            return InputError(expected=expected, found=found, fix=fix)
    by_logits = [call for call in calls if not call.by_token or _alike(call, logits)]
    return InputError(expected=expected, found="none", fix=_advice(by_logits))


def _alike(call: LinearCall, logits: Tensor) -> bool:
    """Return whether the call's output has the shape of the logits."""
    return call.output.shape == logits[: len(call.output)].shape


def _advice(calls: list[LinearCall]) -> str:
    last = list(dict.fromkeys(call.name for call in calls))[-3:]
    if last:
        return f'pass head="..."; the last linear layers are {", ".join(map(repr, last))}'
    return (
        "no layer applies a weight matrix to one vector a sample: pool before the classifier "
        "rather than after it, and pass the model itself, not a scripted one"
    )


def _last_call(model: nn.Module, calls: list[LinearCall], name: str) -> LinearCall:
    module = named_layer(model, name)
    matching = [call for call in calls if call.module is module]
    if not matching:
        expected = f"head {name!r} to apply a weight matrix to one vector a sample"
        found = f"a {type(module).__name__} that does not, or that the forward pass does not use"
        within = [call for call in calls if _inside(call.name, name)] or calls
        raise InputError(expected=expected, found=found, fix=_advice(within))
    return matching[-1]


def _check_called_once(call: LinearCall, calls: list[LinearCall]) -> None:
    times = sum(other.module is call.module for other in calls)
    if times > 1:
        expected = f"head {call.name!r} to run once in a forward pass"
        fix = "wrap the model so that it sees one view of the inputs at a time"
        raise InputError(expected=expected, found=f"{times} calls", fix=fix)


def _check_linear(call: LinearCall) -> None:
    """Check that the outputs equal ``features @ weight.T + bias`` up to rounding."""
    wide = torch.promote_types(call.features.dtype, torch.float32)
    bias = call.bias.to(wide) if call.bias is not None else None
    if bias is not None and bias.shape != call.weight.shape[:1]:
        shapes = f"bias of shape {tuple(bias.shape)} and weight {tuple(call.weight.shape)}"
        raise InputError(
            expected=f"one bias a class in head {call.name!r}",
            found=shapes,
            fix="pass another head",
        )
    product = nn.functional.linear(call.features.to(wide), call.weight.to(wide), bias)
    gaps = (product - call.output).abs().flatten(0, -2).amax(dim=0)
    scale = float(call.output.abs().max())
    if not (gaps <= _tolerance(call.output) * scale + _rounding(call)).all():
        expected = f"outputs of head {call.name!r} equal to features @ weight.T + bias"
        found = f"a gap of {gaps.max():.3g} at outputs of up to {scale:.3g}"
        fix = "a normalised (cosine), scaled or masked head is not linear: pass another head"
        raise InputError(expected=expected, found=found, fix=fix)


def _tolerance(output: Tensor) -> float:
    """Return the relative tolerance: 1e-5, or the rounding of the outputs' type if coarser."""
    rounding = torch.finfo(output.dtype).eps
    # CUDA may multiply float32 in TF32, which keeps 10 bits.
    tf32 = output.is_cuda and output.dtype == torch.float32
    return max(1e-5, 2 * rounding, 2**-9 if tf32 else 0)


def _rounding(call: LinearCall) -> Float[Tensor, " k"] | float:
    r"""Bound the error of each output of a quantised head.

    The head may round its input to 127 steps between the extremes and zero. The error of an entry
    is half a step, and half a step more for the rounding of zero; $\lVert w_c\rVert_1$ multiplies
    this error.
    """
    if not call.quantized:
        return 0.0
    low, high = call.features.amin().clamp(max=0), call.features.amax().clamp(min=0)
    return (high - low) / 127 * call.weight.abs().sum(dim=1) + call.output_step
