"""Restoring a model's buffers after the model has run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


@contextmanager
def kept_buffers(model: nn.Module) -> Iterator[None]:
    """Restore a model's buffers, whether the model writes them in place or replaces the tensors.

    Buffers that a lazy module fills meanwhile, and buffers that are added meanwhile, are kept.

    Args:
        model: Model that runs inside the context. Cost: a copy of its buffers.

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
    """Copy a buffer, to compare and restore it; None if it is absent, unfilled or sparse."""
    if buffer is None or is_lazy(buffer) or buffer.layout != torch.strided:
        return None
    return buffer.detach().clone()


def _write_back(buffer: Tensor | None, copy: Tensor | None) -> None:
    if buffer is not None and copy is not None and not torch.equal(buffer, copy):
        with torch.no_grad():
            buffer.copy_(copy)
