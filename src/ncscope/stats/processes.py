"""Processes that measure their samples together, and what they tell each other."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.errors import InputError


@dataclass(frozen=True)
class Processes:
    """Processes that measure their samples together, or this process alone.

    Every method that communicates must be called by all of the processes, in the same order.

    Args:
        group: Process group of ``torch.distributed``; None for the default group, and for this
            process alone as long as there is no default group.

    Raises:
        InputError: If the group does not exist any more, or this process is not in the group.

    Example:
        >>> alone = Processes()
        >>> alone.several, alone.count, alone.values("own")
        (False, 1, ['own'])
    """

    group: Any = None  # ProcessGroup, or the number that torch gives to processes outside a group

    def __post_init__(self) -> None:
        if self.group is None:
            return
        if not dist.is_available() or not dist.is_initialized():
            fix = "call torch.distributed.init_process_group first, or leave group out"
            raise InputError(expected="a process group", found="none in this process", fix=fix)
        try:
            outside = dist.get_rank(self.group) < 0
        except (ValueError, RuntimeError, TypeError, AttributeError) as error:
            fix = "pass the result of torch.distributed.new_group, or leave group out"
            raise InputError(expected="a process group", found=str(error), fix=fix) from error
        if outside:
            raise InputError(
                expected="a process group of which this process is a member",
                found=f"a group without rank {dist.get_rank()}",
                fix="measure only in the processes of the group",
            )

    @property
    def several(self) -> bool:
        """Return whether there are at least two processes."""
        return self.count > 1

    @property
    def count(self) -> int:
        """Return the number of processes."""
        if not dist.is_available() or not dist.is_initialized():
            return 1
        return dist.get_world_size(self.group)

    @property
    def index(self) -> int:
        """Return the rank of this process within the group, 0 in a single process."""
        return dist.get_rank(self.group) if self.several else 0

    @property
    def ranks(self) -> list[int]:
        """Return the ranks that the members have among all processes of the launch."""
        return dist.get_process_group_ranks(self.group) if self.several else [0]

    @property
    def device(self) -> torch.device:
        """Return a device on which the processes can communicate: the CPU, unless all need CUDA."""
        cuda = "cpu" not in self._devices()
        return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")

    def reachable(self, device: torch.device) -> torch.device:
        """Return the given device if the processes can communicate on it, else one where they can.

        Args:
            device: Device of a tensor.
        """
        return device if device.type in self._devices() else self.device

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Make a step fail in every process if it fails in one: see `distributed.ending_together`.

        Raises:
            InputError: In each process that did not fail, with the message of the first that did.
        """
        try:
            yield
        except BaseException as error:
            with suppress(RuntimeError):  # the other processes may have ended; `error` matters more
                self._failures(_message(error))
            raise
        for rank, message in self._failures(""):
            raise InputError(
                expected=f"no error in any of {self.count} processes",
                found=f"on rank {rank}: {message}",
                fix="correct what that process was given",
            )

    def values(self, value: Any) -> list[Any]:
        """Return the value of every process, in order of rank.

        Args:
            value: Value of this process, of the types that JSON has.
        """
        if not self.several:
            return [value]
        gathered = self.rows(_written(json.dumps(value)).to(self.device))
        return [json.loads(bytes(rows.tolist())) for rows in gathered]

    def common_description(
        self, descriptions: Sequence[dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Return the description that all processes with samples share; None if none has samples.

        Args:
            descriptions: Description of each process's measurement, from `values`; None for a
                process without samples.

        Raises:
            InputError: If two processes differ; the message names the first difference.
        """
        return common_description(descriptions, self.ranks)

    def sum(self, values: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Sum values over all processes, with the same result on each; one process returns them."""
        if not self.several:
            return values
        total = values.to(self.reachable(values.device), copy=True)
        dist.all_reduce(total, group=self.group)
        return total.to(values.device)

    def send(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Send the values of one process to every process, in place.

        Args:
            tensors: Tensors of the same shapes and types in every process.
            source: Rank, within the group, of the process that sends its values.
        """
        if not self.several:
            return
        for tensor in tensors:
            sent = tensor.to(self.reachable(tensor.device))
            dist.broadcast(sent, self.ranks[source], group=self.group)
            if sent is not tensor:
                tensor.copy_(sent)

    def batches(
        self, batches: Iterable[tuple[Tensor, Int[Tensor, " _n"]]], device: torch.device
    ) -> list[tuple[Tensor, Tensor]]:
        """Return all processes' batches: see `distributed.batches_of_all_processes`."""
        if not self.several:
            return list(batches)
        with self.ending_together():
            local = list(batches)
            rows = [torch.cat([batch[part] for batch in local]) for part in (0, 1)] if local else []
        form = {"width": rows[0].shape[1], "type": type_name(rows[0].dtype)} if rows else None
        shared = self.common_description(self.values(form))
        if shared is None:
            raise self.nothing_to_measure()
        if not rows:
            width, dtype = shared["width"], getattr(torch, shared["type"])
            rows = [torch.empty(0, width, dtype=dtype), torch.empty(0, dtype=torch.int64)]
        features = self.rows(rows[0].to(device))
        labels = self.rows(rows[1].to(device, torch.int64))
        return [pair for pair in zip(features, labels, strict=True) if len(pair[1])]

    def nothing_to_measure(self) -> InputError:
        """Return the error to raise if no process has samples."""
        found = "none in any process" if self.several else "none"
        fix = "pass a loader with at least one batch"
        return InputError(expected="batches to measure", found=found, fix=fix)

    def rows(self, rows: Shaped[Tensor, "n ..."]) -> list[Tensor]:
        """Gather the rows of every process; they travel padded to the largest number of rows.

        Args:
            rows: Rows of this process, of the same width and type in every process.
        """
        return self._padded_rows(rows, self._lengths(len(rows)))

    def _padded_rows(self, rows: Shaped[Tensor, "n ..."], lengths: Sequence[int]) -> list[Tensor]:
        device = self.reachable(rows.device)
        padded = torch.zeros(max(lengths), *rows.shape[1:], dtype=rows.dtype, device=device)
        padded[: len(rows)] = rows
        copies = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(copies, padded, group=self.group)
        return [
            copied[:length].to(rows.device) for copied, length in zip(copies, lengths, strict=True)
        ]

    def _lengths(self, length: int) -> list[int]:
        """Return one number of every process."""
        copies = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.count)]
        dist.all_gather(copies, torch.tensor([length], device=self.device), group=self.group)
        return [int(copied) for copied in copies]

    def _failures(self, message: str) -> list[tuple[int, str]]:
        """Return rank and message of each process that failed.

        Only one number of each process travels as long as none has failed.

        Args:
            message: Error of this process; empty without one.
        """
        if not self.several:
            return []
        text = _written(message)
        lengths = self._lengths(len(text))
        if not any(lengths):
            return []
        texts = self._padded_rows(text.to(self.device), lengths)
        said = zip(self.ranks, (bytes(each.tolist()).decode() for each in texts), strict=True)
        return [(rank, words) for rank, words in said if words]

    def _devices(self) -> list[str]:
        """Return the types of the devices on which the processes can communicate.

        The configuration of a backend lists devices and libraries, as ``cpu:gloo,cuda:nccl``.
        """
        pairs = dist.get_backend_config(self.group).split(",")
        return [pair.partition(":")[0] for pair in pairs]


ALL = Processes()
"""Processes of the default group; this process alone without such a group."""


def common_description(
    descriptions: Sequence[dict[str, Any] | None], ranks: Sequence[int] | None = None
) -> dict[str, Any] | None:
    """Return the description that all processes with samples share; None if none has samples.

    Args:
        descriptions: Description of each process's measurement; None for one without samples.
        ranks: Rank of each process, for the message; by default 0, 1, 2 and so on.

    Raises:
        InputError: If two processes differ; the message names the first difference.

    Example:
        >>> common_description([None, {"classes": 3}, {"classes": 3}])
        {'classes': 3}
    """
    numbers = range(len(descriptions)) if ranks is None else ranks
    both = zip(numbers, descriptions, strict=True)
    given = [(rank, form) for rank, form in both if form is not None]
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


def type_name(dtype: torch.dtype) -> str:
    """Return the name that a type has in torch.

    Example:
        >>> type_name(torch.float32)
        'float32'
    """
    return str(dtype).removeprefix("torch.")


def _written(text: str) -> Tensor:
    """Return the bytes of a text as a tensor."""
    return (
        torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        if text
        else torch.empty(0, dtype=torch.uint8)
    )


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
