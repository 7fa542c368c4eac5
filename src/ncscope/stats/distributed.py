"""What several processes gathered, merged into the same whole on each of them."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor


@runtime_checkable
class Mergeable(Protocol):
    """An accumulator whose state is named tensors, each also an attribute of that name."""

    def state_dict(self) -> dict[str, Tensor]:
        """What was gathered."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put it back."""

    def merge(self, other: Any) -> None:
        """Take in what another one gathered."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)


def several_processes() -> bool:
    """Whether this process is one of several that work together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def merge_across_processes(moments: Accumulator) -> Accumulator:
    """What one process would have gathered from everybody's samples.

    Args:
        moments: This process's share, class moments or the like; it is left as it is.

    Returns:
        The merged moments, the same on every process (merged in order of rank). Outside a
        process group, a copy. Cost: one gathering of the state from every process.

    Example:
        >>> from ncscope.stats.moments import ClassMoments
        >>> alone = merge_across_processes(ClassMoments(2, 3))
        >>> int(alone.counts.sum())
        0
    """
    merged = copy.deepcopy(moments)
    if not several_processes():
        return merged
    for name, value in _empty_state(moments).items():
        setattr(merged, name, value)
    for state in _gathered_states(moments):
        share = copy.deepcopy(moments)
        share.load_state_dict(state)
        merged.merge(share)
    return merged


def sum_across_processes(values: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """The sum of everybody's values, the same on every process; alone, the values."""
    if not several_processes():
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def share_of_first(tensors: Iterable[Tensor]) -> None:
    """Give every process the first one's values, in place; alone, nothing happens."""
    if several_processes():
        for tensor in tensors:
            dist.broadcast(tensor, 0)


def batches_of_all_processes(
    batches: Iterable[tuple[Tensor, Int[Tensor, " _n"]]], device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """Everybody's batches of features and labels, in order of rank; alone, one's own.

    Args:
        batches: This process's; the number of batches and of their rows may differ by process.
        device: Where the processes can talk.
    """
    own = list(batches)
    if not several_processes():
        return own
    rows = [torch.cat([batch[part] for batch in own]).to(device) for part in (0, 1)]
    features, labels = (_gathered_rows(part) for part in rows)
    return list(zip(features, labels, strict=True))


def _gathered_rows(rows: Shaped[Tensor, "n ..."]) -> list[Tensor]:
    """Every rank's rows, padded on the way to the length of the longest."""
    sizes = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in _ranks()]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
    longest = max(int(size) for size in sizes)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[: len(rows)] = rows
    copies = [torch.empty_like(padded) for _ in _ranks()]
    dist.all_gather(copies, padded)
    return [copied[: int(size)] for copied, size in zip(copies, sizes, strict=True)]


def _ranks() -> range:
    return range(dist.get_world_size())


def _empty_state(moments: Mergeable) -> dict[str, Tensor]:
    state = moments.state_dict()
    state.pop("scatter_weights", None)  # fixed when the moments were made, not gathered
    return {name: torch.zeros_like(value) for name, value in state.items()}


def _gathered_states(moments: Mergeable) -> list[dict[str, Tensor]]:
    """Every rank's state, tensor by tensor: nothing is pickled."""
    states: list[dict[str, Tensor]] = [{} for _ in _ranks()]
    for name, value in moments.state_dict().items():
        copies = [torch.empty_like(value) for _ in states]
        dist.all_gather(copies, value.contiguous())
        for state, copied in zip(states, copies, strict=True):
            state[name] = copied
    return states
