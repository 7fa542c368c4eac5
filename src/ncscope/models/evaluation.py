"""Context for measuring a model without an effect on its training."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ncscope.models.sharding import local_shard
from ncscope.models.wrappers import ORIGINAL


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients at full precision, and restore everything afterwards.

    Inside the context, every module is in evaluation mode, and gradients and autocast are off. On
    exit, even after an exception, every module gets its training flag back, and the global random
    states of Python, NumPy and torch (CPU, and every CUDA device if CUDA was in use) are restored:
    a loader draws its seed from them, augmentation draws from them, and a run that is measured must
    train like a run that is not. Generators of the caller are not restored.

    Compiled modules run uncompiled, so that hooks in them are called. Torch's transformer layers
    run without their fast path, which removes the padding of samples.

    The flags are set one by one, because ``eval`` of a module may do more, such as merge adapters.

    Args:
        model: Model to measure. Cost: one pass over its modules.

    Example:
        >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
        >>> with evaluation_mode(model):
        ...     [module.training for module in model]
        [False, False]
        >>> [module.training for module in model]
        [True, False]
    """
    flags = [(module, module.training) for module in model.modules()]
    with ExitStack() as stack:
        stack.enter_context(restore_random_states())
        stack.callback(_restore_flags, flags)
        fast_path = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.no_grad())
        stack.enter_context(disable_compilation(model))
        for device in _autocast_devices(model):
            stack.enter_context(torch.autocast(device, enabled=False))
        for module, _ in flags:
            module.training = False
        yield


@contextmanager
def disable_compilation(model: nn.Module) -> Iterator[None]:
    """Run compiled modules uncompiled, so that hooks in them are called.

    Args:
        model: Any model; the context does nothing unless the model or a part of it is compiled.
    """
    with ExitStack() as stack:
        if any(map(_compiled, model.modules())):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _compiled(module: nn.Module) -> bool:
    """Return whether ``torch.compile`` made a module, or its ``compile`` method was called.

    Lightning replaces methods of a compiled `LightningModule`, and marks it by ``_compiler_ctx``.
    """
    called = module._compiled_call_impl is not None
    return ORIGINAL in module._modules or called or bool(getattr(module, "_compiler_ctx", None))


def _restore_flags(flags: list[tuple[nn.Module, bool]]) -> None:
    for module, training in flags:
        module.training = training


@contextmanager
def restore_random_states() -> Iterator[None]:
    """Restore the global random states of Python, NumPy and torch, on all devices in use."""
    python, cpu = random.getstate(), torch.get_rng_state()
    numbers = np.random.get_state()  # noqa: NPY002  the user's code draws from it
    in_use = torch.cuda.is_initialized()
    cuda = torch.cuda.get_rng_state_all() if in_use else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(cuda)


def _autocast_devices(model: nn.Module) -> set[str]:
    devices = {"cpu"} | {parameter.device.type for parameter in model.parameters()}
    return {device for device in devices if torch.amp.is_autocast_available(device)}


@contextmanager
def restore_buffers(model: nn.Module) -> Iterator[None]:
    """Restore a model's buffers, whether the model writes them in place or replaces the tensors.

    Buffers that a lazy module fills meanwhile, and buffers that are added meanwhile, are kept.

    Args:
        model: Model that runs inside the context. Cost: a copy of its buffers.

    Example:
        >>> model = nn.BatchNorm1d(2)
        >>> with restore_buffers(model):
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
    if (
        buffer is not None
        and copy is not None
        and not torch.equal(local_shard(buffer), local_shard(copy))
    ):
        with torch.no_grad():
            buffer.copy_(copy)
