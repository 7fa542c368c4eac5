"""Moments gathered by several processes, merged into the same whole on each of them."""

import copy

import torch
import torch.distributed as dist

from ncscope.stats.moments import ClassMoments


def merge_across_processes(moments: ClassMoments) -> ClassMoments:
    """What one process would have gathered from everybody's samples.

    Args:
        moments: This process's share; it is left as it is.

    Returns:
        The merged moments, the same on every process (merged in order of rank). Outside a
        process group, a copy. Cost: one gathering of the state from every process.

    Example:
        >>> alone = merge_across_processes(ClassMoments(2, 3))
        >>> int(alone.counts.sum())
        0
    """
    merged = copy.deepcopy(moments)
    if not (dist.is_available() and dist.is_initialized()):
        return merged
    for name, value in _empty_state(moments).items():
        setattr(merged, name, value)
    for state in _gathered_states(moments):
        share = copy.deepcopy(moments)
        share.load_state_dict(state)
        merged.merge(share)
    return merged


def _empty_state(moments: ClassMoments) -> dict[str, torch.Tensor]:
    state = moments.state_dict()
    state.pop("scatter_weights", None)  # fixed when the moments were made, not gathered
    return {name: torch.zeros_like(value) for name, value in state.items()}


def _gathered_states(moments: ClassMoments) -> list[dict[str, torch.Tensor]]:
    """Every rank's state, tensor by tensor: nothing is pickled."""
    states: list[dict[str, torch.Tensor]] = [{} for _ in range(dist.get_world_size())]
    for name, value in moments.state_dict().items():
        copies = [torch.empty_like(value) for _ in states]
        dist.all_gather(copies, value.contiguous())
        for state, copied in zip(states, copies, strict=True):
            state[name] = copied
    return states
