"""Modules and parameters inside of wrappers: torch.compile, DDP, FSDP, checkpointing."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.jit._script import RecursiveScriptModule  # `torch.jit` does not export it
from torch.optim.swa_utils import AveragedModel

from ncscope.errors import InputError
from ncscope.models.sharding import is_sharded

# Names that a wrapper gives to the module inside: of torch.compile, FSDP, activation checkpointing.
ORIGINAL = "_orig_mod"
_SHARDED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside ``torch.compile``, ``DataParallel`` or ``DistributedDataParallel``.

    Args:
        model: Any model, wrapped any number of times or not at all.

    Example:
        >>> plain = nn.Linear(3, 2)
        >>> unwrap(nn.DataParallel(plain)) is plain
        True
    """
    while (inside := _module_inside(model)) is not None:
        model = inside
    return model


def unwrap_fully(module: nn.Module) -> nn.Module:
    """Return the module inside of wrappers of any kind, to attach hooks to it.

    Its hooks run while a wrapper of FSDP has the whole parameters together. The wrapper must be
    called nevertheless; see `unwrap` for a module to call.

    Example:
        >>> plain = nn.Linear(3, 2)
        >>> unwrap_fully(plain) is plain
        True
    """
    while True:
        inside = _module_inside(module)
        if inside is None:
            inside = next((module._modules[n] for n in _SHARDED if n in module._modules), None)
        if inside is None:
            return module
        module = inside


def _module_inside(module: nn.Module) -> nn.Module | None:
    """Return the module inside a wrapper that may be skipped: a wrapper that shards nothing.

    FSDP1 puts the parameters together when its wrapper is called. A call of the module inside would
    run on empty weights, so that `unwrap` must stop at such a wrapper.
    """
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel | AveragedModel):
        return module._modules["module"]
    # The modules of a scripted model are no dictionary with `get`.
    return module._modules[ORIGINAL] if ORIGINAL in module._modules else None  # noqa: SIM401


