"""Contexts in which a model is evaluated without an effect on its training."""

import random
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ncscope.models.sharding import local_shard
from ncscope.models.wrappers import ORIGINAL, fsdp1_units


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients at full precision, and restore everything afterwards.

    Inside the context, every module is in evaluation mode, and gradients and autocast are off. On
    exit, even after an exception, every module gets its training flag back, and the global random
    states of Python, NumPy and torch (CPU, and every CUDA device if CUDA was in use) are restored:
    a loader draws its seed from them, augmentation draws from them, and a run that is measured must
    train like a run that is not. For generators of a loader see
    `restore_generators`.

    Compiled modules run uncompiled, so that hooks in them are called. Torch's transformer layers
    run without their fast path, which removes the padding of samples.

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

    def restore_flags() -> None:
        for module, training in flags:
            module.training = training

    # What is entered or registered last is undone first. The random states are restored last of
    # all, because everything before may draw numbers.
    with ExitStack() as stack:
        stack.enter_context(restore_random_states())
        stack.callback(restore_flags)
        # The fast path of torch's encoder layers drops the padding of samples: layers then return
        # nested tensors, which have no shape from which rows could be read.
        fast_path = torch.backends.mha.get_fastpath_enabled()
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.enter_context(torch.no_grad())
        stack.enter_context(disable_compilation(model))
        devices = {"cpu"} | {parameter.device.type for parameter in model.parameters()}
        for device in filter(torch.amp.is_autocast_available, devices):
            stack.enter_context(torch.autocast(device, enabled=False))
        for module, _ in flags:
            # Not `module.eval()`, which may do more: the layers of LoRA merge their adapters.
            module.training = False
        yield


@contextmanager
def disable_compilation(model: nn.Module) -> Iterator[None]:
    """Run compiled modules uncompiled, so that hooks in them are called.

    Hooks that are added after the compilation are not in the compiled graph. The stance of the
    compiler holds for the whole process, so the context leaves it alone unless ``torch.compile``
    made a part of the model, its ``compile`` method was called, or Lightning compiled it: Lightning
    replaces methods of the `LightningModule`, and sets ``_compiler_ctx``.
    """
    with ExitStack() as stack:
        if any(
            ORIGINAL in module._modules
            or module._compiled_call_impl is not None
            or getattr(module, "_compiler_ctx", None)
            for module in model.modules()
        ):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


@contextmanager
def restore_random_states() -> Iterator[None]:
    """Restore the global random states of Python, NumPy and torch, on all devices in use."""
    python, cpu = random.getstate(), torch.get_rng_state()
    numbers = np.random.get_state()  # noqa: NPY002  the user's code draws from it
    # To ask for the states of CUDA would start it: hundreds of MB, and no fork afterwards.
    in_use = torch.cuda.is_initialized()
    cuda = torch.cuda.get_rng_state_all() if in_use else []
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(cuda)


