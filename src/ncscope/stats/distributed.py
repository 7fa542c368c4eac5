"""Merging of what several processes gathered, into the same whole on each of them."""

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
        """Return what was gathered."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put it back."""

    def merge(self, other: Any) -> None:
        """Take in what another one gathered."""


Accumulator = TypeVar("Accumulator", bound=Mergeable)


def several_processes() -> bool:
    """Return whether this process is one of several that work together."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def ending_together() -> Iterator[None]:
    """End a step on every process if the step fails on one; alone, nothing happens.

    The processes meet once, at the end of the step, so a process that fails waits for the others
    to get there. Inside, they must not communicate: a process that fails would not take part.

    Raises:
        InputError: On each process that did not fail, with the message of the first that did. A
            process that fails raises its own error.

    Example:
        >>> with ending_together():
        ...     batches = [(torch.zeros(1, 2), torch.zeros(1))]  # read, compute
    """
    try:
        yield
    except BaseException as error:
        with suppress(RuntimeError):  # the others may be gone; this error says why
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
    """Return the value of every process in order of rank; alone, this one's.

    Args:
        value: Null, numbers, strings, lists and dictionaries, as JSON has them.
    """
    if not several_processes():
        return [value]
    written = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    gathered = _gathered_rows(written.to(_meeting_device()))
    return [json.loads(bytes(rows.tolist())) for rows in gathered]


def common_description(descriptions: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the one description that all processes with samples share; None if none has samples.

    Args:
        descriptions: Description of what each rank measures, from `values_of_all_processes`; None
            for a rank without samples.

    Raises:
        InputError: If two ranks differ, with the first difference.

    Example:
        >>> common_description([None, {"classes": 3}, {"classes": 3}])
        {'classes': 3}
    """
    known = [(rank, found) for rank, found in enumerate(descriptions) if found is not None]
    for (first, mine), (rank, other) in ((known[0], each) for each in known[1:]):
        for key in mine:
            if mine[key] != other[key]:
                one, another = _first_difference(mine[key], other[key])
                raise InputError(
                    expected=f"the same {key} in every process",
                    found=f"{one} on rank {first} and {another} on rank {rank}",
                    fix="give every process the same model and options, and data of one form",
                )
    return known[0][1] if known else None


def merge_across_processes(moments: Accumulator) -> Accumulator:
    """Return what one process would have gathered from the samples of all.

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
    """Sum values over all processes, the same on every process; alone, return the values."""
    if not several_processes():
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def share_of_first(tensors: Iterable[Tensor], rank: int = 0) -> None:
    """Give every process the values of the first one, in place; alone, nothing happens.

    Args:
        tensors: Tensors of the same shapes and types in every process.
        rank: Rank of the process that counts as the first.
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
        own = list(batches)
        rows = [torch.cat([batch[part] for batch in own]) for part in (0, 1)] if own else None
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
    """Return the error for processes that have no samples, none of them."""
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


def _meeting_device() -> torch.device:
    """Return a device on which the processes can communicate: the CPU, unless NCCL alone is there.

    A backend is told as pairs of device and library, such as ``cpu:gloo,cuda:nccl``.
    """
    devices = [pair.partition(":")[0] for pair in dist.get_backend_config().split(",")]
    cuda = "cpu" not in devices
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")


def _message(error: BaseException) -> str:
    said = " ".join(str(error).split())
    if isinstance(error, InputError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _first_difference(one: Any, other: Any) -> tuple[Any, Any]:
    """Return where two values differ: the first different entries of two lists, or the values."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return next((a, b) for a, b in zip(one, other, strict=True) if a != b)
    return one, other
