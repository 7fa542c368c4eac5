"""Tensors that are sharded over processes (DTensor): rows, decisions and comparisons of them."""

import sys
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor


def is_sharded(tensor: object) -> bool:
    """Return whether a tensor is a DTensor, without importing the libraries of DTensor."""
    library = sys.modules.get("torch.distributed.tensor")
    return library is not None and isinstance(tensor, library.DTensor)


def gather_shards(tensor: Tensor) -> Tensor:
    """Return the whole of a DTensor as a plain tensor; a plain tensor is returned as it is.

    Every process of the tensor's mesh must call this. A replicated tensor costs no communication.
    """
    whole: Any = tensor
    if is_sharded(tensor):
        whole = whole.full_tensor()
    # Tensor parallelism hands out tensors that still travel, in a wrapper without storage, of which
    # no address can be read (as `Taps` does to tell copies from views).
    return whole.wait() if type(whole).__name__ == "AsyncCollectiveTensor" else whole


def rows_at(tensor: Tensor, index: tuple[Tensor, ...]) -> Tensor:
    """Copy a few rows of a tensor, whose last axis may be sharded; only these rows are gathered.

    Args:
        tensor: Plain tensor, or DTensor.
        index: Index of each row on each axis but the last.
    """
    tensor = tensor.detach()
    if not is_sharded(tensor) or not _has_whole_rows(tensor):
        tensor = gather_shards(tensor)
        return tensor[tuple(at.to(tensor.device) for at in index)]
    from torch.distributed.tensor import DTensor, Replicate, Shard

    sharded: Any = tensor
    rows = rows_at(local_shard(tensor), index)
    placements = [Shard(rows.ndim - 1) if p.is_shard() else Replicate() for p in sharded.placements]
    # The shape must be given: from_local would take shards of unequal width for equal ones.
    shape = torch.Size([*rows.shape[:-1], tensor.shape[-1]])
    strides = [shape[axis + 1 :].numel() for axis in range(len(shape))]
    return gather_shards(
        DTensor.from_local(
            rows.contiguous(),
            sharded.device_mesh,
            placements,
            run_check=False,
            shape=shape,
            stride=tuple(strides),
        )
    )


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's shard of a DTensor; a plain tensor is returned as it is."""
    shard: Any = tensor
    return gather_shards(shard.to_local() if is_sharded(tensor) else shard)


def _has_whole_rows(tensor: Any) -> bool:
    """Return whether a DTensor is sharded along its last axis at most."""
    last = tensor.ndim - 1
    return all(
        placement.is_replicate() or placement.is_shard(last) for placement in tensor.placements
    )


def true_in_all_shards(values: Bool[Tensor, "..."], tensor: Tensor) -> Bool[Tensor, "..."]:
    """Return which values are true in the shards of every process that shares a DTensor.

    Args:
        values: Values computed from this process's shard, of the same shape in every process.
        tensor: DTensor; without effect for a plain tensor.
    """
    if not is_sharded(tensor):
        return values
    import torch.distributed as dist

    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    result = values.to(torch.int32)
    for axis in range(mesh.ndim):
        dist.all_reduce(result, dist.ReduceOp.MIN, group=mesh.get_group(axis))
    return result.bool()


def predict_classes(logits: Tensor) -> Tensor:
    """Return the class of the greatest logit of each row; the first of equal ones.

    If the classes are sharded over processes (DTensor), the best logit and its class travel, one
    pair for each row and process, not the logits; every process of the mesh must call this and gets
    all classes.

    Args:
        logits: Logits of shape B x K or B x T x K.

    Returns:
        Classes of shape B or B x T, int64.

    Example:
        >>> import torch
        >>> predict_classes(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 3.0]]))
        tensor([1, 0])
    """
    if not is_sharded(logits):
        return logits.argmax(dim=-1)
    if not _has_whole_rows(logits):
        return gather_shards(logits).argmax(dim=-1)
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    sharded: Any = logits
    mesh, placements = sharded.device_mesh, sharded.placements
    _, first = compute_local_shape_and_global_offset(logits.shape, mesh, placements)
    score, index = local_shard(logits).max(dim=-1)
    index = index + int(first[-1])
    # One column for each shard, in the order of the shards along the last axis. Of equal scores
    # `argmax` takes the first column, so that the least index wins, as in an unsharded tensor.
    columns = [Shard(score.ndim) if p.is_shard() else Replicate() for p in placements]
    scores, indices = (
        gather_shards(DTensor.from_local(part[..., None], mesh, columns, run_check=False))
        for part in (score, index)
    )
    best = scores.argmax(dim=-1, keepdim=True)
    return indices.gather(-1, best).squeeze(-1)
