"""Processes that measure their samples together, and what they tell each other."""

import itertools
import json
import signal
import threading
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
        """Return a device on which the processes can communicate, the CPU if they can there."""
        kinds = self._devices() if self.several else ["cpu"]
        if "cpu" in kinds:
            return torch.device("cpu")
        return torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())

    def reachable(self, device: torch.device) -> torch.device:
        """Return the given device if the processes can communicate on it, else one where they can.

        Args:
            device: Device of a tensor.
        """
        return device if device.type in self._devices() else self.device

    @contextmanager
    def ending_together(self) -> Iterator[None]:
        """Make a step fail in every process if it fails in one.

        A process that fails says so in place of its next communication, whatever that would have
        been; the others learn of the failure when they communicate next, or at the end of the step.
        A step may therefore communicate by the methods of this class and contain further steps, but
        must not call ``torch.distributed`` itself.

        Raises:
            InputError: In each process that did not fail, with the message of the first that did.
        """
        start = next(_MOMENTS)
        try:
            yield
        except BaseException as error:
            if self.several and not self._knows(error, start):
                _mark(error, self)
                # The other processes may have ended, and their errors say less than this one.
                with suppress(RuntimeError, InputError):
                    self._announce(0, _message(error))
            raise
        self._announce(0)

    def values(self, value: Any) -> list[Any]:
        """Return the value of every process, in order of rank.

        Args:
            value: Value of this process, of the types that JSON has.
        """
        if not self.several:
            return [value]
        written = _written(json.dumps(value)).to(self.device)
        with uninterrupted():
            texts = self._texts(written, self._announce(len(written)))
        return [json.loads(text) for text in texts]

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

    def sum(self, values: Shaped[Tensor, "..."], *, guarded: bool = True) -> Shaped[Tensor, "..."]:
        """Sum values over all processes, with the same result on each; one process returns them.

        Args:
            values: Numbers of this process, of the same shape and type in every process.
            guarded: True if a process that has failed can say so here. False saves a communication
                outside of `ending_together`.
        """
        if not self.several:
            return values
        with uninterrupted():
            total = values.clone()
            if guarded:
                self._announce(0)
            self.reduce_(total)
        return total

    def reduce_(self, values: Shaped[Tensor, "..."], *, largest: bool = False) -> None:
        """Replace values by their sum over all processes, in place.

        A process that has failed cannot say so here: call `sum` where a process may have failed.

        Args:
            values: Contiguous numbers of the same shape and type in every process.
            largest: Take the largest value in place of the sum if True.
        """
        if not self.several:
            return
        operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        sent = values.to(self.reachable(values.device))
        with self._losing_none():
            dist.all_reduce(sent, operation, group=self.group)
        if sent is not values:
            values.copy_(sent)

    def send(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Send the values of one process to every process, in place.

        Args:
            tensors: Tensors of the same shapes and types in every process.
            source: Rank, within the group, of the process that sends its values.
        """
        if not self.several:
            return
        with uninterrupted():
            for tensor in tensors:
                sent = tensor.to(self.reachable(tensor.device))
                with self._losing_none():
                    dist.broadcast(sent, self.ranks[source], group=self.group)
                if sent is not tensor:
                    tensor.copy_(sent)

    def batches(
        self, batches: Iterable[tuple[Tensor, Int[Tensor, " _n"]]], device: torch.device
    ) -> list[tuple[Tensor, Tensor]]:
        """Return the batches of all processes, with the rows of each process in one batch.

        Args:
            batches: Batches of this process; their number and size may differ by process, and there
                may be none.
            device: Device of the batches returned.

        Raises:
            InputError: If no process has a batch, or widths or types of the features differ.
        """
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
        with uninterrupted():
            lengths = self._announce(len(rows))
            with self.ending_together():  # the memory may not suffice
                space = self._space(rows, lengths)
            return self._filled(space, lengths, rows.device)

    def _space(
        self, rows: Shaped[Tensor, "n ..."], lengths: Sequence[int]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the rows padded to the largest length, and space for those of every process."""
        device = self.reachable(rows.device)
        padded = torch.zeros(max(lengths), *rows.shape[1:], dtype=rows.dtype, device=device)
        padded[: len(rows)] = rows
        return padded, [torch.empty_like(padded) for _ in lengths]

    def _filled(
        self, space: tuple[Tensor, list[Tensor]], lengths: Sequence[int], device: torch.device
    ) -> list[Tensor]:
        padded, copies = space
        with self._losing_none():
            dist.all_gather(copies, padded, group=self.group)
        both = zip(copies, lengths, strict=True)
        return [copied[:length].to(device) for copied, length in both]

    def _texts(self, text: Tensor, lengths: Sequence[int]) -> list[str]:
        """Return the texts of all processes, of which all know the lengths."""
        gathered = self._filled(self._space(text, lengths), lengths, text.device)
        return [bytes(written.tolist()).decode() for written in gathered]

    def _announce(self, length: int, failure: str = "") -> list[int]:
        """Exchange one number; this is the beginning of each communication.

        Args:
            length: Number of this process.
            failure: Message of the error by which this process has ended; empty without one.

        Returns:
            The numbers of all processes.

        Raises:
            InputError: If a process has failed.
        """
        if not self.several:
            return [length]
        with uninterrupted():
            text = _written(failure).to(self.device)
            numbers = torch.tensor([length, len(text)], device=self.device)
            copies = [torch.empty_like(numbers) for _ in range(self.count)]
            with self._losing_none():
                dist.all_gather(copies, numbers, group=self.group)
            lengths, sizes = zip(*(copied.tolist() for copied in copies), strict=True)
            if not any(sizes):
                return list(lengths)
            said = zip(self.ranks, self._texts(text, sizes), strict=True)
        rank, message = next((rank, words) for rank, words in said if words)
        error = InputError(
            expected=f"no error in any of {self.count} processes",
            found=f"on rank {rank}: {message}",
            fix="correct what that process was given",
        )
        _mark(error, self)
        raise error

    @contextmanager
    def _losing_none(self) -> Iterator[None]:
        """Name the loss of a process, of which torch says only that a connection has ended.

        Raises:
            InputError: If the communication inside fails. It counts as known to all: to announce it
                would mean to wait for the lost process once more.
        """
        try:
            yield
        except RuntimeError as error:
            lost = InputError(
                expected=f"an answer of all {self.count} processes{self._patience()}",
                found=" ".join(str(error).split())[:200],
                fix="read what the others printed: one has ended, hangs, or did not make this "
                "call; one that is only slow needs init_process_group(timeout=...)",
            )
            _mark(lost, self)
            raise lost from error

    def _patience(self) -> str:
        """Return how long the processes wait for each other, in words; empty if torch hides it."""
        group: Any = dist.group.WORLD if self.group is None else self.group
        try:
            return f" within {group._get_backend(self.device).options._timeout}"
        except (AttributeError, RuntimeError):
            return ""

    def _knows(self, error: BaseException | None, start: int) -> bool:
        """Return whether all of the processes were told of an error, or of one that it came from.

        Args:
            error: Error that ends a step.
            start: Moment at which the step began. A step may raise an error again that an earlier
                step has announced; the other processes do not expect it then.
        """
        while error is not None:
            told: dict[Processes, int] = getattr(error, _TOLD, {})
            if told.get(self, start) > start:
                return True
            error = error.__cause__ or error.__context__
        return False

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


_TOLD = "_ncscope_told"
"""Name of an error's attribute: groups of processes, and the moments at which they were told."""

_MOMENTS = itertools.count()
"""Clock of this process, which ticks at the beginning of steps and at announcements of errors."""


def _mark(error: BaseException, processes: Processes) -> None:
    """Note that all of the processes know of an error, so that no outer step announces it again."""
    setattr(error, _TOLD, {**getattr(error, _TOLD, {}), processes: next(_MOMENTS)})


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay an interrupt from the keyboard to the end of a communication.

    A process that left in the middle of a communication would leave the others waiting. Nothing is
    lost: an interrupt never ends the waiting for another process, which happens outside of Python.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    arrived: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if arrived:
            before(*arrived[0])


def _written(text: str) -> Tensor:
    """Return the bytes of a text as a tensor."""
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


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