def walk_modules(
    model: nn.Module, remove_duplicate: bool = True
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules of a model under the names that they have without wrappers.

    Args:
        model: Any model, whose parts may be wrapped at any depth, by compilation, by training on
            several devices or by activation checkpointing; the wrappers are left out, and so are
            scripted parts.
        remove_duplicate: Yield a shared module once if True, else once for each of its names.

    Example:
        >>> model = nn.Sequential(nn.DataParallel(nn.Sequential(nn.Linear(3, 2))))
        >>> [name for name, _ in walk_modules(model)]
        ['', '0', '0.0']
    """
    visited: set[nn.Module] = set()

    def walk(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
        module = unwrap_fully(module)
        if remove_duplicate:
            if module in visited:
                return
            visited.add(module)
        yield name, module
        # Keras keeps the layers of a model in a list, where torch does not see them.
        is_keras = hasattr(module, "_layers") and hasattr(module, "layers")
        layers: Any = module.layers if is_keras else ()
        children = [(str(layer.name), layer) for layer in layers if isinstance(layer, nn.Module)]
        for child_name, child in (*children, *module._modules.items()):
            if child is not None and not is_scripted(child):
                yield from walk(child, f"{name}.{child_name}" if name else child_name)

    yield from walk(model, "")


def is_scripted(module: nn.Module) -> bool:
    """Return whether ``torch.jit.script`` made a module: no hooks can be attached to it."""
    return isinstance(module, RecursiveScriptModule)


def parameter_shapes(model: nn.Module) -> dict[nn.Module, dict[object, torch.Size]]:
    """Return the whole shape of the parameters that each module itself has.

    FSDP replaces parameters by one flat parameter, or by shards of it, and keeps their shapes.

    Returns:
        Module to shapes; a key stands for one parameter, however many modules share it.

    Example:
        >>> layer = nn.Linear(3, 2)
        >>> list(parameter_shapes(layer)[layer].values())
        [torch.Size([2, 3]), torch.Size([2])]
    """
    of_flat = {
        (info.module, info.param_name): ((id(flat), index), shape)
        for flat in _flat_parameters(model)
        for index, (info, shape) in enumerate(zip(flat._param_infos, flat._shapes, strict=True))
    }
    shapes: dict[nn.Module, dict[object, torch.Size]] = {module: {} for module in model.modules()}
    for (module, _), (key, shape) in of_flat.items():
        shapes.setdefault(module, {})[key] = shape
    for module in model.modules():
        for name, parameter in module._parameters.items():
            # FSDP with `use_orig_params` shows shards under the names of the parameters: they
            # would count a second time, with the shape of a shard.
            flat = (module, name) in of_flat or hasattr(parameter, "_param_infos")
            if parameter is not None and not flat:
                shapes[module][id(parameter)] = parameter.shape
    return shapes


def _flat_parameters(model: nn.Module) -> list[Any]:
    """Return the flat parameters of FSDP1's units, which know what they are made of."""
    handles = [getattr(module, "_handle", None) for module in fsdp1_units(model)]
    return [handle.flat_param for handle in handles if handle is not None]


def fsdp1_units(model: nn.Module) -> list[Any]:
    """Return the wrappers of FSDP1 in a model."""
    library = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(library, "FullyShardedDataParallel", ())
    return [module for module in model.modules() if isinstance(module, kind)]


def check_measurable(model: object) -> None:
    """Check that this process has a model with values, which a forward pass can run.

    Args:
        model: Object that was given as the model.

    Raises:
        InputError: If the object is no module, such as a stage of a pipeline; if the model is
            scripted; or if parameters are on the meta device, or partitioned by ZeRO-3.
    """
    kind = type(model)
    of_pipeline = kind.__module__.startswith("deepspeed.") and kind.__name__.startswith("Pipeline")
    if not isinstance(model, nn.Module) or of_pipeline:
        raise InputError(
            expected="a torch.nn.Module that runs the whole forward pass",
            found=kind.__name__,
            fix="of a pipeline, put the stages together in one process and measure that model",
        )
    if is_scripted(model):
        raise InputError(
            expected="a model whose layers can be observed",
            found="a scripted one",
            fix="pass the model from which torch.jit.script made it",
        )
    offloads = any(hasattr(module, "_hf_hook") for module in model.modules())
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id") and parameter.numel() == 0:
            raise InputError(
                expected="parameters with values",
                found=f"{name!r} partitioned by DeepSpeed ZeRO-3",
                fix="measure inside deepspeed.zero.GatheredParameters(model.parameters()), or use "
                "FSDP, or ZeRO of stage 2",
            )
        if parameter.is_meta and not offloads:
            raise InputError(
                expected="parameters with values",
                found=f"{name!r} on the meta device",
                fix="call model.to_empty(device=...) and load the weights first",
            )


def check_callable(model: nn.Module) -> None:
    """Check that a call of the model puts its parameters together, if FSDP1 has sharded them.

    Raises:
        InputError: If the wrapper of FSDP that would do it is outside of the model.
    """
    in_units = {
        (info.module, info.param_name)
        for flat in _flat_parameters(model)
        for info in flat._param_infos
    }
    flats = set(map(id, _flat_parameters(model)))
    for module in model.modules():
        for name, parameter in module._parameters.items():
            sharded = getattr(parameter, "_fsdp_flattened", False)
            if sharded and (module, name) not in in_units and id(parameter) not in flats:
                raise InputError(
                    expected="a model that puts its own parameters together",
                    found=f"{name!r} sharded by an FSDP wrapper around the model",
                    fix="pass the model as FSDP wrapped it; or watch the passes of your loop",
                )


@contextmanager
def assemble_parameters(model: nn.Module, module: nn.Module) -> Iterator[None]:
    """Put the parameters of one module together if FSDP1 has sharded them.

    Only the unit of FSDP that holds the module is gathered. Every process must enter.

    Args:
        model: Model that contains the module.
        module: Module with a weight matrix that is needed.

    Raises:
        InputError: If the unit of FSDP is a wrapper outside of the model.
    """
    with ExitStack() as stack:
        if not _is_whole(module):
            for unit in fsdp1_units(model):
                handle = unit._handle
                infos = [] if handle is None else handle.flat_param._param_infos
                if not {info.module for info in infos}.isdisjoint(module.modules()):
                    # `recurse` would gather every unit inside, the whole model for the outermost
                    # one; `writeback` would copy the gathered weights back into the shards.
                    whole = unit.summon_full_params(unit, recurse=False, writeback=False)
                    stack.enter_context(whole)
            if not _is_whole(module):
                raise InputError(
                    expected="the whole weight of the head",
                    found="a shard of it, without the FSDP wrapper that can put it together",
                    fix="pass the model as FSDP wrapped it, not the module inside",
                )
        yield


def _is_whole(module: nn.Module) -> bool:
    """Return whether a module's weight is there.

    FSDP1 frees the memory of the weight between passes but keeps its shape, or leaves a flat shard
    of one axis. So neither the shape nor the memory alone tells.
    """
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.layout != torch.strided:
        return True
    return weight.ndim > 1 and (is_sharded(weight) or weight.untyped_storage().size() > 0)
