"""Heads that are no module: a matrix of the model by which it multiplies a layer's output."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ncscope.models.evaluation import restore_buffers
from ncscope.models.forward import first_tensor
from ncscope.models.last_step import LastStep, find_last_step
from ncscope.models.sharding import is_sharded
from ncscope.models.wrappers import walk_modules

_ROWS = 32
_SAME = 1e-5


@dataclass(frozen=True)
class MatrixHead:
    """A matrix that multiplies the outputs of a layer.

    Attributes:
        name: Name of the parameter or buffer.
        layer: Name of the module whose outputs are the features.
        module: This module.
        turned: True if the matrix is d x K.
        output: Place of the logits in the model's output.
        step: Last step from the product to the output.
    """

    name: str
    layer: str
    module: nn.Module
    turned: bool
    output: str
    step: LastStep

    def weight(self, model: nn.Module) -> Float[Tensor, "k d"]:
        """Copy the present matrix of a model, as a weight of K rows."""
        matrix = dict(_matrices(model))[self.name].detach()
        return (matrix.T if self.turned else matrix).clone(memory_format=torch.contiguous_format)


def find_matrix_head(
    model: nn.Module, run: Callable[[], object], outputs: Mapping[str, Tensor]
) -> MatrixHead | None:
    """Find a matrix M and a layer with outputs h, such that the model returns h M.

    Args:
        model: Model without a head of its own, in evaluation mode.
        run: Function that runs the model on a batch.
        outputs: Outputs of this batch that may be logits, by place.

    Returns:
        The head; None if there is none, or several. Cost: one forward pass if the model has a
        matrix with as many rows or columns as an output, else nothing.
    """
    logits = {place: output for place, output in outputs.items() if output.ndim == 2}
    sizes = [
        (name, matrix, turned)
        for name, matrix in _matrices(model)
        for turned in (True, False)
        if any(output.shape[1] == matrix.shape[turned] for output in logits.values())
    ]
    if not sizes:
        return None
    count = len(next(iter(logits.values())))
    widths = {matrix.shape[not turned] for _, matrix, turned in sizes}
    with restore_buffers(model), _recorded(model, count, widths) as rows:
        run()
    found: dict[tuple[str, str], MatrixHead] = {}
    for layer, (module, features) in rows.items():
        for name, matrix, turned in sizes:
            right = matrix.detach().double() if turned else matrix.detach().double().T
            for place, output in logits.items():
                if features.shape[1] != len(right) or output.shape[1] != right.shape[1]:
                    continue
                product = (features.double() @ right).to(output.dtype)
                step = find_last_step(product, spread_rows(output, _ROWS))
                if step is not None:
                    step = _without_rounding(step)
                    head = MatrixHead(name, layer, module, turned, place, step)
                    found[name, place] = head  # the last layer to end with these outputs
    return next(iter(found.values())) if len(found) == 1 else None


def spread_rows(rows: Tensor, most: int) -> Tensor:
    """Return rows that are spread over all; slicing waits for no accelerator, as an index would.

    Example:
        >>> spread_rows(torch.arange(10), 3).tolist()
        [0, 3, 6]
    """
    return rows[:: max(1, len(rows) // most)][:most]


def _matrices(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain parameters and buffers of two axes, by the names that they have."""
    for path, module in walk_modules(model):
        for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is None or tensor.ndim != 2 or is_sharded(tensor):
                continue
            if tensor.is_floating_point() and tensor.layout == torch.strided:
                yield f"{path}.{name}" if path else name, tensor


@contextmanager
def _recorded(
    model: nn.Module, count: int, widths: set[int]
) -> Iterator[dict[str, tuple[nn.Module, Tensor]]]:
    """Keep the first rows of the modules' outputs of some widths, in the order of their ends."""
    rows: dict[str, tuple[nn.Module, Tensor]] = {}

    def recorder(name: str) -> Any:
        def keep(module: nn.Module, args: object, output: object) -> None:
            tensor = first_tensor(output)
            if tensor is None or tensor.is_nested or not tensor.is_floating_point():
                return
            batched = tensor.ndim > 1 and len(tensor) == count
            if batched and tensor.numel() // count in widths:
                rows.pop(name, None)
                rows[name] = module, spread_rows(tensor.detach().flatten(1), _ROWS).clone()

        return keep

    with ExitStack() as hooks:
        for name, module in walk_modules(model):
            if name:
                hooks.callback(module.register_forward_hook(recorder(name)).remove)
        yield rows


def _without_rounding(step: LastStep) -> LastStep:
    """Return no step for a factor of 1: the product was not computed as the model computes it."""
    one = step.kind == "affine" and step.shift is None and isinstance(step.scale, float)
    return LastStep() if one and abs(float(step.scale) - 1) < _SAME else step
