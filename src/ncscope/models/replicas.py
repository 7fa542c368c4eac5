"""Processes that run copies of one model: whether the copies are equal, and which share samples."""

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ncscope.errors import InputError
from ncscope.models.sharding import is_sharded
from ncscope.models.wrappers import walk_modules
from ncscope.stats.processes import Processes

_groups: dict[tuple[int, ...], tuple[Any, Any]] = {}


def data_group(model: nn.Module) -> Any:
    """Return the process group over which samples are merged, so that each sample counts once.

    The processes of a tensor-parallel model see the same samples. They measure the same, and only
    the processes at one position of the tensor-parallel groups merge their samples. The groups
    follow from the meshes of the model's DTensors: processes along a mesh axis on which parameters
    are sharded share their samples, unless FSDP2 (``fully_shard``) shards along this axis.

    Every process of the default group must call this if the model is tensor-parallel.

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
    groups = enumerate(Processes().gather(alike))
    ranks = tuple(rank for rank, other in groups if other.index(rank) == position)
    return _make_group_once(ranks)


def replica_group(model: nn.Module) -> Any:
    """Return the process group of the processes with the samples of this one, or None.

    Every process of such a group must call this.
    """
    alike = _ranks_with_the_same_samples(model)
    return _make_group_once(tuple(alike)) if len(alike) > 1 else None


def _make_group_once(ranks: tuple[int, ...]) -> Any:
    """Return the group of these ranks, made once: each group holds connections."""
    import torch.distributed as dist

    world = dist.group.WORLD
    world_of_group, group = _groups.get(ranks, (None, None))
    if world_of_group is not world:  # a group ends with the default group of its time
        group = dist.new_group(list(ranks), use_local_synchronization=True)
        _groups[ranks] = world, group
    return group


def _ranks_with_the_same_samples(model: nn.Module) -> list[int]:
    """Return the ranks, in order, that run this model on the samples of this process."""
    if "torch.distributed.tensor" not in sys.modules:
        return []
    # Samples differ along an axis over which FSDP2 shards: there, sharding saves memory only.
    by_data: set[int] = set()
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for module in model.modules():
        if isinstance(module, kind):
            state: Any = module._get_fsdp_state()
            # The name of the attribute changed between versions of torch.
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            for group in groups:
                if group is not None:
                    by_data.update(group.mesh_info.mesh.mesh.flatten().tolist())
    ranks: set[int] = set()
    for parameter in model.parameters():
        if not is_sharded(parameter):
            continue
        sharded: Any = parameter
        mesh, position = sharded.device_mesh, sharded.device_mesh.get_coordinate()
        if position is None:  # this process is not in the mesh
            continue
        index: list[Any] = list(position)
        for axis, placement in enumerate(sharded.placements):
            line: list[Any] = list(position)
            line[axis] = slice(None)
            of_fsdp = by_data.issuperset(mesh.mesh[tuple(line)].tolist())
            if not placement.is_replicate() and not of_fsdp:
                index[axis] = slice(None)
        ranks.update(mesh.mesh[tuple(index)].flatten().tolist())
    return sorted(ranks)


Digests = dict[str, list[Any]]
"""Shape, type and sums of the bits of each tensor, by name."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest_tensors(tensors: Mapping[str, Tensor]) -> Digests:
    """Return sums of the bits of tensors, which differ where the tensors do.

    Tensors that are sharded differ by design and are left out, and so are tensors without values.

    Args:
        tensors: Tensors by name. Cost: one pass over their memory, and one wait for each device.

    Example:
        >>> one, other = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
        >>> digest_tensors({"a": one}) == digest_tensors({"a": one.clone()})
        True
        >>> digest_tensors({"a": one}) == digest_tensors({"a": other})
        False
    """
    names, sums, result = [], list[Tensor](), Digests()
    for name, tensor in tensors.items():
        whole = not is_sharded(tensor) and not tensor.is_meta and tensor.layout == torch.strided
        of_fsdp = hasattr(tensor, "_param_infos") or getattr(tensor, "_fsdp_flattened", False)
        if not whole or of_fsdp or type(tensor) not in (Tensor, nn.Parameter):
            continue
        plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        bits = plain.detach().contiguous().view(_INTEGERS[plain.element_size()]).flatten()
        # Bits and not values: NaN is unlike itself, and floats add up to another sum in another
        # order, on another device. The second sum tells permuted entries apart.
        both = torch.stack([bits.sum(dtype=torch.int64), bits[::2].sum(dtype=torch.int64)])
        names.append(name)
        sums.append(both)
        result[name] = [list(tensor.shape), str(tensor.dtype)]
    by_device: dict[torch.device, list[int]] = {}
    for index, each in enumerate(sums):
        by_device.setdefault(each.device, []).append(index)
    for indices in by_device.values():
        rows = torch.stack([sums[index] for index in indices]).tolist()
        for index, row in zip(indices, rows, strict=True):
            result[names[index]] += row
    return result


def check_replicas(model: nn.Module, processes: Processes) -> list[str]:
    """Check that all processes have one model; return the names of buffers that differ.

    Weights that differ would be merged without a sign, and each process would return other numbers.
    The running statistics of batch norm differ between the processes of a training in parallel.

    Args:
        model: Model of this process.
        processes: Processes that measure their samples together; each must call this.

    Raises:
        InputError: If the weights of two processes differ; the message names the first such weight.
    """
    if not processes.several:
        return []
    with processes.fail_together():
        kinds = ("_parameters", "_buffers")
        digests = [digest_tensors(_tensors_by_name(model, kind)) for kind in kinds]
    weights, buffers = zip(*processes.gather(digests), strict=True)
    for rank, other in zip(processes.ranks, weights, strict=True):
        if other != weights[0]:
            first = next(n for n in [*weights[0], *other] if weights[0].get(n) != other.get(n))
            raise InputError(
                expected="the same weights in every process",
                found=f"another {first!r} on rank {rank} than on rank {processes.ranks[0]}",
                fix="load one checkpoint in every process, or wrap the model in "
                "DistributedDataParallel, which sends the weights of rank 0",
            )
    names = {name for other in buffers for name in other}
    return sorted(n for n in names if any(other.get(n) != buffers[0].get(n) for other in buffers))


def share_buffers(model: nn.Module, names: list[str], processes: Processes) -> None:
    """Overwrite buffers of this process with those of the first process.

    Args:
        model: Model of this process, whose buffers the caller restores.
        names: Names of the buffers; the same in every process.
        processes: Processes that measure their samples together; each must call this.

    Raises:
        InputError: If a process lacks a buffer, or has another shape of it.
    """
    buffers = _tensors_by_name(model, "_buffers")
    with processes.fail_together():
        forms = {
            name: [list(buffers[name].shape), str(buffers[name].dtype)]
            for name in names
            if name in buffers
        }
    processes.agree_on(forms)
    processes.send([buffers[name] for name in names], 0)


def _tensors_by_name(model: nn.Module, kind: str) -> dict[str, Tensor]:
    """Return the parameters or buffers of a model, by names without wrappers."""
    return {
        f"{path}.{name}" if path else name: tensor
        for path, module in walk_modules(model)
        for name, tensor in getattr(module, kind).items()
        if isinstance(tensor, Tensor)
    }
