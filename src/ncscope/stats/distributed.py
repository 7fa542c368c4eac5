"""Communication of several processes as functions of a process group: see `Processes`."""

import copy
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats.processes import Processes, common_description, type_name

__all__ = [
    "Mergeable",
    "batches_of_all_processes",
    "common_description",
    "ending_together",
    "merge_across_processes",
    "nothing_to_measure",
    "several_processes",
    "share_of_first",
    "sum_across_processes",
    "type_name",
    "values_of_all_processes",
]


@runtime_checkable
class Mergeable(Protocol):
    """An accumulator whose state is named tensors, each also an attribute of that name."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the accumulated statistics."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore accumulated statistics."""

    def merge(self, other: Any) -> None:
        """Add the statistics of another accumulator."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)


def several_processes(group: Any = None) -> bool:
    """Return whether this process belongs to a process group of at least two.

    Args:
        group: Process group; None for the default group. The same holds for all functions here.
    """
    return Processes(group).several


def ending_together(group: Any = None) -> AbstractContextManager[None]:
    """Make a step fail on every process if it fails on one; do nothing in a single process.

    The processes communicate once, at the end of the step, so a process that fails waits until the
    others reach the end. The step itself must not communicate: a process that has failed would not
    take part.

    Args:
        group: Process group; None for the default group.

    Raises:
        InputError: On each process that did not fail, with the message of the first process that
            did. A process that fails raises the error of its step.

    Example:
        >>> with ending_together():
        ...     batches = [(torch.zeros(1, 2), torch.zeros(1))]  # read, compute
    """
    return Processes(group).ending_together()


def values_of_all_processes(value: Any, group: Any = None) -> list[Any]:
    """Return the value of every process, in order of rank.

    Args:
        value: Value of this process, of the types that JSON has.
        group: Process group; None for the default group.
    """
    return Processes(group).values(value)


def merge_across_processes(moments: Accumulator, group: Any = None) -> Accumulator:
    """Return the moments that one process would have accumulated from the samples of all.

    Args:
        moments: Class moments, or another accumulator, of this process; not changed.
        group: Process group; None for the default group.

    Returns:
        The merged moments, equal on every process (merged in order of rank). Outside a process
        group, a copy. Cost: one all-gather of the state.

    Example:
        >>> from ncscope.stats.moments import ClassMoments
        >>> alone = merge_across_processes(ClassMoments(2, 3))
        >>> int(alone.counts.sum())
        0
    """
    processes = Processes(group)
    merged = copy.deepcopy(moments)
    if not processes.several:
        return merged
    for name, value in _empty_state(moments).items():
        setattr(merged, name, value)
    for state in _gathered_states(moments, processes):
        share = copy.deepcopy(moments)
        share.load_state_dict(state)
        merged.merge(share)
    return merged


def sum_across_processes(values: Shaped[Tensor, "..."], group: Any = None) -> Shaped[Tensor, "..."]:
    """Sum values over all processes, with the same result on each; one process returns them."""
    return Processes(group).sum(values)


def share_of_first(tensors: Iterable[Tensor], rank: int = 0, group: Any = None) -> None:
    """Send the values of one process to every process, in place; do nothing in a single process.

    Args:
        tensors: Tensors of the same shapes and types in every process.
        rank: Rank, within the group, of the process that sends its values.
        group: Process group; None for the default group.
    """
    Processes(group).send(tensors, rank)


def batches_of_all_processes(
    batches: Iterable[tuple[Tensor, Int[Tensor, " _n"]]], device: torch.device, group: Any = None
) -> list[tuple[Tensor, Tensor]]:
    """Return the batches of features and labels of every process, in order of rank.

    Args:
        batches: Batches of this process; their number and size may differ by process, and there
            may be none.
        device: Device of the batches returned.
        group: Process group; None for the default group.

    Raises:
        InputError: If no process has a batch, or widths or types of the features differ.
    """
    return Processes(group).batches(batches, device)


def nothing_to_measure(group: Any = None) -> InputError:
    """Return the error to raise if no process has samples."""
    return Processes(group).nothing_to_measure()


def _empty_state(moments: Mergeable) -> dict[str, Tensor]:
    state = moments.state_dict()
    state.pop("scatter_weights", None)  # set by the constructor, not accumulated
    return {name: torch.zeros_like(value) for name, value in state.items()}


def _gathered_states(moments: Mergeable, processes: Processes) -> list[dict[str, Tensor]]:
    """Gather the state of every rank, tensor by tensor, so that nothing is pickled."""
    states: list[dict[str, Tensor]] = [{} for _ in range(processes.count)]
    for name, value in moments.state_dict().items():
        copies = [torch.empty_like(value) for _ in states]
        dist.all_gather(copies, value.contiguous(), group=processes.group)
        for state, copied in zip(states, copies, strict=True):
            state[name] = copied
    return states