@contextmanager
def restore_generators(*loaders: Any) -> Iterator[None]:
    """Restore the states of the generators of loaders and of their samplers.

    A loader that is measured must shuffle its next epoch as if it had not been.

    Args:
        loaders: Loaders of any kind; only generators of torch are looked for.

    Example:
        >>> drawn = torch.Generator().manual_seed(0)
        >>> loader = torch.utils.data.DataLoader(range(9), shuffle=True, generator=drawn)
        >>> before = drawn.get_state()
        >>> with restore_generators(loader):
        ...     _ = list(loader)
        >>> torch.equal(drawn.get_state(), before)
        True
    """
    parts = list(loaders)
    for name in ("batch_sampler", "sampler"):  # a sampler of batches may have a sampler
        parts += [getattr(part, name, None) for part in parts]
    found = [getattr(part, "generator", None) for part in parts]
    states = [(each, each.get_state()) for each in found if isinstance(each, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


@contextmanager
def restore_buffers(model: nn.Module) -> Iterator[None]:
    """Restore a model's buffers, whether the model writes them in place or replaces the tensors.

    Tensors in plain attributes, such as the state of a recurrent or spiking network, are restored
    too, also those in lists, dictionaries and dataclasses there, and with them the flags of their
    module: a cache and the length that it is valid for stay one. Numbers, such as a count of
    passes, and generators of the module's own are always restored. Buffers that a lazy module fills
    meanwhile, and buffers that are added meanwhile, are kept.

    Args:
        model: Model that runs inside the context. Cost: a copy of its buffers, and of its tensors
            in plain attributes.

    Example:
        >>> model = nn.BatchNorm1d(2)
        >>> with restore_buffers(model):
        ...     _ = model(torch.randn(5, 2))
        >>> model.running_mean
        tensor([0., 0.])
    """
    buffers = [_Snapshot(module._buffers) for module in model.modules()]
    # FSDP1 has views of its flat parameters as plain attributes, which it makes anew in each pass.
    parts = [] if fsdp1_units(model) else list(model.modules())
    plain = [[_take_snapshot(place) for place in _plain_places(module)] for module in parts]
    generators = [
        (value, value.get_state())
        for module in parts
        for value in vars(module).values()
        if isinstance(value, torch.Generator)
    ]
    try:
        yield
    finally:
        for generator, state in generators:
            generator.set_state(state)
        for of_module in buffers:
            of_module.restore()
        for snapshots in plain:
            is_changed = any(snapshot.is_changed() for snapshot in snapshots)
            for snapshot in snapshots:
                if is_changed:
                    snapshot.remove_added()
                    snapshot.restore()
                else:
                    snapshot.restore_numbers()


_LONGEST = 1000
"""Items of a list up to which it may be a state, whatever the items are."""

_DEEPEST = 8
"""Depth at which the search for tensors in a value ends: it may contain itself."""

_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has."""


class _Snapshot:
    """Tensors, numbers and flags in a dictionary of a module, and copies of the tensors."""

    def __init__(self, place: Any) -> None:
        self.place = place
        names = set(place.keys()) - _OF_TORCH  # keys of a scripted module are a list
        self.before = {name: (place[name], _copy(place[name])) for name in names}

    def is_changed(self) -> bool:
        """Return whether a tensor was added, replaced or written to.

        A flag alone does not count: it may say that a module has set up what is kept.
        """
        for name in self.place.keys() - self.before.keys() - _OF_TORCH:
            if _has_tensors(self.place[name]):
                return True
        for name, (value, content) in self.before.items():
            present = self.place[name] if name in self.place else None  # noqa: SIM401  if scripted
            is_replaced = present is not value and (_has_tensors(present) or _has_tensors(value))
            if is_replaced or _is_written(value, content):
                return True
        return False

    def restore_numbers(self) -> None:
        """Put back numbers that have become others."""
        for name, (value, _) in self.before.items():
            if name in self.place and _is_counted(value, self.place[name]):
                self.place[name] = value

    def remove_added(self) -> None:
        """Remove tensors, numbers and flags that were added."""
        for name in self.place.keys() - self.before.keys() - _OF_TORCH:
            if _is_state(self.place[name]):
                del self.place[name]

    def restore(self) -> None:
        """Put back what was replaced, and the content of what was written to."""
        for name, (value, content) in self.before.items():
            present = self.place[name] if name in self.place else None  # noqa: SIM401  if scripted
            if present is not value and _is_state(value) and _is_state(present):
                self.place[name] = value
            # Only what has changed is written: a write counts as a change in place, after which
            # the backward pass of a graph that had saved the buffer would be refused.
            if _is_written(value, content):
                with torch.no_grad():
                    value.copy_(content)


class _SnapshotOfItems:
    """Items of a list or deque of a module, and copies of the tensors among them."""

    def __init__(self, items: Any) -> None:
        self.items, self.before = items, [(item, _copy(item)) for item in items]

    def is_changed(self) -> bool:
        """Return whether a tensor was added, removed, replaced or written to."""
        return any(map(_has_tensors, self._find_exchanges())) or any(
            _is_written(value, content) for value, content in self.before
        )

    def _find_exchanges(self) -> list[Any]:
        """Return the items that are at a place only before or only now."""
        pairs = zip_longest((item for item, _ in self.before), self.items)
        return [each for pair in pairs if pair[0] is not pair[1] for each in pair]

    def remove_added(self) -> None:
        """Nothing: `restore` puts the items back."""

    def restore_numbers(self) -> None:
        """Put back the items if a number was added, removed or replaced."""
        if any(type(each) in (int, float) for each in self._find_exchanges()):
            self.items.clear()
            self.items.extend(item for item, _ in self.before)

    def restore(self) -> None:
        """Put back the items, and the content of what was written to."""
        if any(map(_has_tensors, self._find_exchanges())):
            self.items.clear()
            self.items.extend(item for item, _ in self.before)
        for value, content in self.before:
            if _is_written(value, content):
                with torch.no_grad():
                    value.copy_(content)


def _take_snapshot(place: Any) -> _Snapshot | _SnapshotOfItems:
    return _Snapshot(place) if hasattr(place, "keys") else _SnapshotOfItems(place)


def _copy(value: object) -> Tensor | None:
    """Copy a tensor; None for what is none, or of a kind that cannot be compared."""
    if not isinstance(value, Tensor) or is_lazy(value) or value.is_nested or value.is_meta:
        return None
    return value.detach().clone() if value.layout == torch.strided else None


def _is_written(value: Any, content: Tensor | None) -> bool:
    """Return whether a tensor has another content than its copy."""
    return content is not None and not torch.equal(local_shard(value), local_shard(content))


def _is_counted(value: object, present: object) -> bool:
    """Return whether a number has become another one."""
    kinds = type(value), type(present)
    return set(kinds) <= {int, float} and value != present


def _is_state(value: object) -> bool:
    """Return whether a value has tensors, or is a number, a flag, a text or None."""
    return value is None or isinstance(value, bool | int | float | str) or _has_tensors(value)


def _plain_places(module: nn.Module) -> Iterator[dict[str, Any]]:
    """Yield the plain attributes of a module, and the dictionaries among them.

    None of torch's own modules, which keep no state there, and of a module whose plain weight is
    made anew from a parameter in each pass: by pruning or weight norm in torch's older form, or by
    FSDP1, which frees the storage after the pass. What was there before may be out of date.
    """
    attributes = vars(module)
    names = list(module._parameters.keys())  # a scripted module's parameters cannot be iterated
    derived = {name.rpartition("_")[0] for name in names if name.endswith(("_orig", "_g", "_v"))}
    if (
        type(module).__module__.startswith("torch.nn.")
        or any(_has_tensors(attributes.get(name)) for name in derived)
        or any(map(_is_freed, attributes.values()))
    ):
        return
    yield attributes
    seen: set[int] = set()
    for name, value in attributes.items():
        if name not in _OF_TORCH:
            yield from _places_inside(value, seen)


def _places_inside(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the dictionaries, lists and deques in a value, and the attributes of dataclasses."""
    value = vars(value) if _is_record(value) else value
    if not isinstance(value, dict | list | deque | tuple) or id(value) in seen:
        return
    is_long = not isinstance(value, dict) and len(value) > _LONGEST
    if is_long and not _has_tensors(value[0]):
        return  # data, such as a vocabulary, and no state
    seen.add(id(value))  # a value may contain itself
    if not isinstance(value, tuple):
        yield value
    for part in list(value.values() if isinstance(value, dict) else value):
        yield from _places_inside(part, seen)


def _is_freed(value: Any) -> bool:
    """Return whether a value is a plain tensor without its storage, which cannot be copied."""
    is_plain = type(value) in (Tensor, nn.Parameter)
    return is_plain and value.numel() > 0 and value.untyped_storage().size() == 0


def _is_record(value: object) -> bool:
    """Return whether a value is a dataclass with attributes, and no module."""
    return (
        is_dataclass(value)
        and not isinstance(value, type | nn.Module)
        and hasattr(value, "__dict__")
    )


def _has_tensors(value: object, depth: int = 0) -> bool:
    """Return whether a value is a tensor, or a container or dataclass with tensors in it."""
    if depth > _DEEPEST:
        return False
    if _is_record(value):
        value = vars(value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list | deque):
        return any(_has_tensors(each, depth + 1) for each in value)
    return isinstance(value, Tensor)
