"""Merging of the statistics of several processes, with the same result on each process."""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.errors import InputError


@runtime_checkable
class Mergeable(Protocol):
    """An accumulator whose state is named tensors, each also an attribute of that name."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the accumulated statistics."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore accumulated statistics."""

    def merge(self, other: Any) -> Any:
        """Add the statistics of another accumulator."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)


def several_processes() -> bool:
    """Return whether this process belongs to a process group of at least two."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def ending_together() -> Iterator[None]:
    """Make a step fail on every process if it fails on one; do nothing in a single process.

    The processes communicate once, at the end of the step, so a process that fails waits until the
    others reach the end. The step itself must not communicate: a process that has failed would not
    take part.

    Raises:
        InputError: On each process that did not fail, with the message of the first process that
            did. A process that fails raises the error of its step.

    Example:
        >>> with ending_together():
        ...     batches = [(torch.zeros(1, 2), torch.zeros(1))]  # read, compute
    """
    try:
        yield
    except BaseException as error:
        with suppress(RuntimeError):  # the other processes may have ended; `error` matters more
            values_of_all_processes(_message(error))
        raise
    for rank, message in enumerate(values_of_all_processes(None)):
        if message is not None:
            raise InputError(
                expected=f"no error in any of {dist.get_world_size()} processes",
                found=f"on rank {rank}: {message}",
                fix="correct what that process was given",
            )


def values_of_all_processes(value: Any) -> list[Any]:
    """Return the value of every process, in order of rank.

    Args:
        value: Value of this process, of the types that JSON has.
    """
    if not several_processes():
        return [value]
    written = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    gathered = _gathered_rows(written.to(_meeting_device()))
    return [json.loads(bytes(rows.tolist())) for rows in gathered]


def common_description(descriptions: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the description that all processes with samples share; None if none has samples.

    Args:
        descriptions: Description of each rank's measurement, from `values_of_all_processes`; None
            for a rank without samples.

    Raises:
        InputError: If two ranks differ; the message names the first difference.

    Example:
        >>> common_description([None, {"classes": 3}, {"classes": 3}])
        {'classes': 3}
    """
    given = [(rank, form) for rank, form in enumerate(descriptions) if form is not None]
    for (first, mine), (rank, other) in ((given[0], each) for each in given[1:]):
        for key in mine:
            if mine[key] != other[key]:
                one, another = _first_difference(mine[key], other[key])
                raise InputError(
                    expected=f"the same {key} in every process",
                    found=f"{one} on rank {first} and {another} on rank {rank}",
                    fix="give every process the same model and options, and data of one form",
                )
    return given[0][1] if given else None


def merge_across_processes(moments: Accumulator) -> Accumulator:
    """Return the moments that one process would have accumulated from the samples of all.

    Args:
        moments: Class moments, or another accumulator, of this process; not changed.

    Returns:
        The merged moments, equal on every process (merged in order of rank). Outside a process
        group, a copy. Cost: one all-gather of the state.

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
    """Sum values over all processes, with the same result on each; one process returns them."""
    if not several_processes():
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def share_of_first(tensors: Iterable[Tensor], rank: int = 0) -> None:
    """Send the values of one process to every process, in place; do nothing in a single process.

    Args:
        tensors: Tensors of the same shapes and types in every process.
        rank: Rank of the process that sends its values.
    """
    if several_processes():
        for tensor in tensors:
            dist.broadcast(tensor, rank)


def batches_of_all_processes(
    batches: Iterable[tuple[Tensor, Int[Tensor, " _n"]]], device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """Return the batches of features and labels of every process, in order of rank.

    Args:
        batches: Batches of this process; their number and size may differ by process, and there
            may be none.
        device: Device on which the processes can communicate.

    Raises:
        InputError: If no process has a batch, or widths or types of the features differ.
    """
    if not several_processes():
        return list(batches)
    with ending_together():
        local = list(batches)
        rows = [torch.cat([batch[part] for batch in local]) for part in (0, 1)] if local else None
    form = None if rows is None else {"width": rows[0].shape[1], "type": type_name(rows[0].dtype)}
    shared = common_description(values_of_all_processes(form))
    if shared is None:
        raise nothing_to_measure()
    if rows is None:
        width, dtype = shared["width"], getattr(torch, shared["type"])
        rows = [torch.empty(0, width, dtype=dtype), torch.empty(0, dtype=torch.int64)]
    features = _gathered_rows(rows[0].to(device))
    labels = _gathered_rows(rows[1].to(device, torch.int64))
    return [pair for pair in zip(features, labels, strict=True) if len(pair[1])]


def nothing_to_measure() -> InputError:
    """Return the error to raise if no process has samples."""
    found = "none in any process" if several_processes() else "none"
    fix = "pass a loader with at least one batch"
    return InputError(expected="batches to measure", found=found, fix=fix)


def type_name(dtype: torch.dtype) -> str:
    """Return the name that a type has in torch.

    Example:
        >>> type_name(torch.float32)
        'float32'
    """
    return str(dtype).removeprefix("torch.")


def _gathered_rows(rows: Shaped[Tensor, "n ..."]) -> list[Tensor]:
    """Gather the rows of every rank; the rows travel padded to the longest rank's length."""
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
    state.pop("scatter_weights", None)  # set by the constructor, not accumulated
    return {name: torch.zeros_like(value) for name, value in state.items()}


def _gathered_states(moments: Mergeable) -> list[dict[str, Tensor]]:
    """Gather the state of every rank, tensor by tensor, so that nothing is pickled."""
    states: list[dict[str, Tensor]] = [{} for _ in _ranks()]
    for name, value in moments.state_dict().items():
        copies = [torch.empty_like(value) for _ in states]
        dist.all_gather(copies, value.contiguous())
        for state, copied in zip(states, copies, strict=True):
            state[name] = copied
    return states


def _meeting_device() -> torch.device:
    """Return a device on which the processes can communicate: the CPU, unless NCCL is the only one.

    The configuration of the backend is a list of device and library, as ``cpu:gloo,cuda:nccl``.
    """
    devices = [pair.partition(":")[0] for pair in dist.get_backend_config().split(",")]
    cuda = "cpu" not in devices
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")


def _message(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _first_difference(one: Any, other: Any) -> tuple[Any, Any]:
    """Return the first different entries of two lists of one length; else the values themselves."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next((a, b) for a, b in zip(one, other, strict=True) if a != b)
    return one, other
