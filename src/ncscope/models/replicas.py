"""Processes that run one model on the same samples: tensor-parallel ranks."""

import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from ncscope.models.sharding import is_sharded
from ncscope.stats.processes import Processes

_groups: dict[tuple[int, ...], tuple[Any, Any]] = {}


def data_group(model: nn.Module) -> Any:
    """Return the process group over which samples are merged, so that each sample counts once.

    The processes of a tensor-parallel model see the same samples. They measure the same, and only
    the processes at one position of the tensor-parallel groups merge their samples. The groups
    follow from the meshes of the model's DTensors: processes along a mesh axis on which parameters
    are sharded share their samples, unless FSDP2 (``fully_shard``) shards along this axis.

    Every process of the default group must call this if the model is tensor-parallel.

    Args:
        model: Any model.

    Returns:
        A process group, which may consist of this process alone; None for the default group.

    Example:
        >>> data_group(nn.Linear(3, 2)) is None
        True
    """
    alike = _ranks_with_the_same_samples(model)
    if len(alike) < 2:
        return None
    import torch.distributed as dist

    position = alike.index(dist.get_rank())
    groups = enumerate(Processes().values(alike))
    ranks = tuple(rank for rank, other in groups if other.index(rank) == position)
    return _group_of(ranks)


def replica_group(model: nn.Module) -> Any:
    """Return the process group of the processes with the samples of this one, or None.

    Every process of such a group must call this.

    Args:
        model: Any model.
    """
    alike = _ranks_with_the_same_samples(model)
    return _group_of(tuple(alike)) if len(alike) > 1 else None


def _group_of(ranks: tuple[int, ...]) -> Any:
    """Return the group of these ranks; a group is made once, as each holds connections."""
    import torch.distributed as dist

    world = dist.group.WORLD
    known, group = _groups.get(ranks, (None, None))
    if known is not world:
        group = dist.new_group(list(ranks), use_local_synchronization=True)
        _groups[ranks] = world, group
    return group


def _ranks_with_the_same_samples(model: nn.Module) -> list[int]:
    """Return the ranks, in order, that run this model on the samples of this process."""
    if "torch.distributed.tensor" not in sys.modules:
        return []
    by_data = set(_ranks_of_fsdp(model))
    shared: set[int] = set()
    for parameter in model.parameters():
        if is_sharded(parameter):
            shared.update(_ranks_along_shards(parameter, by_data))
    return sorted(shared)


def _ranks_along_shards(parameter: Any, by_data: set[int]) -> list[int]:
    """Return the ranks that hold the other shards of a parameter, without those of FSDP."""
    mesh, position = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    if position is None:
        return []
    index: list[Any] = list(position)
    for axis, placement in enumerate(parameter.placements):
        line: list[Any] = list(position)
        line[axis] = slice(None)
        if not placement.is_replicate() and not by_data.issuperset(mesh.mesh[tuple(line)].tolist()):
            index[axis] = slice(None)
    ranks: list[int] = mesh.mesh[tuple(index)].flatten().tolist()
    return ranks


def _ranks_of_fsdp(model: nn.Module) -> Iterator[int]:
    """Yield the ranks over which ``fully_shard`` has sharded a model: their samples differ."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for module in model.modules():
        if isinstance(module, kind):
            state: Any = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            for group in groups:
                if group is not None:
                    yield from group.mesh_info.mesh.mesh.flatten().tolist()
