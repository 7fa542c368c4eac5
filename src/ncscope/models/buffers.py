"""A model's buffers, kept as they are while it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


@contextmanager
def kept_buffers(model: nn.Module) -> Iterator[None]:
    """Undo what a model does to its buffers: written in place, or another tensor in their stead.

    Buffers that a lazy module has yet to fill, or that are added meanwhile, stay.

    Args:
        model: The model that runs inside. Cost: a copy of its buffers.

    Example:
        >>> model = nn.BatchNorm1d(2)
        >>> with kept_buffers(model):
        ...     _ = model(torch.randn(5, 2))
        >>> model.running_mean
        tensor([0., 0.])
    """
    kept = [
        (module, name, buffer, _copy(buffer))
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    try:
        yield
    finally:
        for module, name, buffer, copy in kept:
            module._buffers[name] = buffer
            _write_back(buffer, copy)


def _copy(buffer: Tensor | None) -> Tensor | None:
    """Copy a buffer to compare with; None if it is absent, unfilled or sparse."""
    if buffer is None or is_lazy(buffer) or buffer.layout != torch.strided:
        return None
    return buffer.detach().clone()


def _write_back(buffer: Tensor | None, copy: Tensor | None) -> None:
    if buffer is not None and copy is not None and not torch.equal(buffer, copy):
        with torch.no_grad():
            buffer.copy_(copy)
