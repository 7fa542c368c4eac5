"""Communication of several processes as functions of a process group: see `Processes`."""

import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.errors import InputError
from ncscope.stats.merging import Mergeable, merge_in_place
from ncscope.stats.processes import Processes, common_description, type_name

__all__ = [
    "Mergeable",
    "batches_of_all_processes",
    "common_description",
    "ending_together",
    "merge_across_processes",
    "merge_in_place",
    "nothing_to_measure",
    "several_processes",
    "share_of_first",
    "sum_across_processes",
    "type_name",
    "values_of_all_processes",
]


Accumulator = TypeVar("Accumulator", bound=Mergeable)


def several_processes(group: Any = None) -> bool:
    """Return whether this process belongs to a process group of at least two.

    Args:
        group: Process group; None for the default group. The same holds for all functions here.
    """
    return Processes(group).several


def ending_together(group: Any = None) -> AbstractContextManager[None]:
    """Make a step fail on every process if it fails on one; do nothing in a single process.

    A process that fails waits until the others communicate next, or reach the end of the step. The
    step may communicate by `Processes` and contain further steps, but must not call
    ``torch.distributed`` itself.

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
        The merged moments, equal on every process to the last bit: see `merge_in_place`. In a
        single process, a copy.

    Raises:
        InputError: If the moments of the processes differ in form, or another process fails.

    Example:
        >>> from ncscope.stats.moments import ClassMoments
        >>> alone = merge_across_processes(ClassMoments(2, 3))
        >>> int(alone.counts.sum())
        0
    """
    processes = Processes(group)
    with processes.ending_together():
        merged = copy.deepcopy(moments)
        merge_in_place(merged, processes)
    return merged


def sum_across_processes(values: Shaped[Tensor, "..."], group: Any = None) -> Shaped[Tensor, "..."]:
    """Sum values over all processes, with the same result on each; one process returns them.

    A step of `ending_together` must not call this; use `Processes.sum` there.
    """
    processes = Processes(group)
    if not processes.several:
        return values
    total = values.clone()
    processes.reduce_(total)
    return total


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
