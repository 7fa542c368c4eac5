"""Calls of linear layers in a forward pass: weights, inputs and outputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from ncscope.models.forward import first_tensor
from ncscope.models.hooks import caught

# A language model's outputs for a whole batch can take gigabytes; two samples identify the head.
TRACED_SAMPLES = 2


@dataclass(frozen=True)
class LinearCall:
    """One call of a module that applies a weight matrix to one vector for each sample or token.

    Attributes:
        name: Name of the module in the model.
        module: The module.
        weight: Matrix that the call used, K x d; not a copy.
        bias: Bias that the call used, or None; not a copy.
        features: Input: B x d, or B x T x d of the first `TRACED_SAMPLES` samples; a copy.
        output: Output: B x K, or B x T x K of these samples; a copy.
        quantized: True if the weight is quantised: such a module may round its input too.
        output_step: Step of which the output is a multiple if the module rounds it; else 0.
        turned: Output of the first samples if the input was sequence-first, T x B x d; a copy.
        lengths: Lengths of the first two axes of the input: B and T, or T and B.
    """

    name: str
    module: nn.Module
    weight: Float[Tensor, "k d"]
    bias: Tensor | None
    features: Float[Tensor, "*rows d"]
    output: Float[Tensor, "*rows k"]
    quantized: bool = False
    output_step: float = 0.0
    turned: Tensor | None = None
    lengths: tuple[int, ...] = ()

    @property
    def by_token(self) -> bool:
        """Return whether the layer was applied to every token of a sequence."""
        return self.features.ndim == 3


@contextmanager
def recorded_calls(
    model: nn.Module, on_error: Callable[[Exception], None] | None = None
) -> Iterator[list[LinearCall]]:
    """Record the calls of linear layers inside the context, in the order in which they end.

    Args:
        model: Model that runs inside the context.
        on_error: Function that is called with an exception of a hook; by default, the exception is
            raised in the forward pass.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> with recorded_calls(model) as calls:
        ...     _ = model(torch.zeros(5, 4))
        >>> [call.name for call in calls]
        ['0', '2']
    """
    calls: list[LinearCall] = []
    handles = []
    try:
        for name, module in model.named_modules():
            hook = caught(_recorder(name, calls), on_error)
            handles.append(module.register_forward_hook(hook, with_kwargs=True))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _recorder(name: str, calls: list[LinearCall]) -> Any:
    def record(
        module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        weight, bias = _own_tensor(module, "weight"), _own_tensor(module, "bias")
        features, result = first_tensor((args, kwargs)), first_tensor(output)
        if weight is None or weight.ndim < 2 or features is None or result is None:
            return
        if features.is_nested or result.is_nested:
            return
        matrix = dequantized(weight)
        rows = _rows(matrix, dequantized(features), dequantized(result))
        if rows is not None:
            bias = None if bias is None else dequantized(bias).detach()
            step = result.q_scale() if result.is_quantized else 0.0
            rounded, matrix = matrix is not weight, matrix.detach().flatten(1)
            both = _turned(dequantized(result)), tuple(features.shape[:2])
            calls.append(LinearCall(name, module, matrix, bias, *rows, rounded, step, *both))

    return record


def _own_tensor(module: nn.Module, name: str) -> Tensor | None:
    """Return a module's weight or bias; torch's quantised modules have methods of these names."""
    value: Any = getattr(module, name, None)
    if hasattr(module, "_packed_params"):
        value = value()
    return value if isinstance(value, Tensor) else None


def dequantized(tensor: Tensor) -> Tensor:
    """Convert a quantised tensor, of torch or of a library, to plain floats.

    Example:
        >>> import torch
        >>> dequantized(torch.ones(2))
        tensor([1., 1.])
    """
    if tensor.is_quantized or type(tensor).dequantize is not Tensor.dequantize:
        plain: Tensor = tensor.dequantize()
        return plain
    return tensor


def _rows(weight: Tensor, features: Tensor, output: Tensor) -> tuple[Tensor, Tensor] | None:
    """Copy input and output if they have one row for each sample or token; else return None.

    Both are copied because the model may change them in place after the call.
    """
    if features.ndim < 2 or not features.is_floating_point():
        return None
    size = weight[0].numel()
    once = features.numel() == len(features) * size
    if once and output.numel() == len(features) * len(weight):
        return _copied(features.flatten(1)), _copied(output.flatten(1))
    token = features.ndim > 2 and weight.ndim == 2 and features.shape[-1] == size
    if token and output.shape == (*features.shape[:-1], len(weight)):
        first = features[:TRACED_SAMPLES], output[:TRACED_SAMPLES]
        return _copied(first[0].flatten(1, -2)), _copied(first[1].flatten(1, -2))
    return None


def _turned(output: Tensor) -> Tensor | None:
    """Copy the outputs of the first samples of a sequence-first tensor, T x B x K."""
    return _copied(output[:, :TRACED_SAMPLES].transpose(0, 1)) if output.ndim == 3 else None


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
