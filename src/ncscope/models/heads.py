"""Finding a classifier's head by tracing its logits, so that no list of names is needed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.forward import first_tensor, forward, logits_of
from ncscope.models.layers import named_layer
from ncscope.models.measuring import measuring


@dataclass(frozen=True)
class Head:
    """A linear classifier in a model: outputs are ``features @ weight.T + bias``.

    Attributes:
        name: Name of the module in the model; empty if it is the model.
        module: The module itself; its input, flattened to B x d, is the features.
        weight: K x d, a copy taken when the head was found, as the forward pass used it: after
            pruning, weight or spectral normalisation.
        bias: K, a copy; None if there is none.
        gives_logits: Whether its outputs are the model's logits: False for a head that was asked
            for by name and whose outputs the model scales, averages or masks.
    """

    name: str
    module: nn.Module
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"] | None
    gives_logits: bool = True


@dataclass(frozen=True)
class _Call:
    """One call of a module that applies a weight matrix to one vector a sample."""

    name: str
    module: nn.Module
    weight: Tensor
    bias: Tensor | None
    features: Tensor
    output: Tensor


def find_head(model: nn.Module, inputs: object, name: str | None = None) -> Head:
    """The linear layer whose output is the model's logits.

    The model runs once, in evaluation mode, under hooks. The head is the innermost module with a
    weight matrix whose output equals the logits up to a reshape: an ``nn.Linear``, plain,
    pruned or parametrised, a convolution over a map that it reduces to one pixel, or any
    module that acts like one. Then ``features @ weight.T + bias`` is checked against its output.

    Args:
        model: A classifier that returns logits as a tensor, in a tuple, or under ``logits``.
        inputs: One small batch as the loader yields it, without the labels; see `forward`.
        name: The head's name, if known. Such a head needs only be linear: what the model does
            to its outputs afterwards is told by ``gives_logits``.

    Returns:
        The head. Cost: one forward pass, and a copy of the inputs of the model's linear layers.

    Raises:
        InputError: No module, or more than one, has the logits as its output (a scaled or
            averaged head, a distilled model, a pooled map of logits, a compiled model); the head
            is not linear (normalised, cosine); it runs more than once in a forward pass; or
            there is no module of that name.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> head = find_head(model, torch.zeros(5, 1, 2, 2))
        >>> head.name, head.weight.shape
        ('3', torch.Size([2, 3]))
    """
    with measuring(model):
        logits, calls = _trace(model, inputs)
        call = _innermost(calls, logits) if name is None else _named(model, calls, name)
        _check_called_once(call, calls)
        _check_linear(call)
    return Head(call.name, call.module, call.weight, call.bias, _equal(call.output, logits))


def _trace(model: nn.Module, inputs: object) -> tuple[Tensor, list[_Call]]:
    """The logits, and the calls of linear layers in the order in which they end."""
    with _recorded_calls(model) as calls:
        logits = logits_of(forward(model, inputs))
    if not logits.isfinite().all():
        rows = int((~logits.isfinite().all(dim=1)).sum())
        raise InputError(
            expected="finite logits",
            found=f"NaN or infinity in {rows} of {len(logits)} rows",
            fix="check the inputs' scale and the model's weights",
        )
    return logits, calls


@contextmanager
def _recorded_calls(model: nn.Module) -> Iterator[list[_Call]]:
    calls: list[_Call] = []
    handles = []
    try:
        for name, module in model.named_modules():
            hook = _recorder(name, calls)
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _recorder(name: str, calls: list[_Call]) -> Any:
    def record(
        module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        features, result = first_tensor((args, kwargs)), first_tensor(output)
        if not isinstance(weight, Tensor) or features is None or result is None:
            return
        if not _one_vector_a_sample(weight, features, result):
            return
        bias = _copied(bias) if isinstance(bias, Tensor) else None
        matrix, rows, outputs = (_copied(t.flatten(1)) for t in (weight, features, result))
        calls.append(_Call(name, module, matrix, bias, rows, outputs))

    return record


def _copied(tensor: Tensor) -> Tensor:
    """A copy, since the model may change the tensor in place after this call."""
    return tensor.detach().clone()


def _one_vector_a_sample(weight: Tensor, features: Tensor, output: Tensor) -> bool:
    return (
        weight.ndim > 1
        and features.ndim > 1
        and features.is_floating_point()
        and features.numel() == len(features) * weight[0].numel()
        and output.numel() == len(features) * len(weight)
    )


def _equal(output: Tensor, logits: Tensor) -> bool:
    return output.shape == logits.shape and torch.equal(output.to(logits.dtype), logits)


def _innermost(calls: list[_Call], logits: Tensor) -> _Call:
    """The one module with the logits as output that has no other such module inside it."""
    matches = [call for call in calls if _equal(call.output, logits)]
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


def _no_head(calls: list[_Call], logits: Tensor) -> InputError:
    expected = "a linear layer whose output is the logits"
    alike = {
        call.name: call.output.to(logits.dtype)
        for call in calls
        if call.output.shape == logits.shape
    }
    for name, output in alike.items():
        scale = (logits * output).sum() / output.square().sum()
        if torch.allclose(scale * output, logits, rtol=1e-4):
            found = f"logits that are {scale:.4g} times the output of {name!r}"
            fix = f'pass head="{name}" to measure it unscaled'
            return InputError(expected=expected, found=found, fix=fix)
    for (one, output), (two, other) in combinations(alike.items(), 2):
        if torch.allclose((output + other) / 2, logits, rtol=1e-4, atol=1e-6):
            found = f"the average of {one!r} and {two!r}, as in a distilled model"
            fix = f'pass head="{one}" or head="{two}" to measure one of them'
            return InputError(expected=expected, found=found, fix=fix)
    return InputError(expected=expected, found="none", fix=_advice(calls))


def _advice(calls: list[_Call]) -> str:
    last = list(dict.fromkeys(call.name for call in calls))[-3:]
    if last:
        return f'pass head="..."; the last linear layers are {", ".join(map(repr, last))}'
    return (
        "no layer applies a weight matrix to one vector a sample: pool before the classifier "
        "rather than after it, and pass the model itself, not a compiled or scripted one"
    )


def _named(model: nn.Module, calls: list[_Call], name: str) -> _Call:
    module = named_layer(model, name)
    own = [call for call in calls if call.module is module]
    if not own:
        expected = f"head {name!r} to apply a weight matrix to one vector a sample"
        found = f"a {type(module).__name__} that does not, or that the forward pass does not use"
        within = [call for call in calls if _inside(call.name, name)] or calls
        raise InputError(expected=expected, found=found, fix=_advice(within))
    return own[-1]


def _check_called_once(call: _Call, calls: list[_Call]) -> None:
    times = sum(other.module is call.module for other in calls)
    if times > 1:
        expected = f"head {call.name!r} to run once in a forward pass"
        fix = "wrap the model so that it sees one view of the inputs at a time"
        raise InputError(expected=expected, found=f"{times} calls", fix=fix)


def _check_linear(call: _Call) -> None:
    """Outputs must be those of the weight and bias, to rounding."""
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
    gap = float((product - call.output).abs().max())
    scale = float(call.output.abs().max())
    if not gap <= _tolerance(call.output) * scale:
        expected = f"outputs of head {call.name!r} equal to features @ weight.T + bias"
        found = f"a gap of {gap:.3g} at outputs of up to {scale:.3g}"
        fix = "a normalised (cosine), scaled or masked head is not linear: pass another head"
        raise InputError(expected=expected, found=found, fix=fix)


def _tolerance(output: Tensor) -> float:
    """1e-5 in float32; what the outputs are rounded to where that is coarser."""
    rounding = torch.finfo(output.dtype).eps
    # CUDA may multiply float32 in TF32, which keeps 10 bits.
    tf32 = output.is_cuda and output.dtype == torch.float32
    return max(1e-5, 2 * rounding, 2**-9 if tf32 else 0)
