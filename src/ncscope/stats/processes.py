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

from ncscope.array_checks import type_name
from ncscope.errors import InputError, say_error


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
        >>> alone.several, alone.count, alone.gather("own")
        (False, 1, ['own'])
    """

    group: Any = None  # ProcessGroup, or the number that torch gives to processes outside a group

    def __post_init__(self) -> None:
        if self.group is None:
            return
        if not dist.is_available() or not dist.is_initialized():
            fix = "call torch.distributed.init_process_group first, or leave process_group out"
            raise InputError(expected="a process group", found="none in this process", fix=fix)
        try:
            outside = dist.get_rank(self.group) < 0
        except (ValueError, RuntimeError, TypeError, AttributeError) as error:
            fix = "pass the result of torch.distributed.new_group, or leave process_group out"
            raise InputError(expected="a process group", found=str(error), fix=fix) from error
        if outside:
            raise InputError(
                expected="a process group of which this process is a member",
                found=f"a group without rank {dist.get_rank()}",
                fix="measure only in the processes of the group",
            )

    @property
    def several(self) -> bool:
        """True if there are at least two processes."""
        return self.count > 1

    @property
    def count(self) -> int:
        """Number of processes."""
        if not dist.is_available() or not dist.is_initialized():
            return 1
        return dist.get_world_size(self.group)

    @property
    def index(self) -> int:
        """Rank of this process within the group, 0 in a single process."""
        return dist.get_rank(self.group) if self.several else 0

    @property
    def ranks(self) -> list[int]:
        """Ranks that the members have among all processes of the launch."""
        return dist.get_process_group_ranks(self.group) if self.several else [0]

    @property
    def device(self) -> torch.device:
        """Device on which the processes can communicate, the CPU if they can there."""
        kinds = self._device_types if self.several else ["cpu"]
        if "cpu" in kinds:
            return torch.device("cpu")
        return torch.device(kinds[0], torch.get_device_module(kinds[0]).current_device())

    def choose_device(self, device: torch.device) -> torch.device:
        """Return the given device if the processes can communicate on it, else one where they can.

        Args:
            device: Device of a tensor.
        """
        return device if device.type in self._device_types else self.device

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Make a step fail in every process if it fails in one.

        A process that fails says so in place of its next communication, whatever that would have
        been; the others learn of the failure when they communicate next, or at the end of the step.
        A step may therefore communicate by the methods of this class and contain further steps, but
        must not call ``torch.distributed`` itself.

        Raises:
            InputError: In each process that did not fail, with the message of the first that did.
        """
        start = next(_CLOCK)
        try:
            yield
        except BaseException as error:
            if self.several and not self._is_known(error, start):
                _add_audience(error, self)
                message = " ".join(str(error).split())
                if not isinstance(error, InputError):
                    kind = type(error).__name__
                    message = f"{kind}: {message}" if message else kind
                # The other processes may have ended, and their errors say less than this one.
                with suppress(RuntimeError, InputError):
                    self._announce(0, message)
            raise
        # A process that has reached the end waits here for those that may still fail.
        self._announce(0)

    def gather(self, value: Any) -> list[Any]:
        """Return the value of every process, in order of rank.

        Args:
            value: Value of this process, of the types that JSON has.
        """
        if not self.several:
            return [value]
        text = _encode(json.dumps(value)).to(self.device)
        with delay_interrupts():
            texts = self._gather_texts(text, self._announce(len(text)))
        return [json.loads(each) for each in texts]

    def agree_on(self, description: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the description that all processes with samples share; None if none has samples.

        Args:
            description: Description of this process's measurement, of the types that JSON has; None
                without samples.

        Raises:
            InputError: If two processes differ; the message names the first difference.
        """
        return compare_descriptions(self.gather(description), self.ranks)

    def sum(self, values: Shaped[Tensor, "..."], *, guarded: bool = True) -> Shaped[Tensor, "..."]:
        """Sum values over all processes, with the same result on each; one process returns them.

        Args:
            values: Numbers of this process, of the same shape and type in every process.
            guarded: True if a process that has failed can say so here. False saves a communication
                outside of `fail_together`.
        """
        if not self.several:
            return values
        with delay_interrupts():
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
        sent = values.to(self.choose_device(values.device))
        with self._explain_loss():
            dist.all_reduce(sent, operation, group=self.group)
        if sent is not values:  # `to` returns the tensor itself if it is on that device already
            values.copy_(sent)

    def send(self, tensors: Iterable[Tensor], source: int = 0) -> None:
        """Send the values of one process to every process, in place.

        Args:
            tensors: Tensors of the same shapes and types in every process.
            source: Rank, within the group, of the process that sends its values.
        """
        if not self.several:
            return
        with delay_interrupts():
            for tensor in tensors:
                sent = tensor.to(self.choose_device(tensor.device))
                with self._explain_loss():
                    dist.broadcast(sent, self.ranks[source], group=self.group)
                if sent is not tensor:
                    tensor.copy_(sent)

    def gather_batches(
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
        with self.fail_together():
            local = list(batches)
            rows = [torch.cat([batch[part] for batch in local]) for part in (0, 1)] if local else []
        form = {"width": rows[0].shape[1], "type": type_name(rows[0].dtype)} if rows else None
        shared = self.agree_on(form)
        if shared is None:
            raise self.no_samples_error()
        if not rows:  # it takes part nevertheless: the others would wait for its share
            width, dtype = shared["width"], getattr(torch, shared["type"])
            rows = [
                torch.empty(0, width, dtype=dtype, device="cpu"),
                torch.empty(0, dtype=torch.int64, device="cpu"),
            ]
        features = self.gather_rows(rows[0].to(device))
        labels = self.gather_rows(rows[1].to(device, torch.int64))
        return [pair for pair in zip(features, labels, strict=True) if len(pair[1])]

    def no_samples_error(self) -> InputError:
        """Return the error to raise if no process has samples."""
        found = "none in any process" if self.several else "none"
        fix = "pass a loader with at least one batch"
        return InputError(expected="batches to measure", found=found, fix=fix)

    def gather_rows(self, rows: Shaped[Tensor, "n ..."]) -> list[Tensor]:
        """Gather the rows of every process; they travel padded to the largest number of rows.

        Args:
            rows: Rows of this process, of the same width and type in every process.
        """
        with delay_interrupts():
            lengths = self._announce(len(rows))
            # The memory may not suffice in one process. The others must hear of it before they
            # gather, because that communication has no place for the message of a failure.
            with self.fail_together():
                padded, copies = self._pad(rows, lengths)
            return self._gather_padded(padded, copies, lengths, rows.device)

    def _pad(
        self, rows: Shaped[Tensor, "n ..."], lengths: Sequence[int]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the rows padded to the largest length, and space for those of every process."""
        device = self.choose_device(rows.device)
        padded = torch.zeros(max(lengths), *rows.shape[1:], dtype=rows.dtype, device=device)
        padded[: len(rows)] = rows
        return padded, [torch.empty_like(padded) for _ in lengths]

    def _gather_padded(
        self, padded: Tensor, copies: list[Tensor], lengths: Sequence[int], device: torch.device
    ) -> list[Tensor]:
        with self._explain_loss():
            dist.all_gather(copies, padded, group=self.group)
        both = zip(copies, lengths, strict=True)
        return [copied[:length].to(device) for copied, length in both]

    def _gather_texts(self, text: Tensor, lengths: Sequence[int]) -> list[str]:
        """Return the texts of all processes, of which all know the lengths."""
        texts = self._gather_padded(*self._pad(text, lengths), lengths, text.device)
        return [bytes(each.tolist()).decode() for each in texts]

    def _announce(self, length: int, failure: str = "") -> list[int]:
        """Exchange one number; this is the beginning of each communication.

        Args:
            length: Number of this process.
            failure: Message of the error by which this process has ended; empty without one.

        Returns:
            The numbers of all processes.
        """
        if not self.several:
            return [length]
        with delay_interrupts():
            text = _encode(failure).to(self.device)
            # A process that has failed doesn't know what the others wait for. All communications
            # therefore begin with this same one, of a number that they may need and the length of a
            # message, which is 0 in every process as long as none has failed.
            numbers = torch.tensor([length, len(text)], device=self.device)
            copies = [torch.empty_like(numbers) for _ in range(self.count)]
            with self._explain_loss():
                dist.all_gather(copies, numbers, group=self.group)
            lengths, sizes = zip(*(copied.tolist() for copied in copies), strict=True)
            if not any(sizes):
                return list(lengths)
            texts = zip(self.ranks, self._gather_texts(text, sizes), strict=True)
        rank, message = next((rank, words) for rank, words in texts if words)
        error = InputError(
            expected=f"no error in any of {self.count} processes",
            found=f"on rank {rank}: {message}",
            fix="correct what that process was given",
        )
        _add_audience(error, self)
        raise error

    @contextmanager
    def _explain_loss(self) -> Iterator[None]:
        """Name the loss of a process, of which torch says only that a connection has ended.

        Raises:
            InputError: If the communication inside fails. It counts as known to all: to announce it
                would mean to wait for the lost process once more.
        """
        try:
            yield
        except RuntimeError as error:
            group: Any = dist.group.WORLD if self.group is None else self.group
            try:  # torch has no public name for the time that processes wait for each other
                patience = f" within {group._get_backend(self.device).options._timeout}"
            except (AttributeError, RuntimeError):
                patience = ""
            loss = InputError(
                expected=f"an answer of all {self.count} processes{patience}",
                found=say_error(error),
                fix="read what the others printed: one has ended, hangs, or did not make this "
                "call; one that is only slow needs init_process_group(timeout=...)",
            )
            _add_audience(loss, self)
            raise loss from error

    def _is_known(self, error: BaseException | None, start: int) -> bool:
        """Return whether every process already knows an error or one of its causes.

        Args:
            error: Error that ends a step.
            start: Moment at which the step began. A step may raise an error again that an earlier
                step has announced; the other processes do not expect it then.
        """
        while error is not None:
            audience: dict[Processes, int] = getattr(error, _AUDIENCE, {})
            if audience.get(self, start) > start:
                return True
            # An error may have been turned into another, such as one that names the layer.
            error = error.__cause__ or error.__context__
        return False

    @property
    def _device_types(self) -> list[str]:
        """Types of the devices on which the processes can communicate.

        The configuration of a backend lists devices and libraries, as ``cpu:gloo,cuda:nccl``.
        """
        pairs = dist.get_backend_config(self.group).split(",")
        return [pair.partition(":")[0] for pair in pairs]


ALL = Processes()
"""Processes of the default group; this process alone without such a group."""


def compare_descriptions(
    descriptions: Sequence[dict[str, Any] | None], ranks: Sequence[int] | None = None
) -> dict[str, Any] | None:
    """Return the description that all processes with samples share; None if none has samples.

    Args:
        descriptions: Description of each process's measurement; None for one without samples.
        ranks: Rank of each process, for the message; by default 0, 1, 2 and so on.

    Raises:
        InputError: If two processes differ; the message names the first difference.

    Example:
        >>> compare_descriptions([None, {"classes": 3}, {"classes": 3}])
        {'classes': 3}
    """
    numbers = range(len(descriptions)) if ranks is None else ranks
    both = zip(numbers, descriptions, strict=True)
    forms = [(rank, form) for rank, form in both if form is not None]
    for (first, mine), (rank, other) in ((forms[0], each) for each in forms[1:]):
        for key in mine:
            if mine[key] != other[key]:
                one, another = mine[key], other[key]
                # Of long lists, such as those of all layers, the first entries that differ.
                if isinstance(one, list) and isinstance(another, list) and len(one) == len(another):
                    one, another = next((a, b) for a, b in zip(one, another, strict=True) if a != b)
                raise InputError(
                    expected=f"the same {key} in every process",
                    found=f"{one} on rank {first} and {another} on rank {rank}",
                    fix="give every process the same model and options, and data of one form",
                )
    return forms[0][1] if forms else None


_AUDIENCE = "_ncscope_audience"
"""Name of an error's attribute: the groups of processes that know it, and since which moment."""

_CLOCK = itertools.count()
"""Clock of this process, which ticks at the beginning of steps and at announcements of errors."""


def _add_audience(error: BaseException, processes: Processes) -> None:
    """Note that all of the processes know of an error, so that no outer step announces it again."""
    setattr(error, _AUDIENCE, {**getattr(error, _AUDIENCE, {}), processes: next(_CLOCK)})


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay an interrupt from the keyboard to the end of a communication.

    A process that left in the middle of a communication would leave the others waiting. Nothing is
    lost: an interrupt never ends the waiting for another process, which happens outside of Python.
    """
    # Python gives signals to the main thread alone, and lets no other thread set a handler. Without
    # a handler of Python's, the system ends the process or ignores the signal: nothing to delay.
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


def _encode(text: str) -> Tensor:
    """Return the bytes of a text as a tensor."""
    return torch.tensor(list(text.encode()), dtype=torch.uint8, device="cpu")
