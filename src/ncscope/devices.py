"""Differences between the CPU and accelerators: waits, chunks of work, copies, float64."""

from collections.abc import Mapping

import torch
from jaxtyping import Shaped
from torch import Tensor

from ncscope.errors import InputError

_READ_AT_ONCE = frozenset({"cpu"})
"""Types of devices whose results are there when an operation returns."""

_CACHED = 2 * 2**20
"""Bytes of a chunk that stays in the cache of a CPU, and is long enough for a matrix product."""

_LAUNCHED = 256 * 2**20
"""Bytes of a chunk on an accelerator: far more work than the launch of its kernels."""

_KEPT_WITHOUT_REPORT = 2**30
"""Bytes to keep on a device that does not report its free memory."""


def is_asynchronous(device: torch.device) -> bool:
    """Return whether a value that is read on the host makes the host wait for queued work."""
    return device.type not in _READ_AT_ONCE


def chunk_bytes(device: torch.device) -> int:
    """Return the size of a chunk of rows that suits the device."""
    return _CACHED if device.type == "cpu" else _LAUNCHED


def float32_is_reduced(device: str) -> bool:
    """Return whether float32 products may use fewer bits (TF32, bfloat16), which breaks bounds.

    Args:
        device: Type of the device.
    """
    backend = torch.backends.cuda.matmul if device == "cuda" else torch.backends.mkldnn
    precision = getattr(getattr(backend, "matmul", backend), "fp32_precision", None)
    if precision is None:  # torch before 2.9
        return torch.get_float32_matmul_precision() != "highest"
    return precision not in ("none", "ieee")


def refuse_without_float64(device: torch.device, name: str) -> None:
    """Refuse a device that has no float64, in which all statistics are accumulated.

    Args:
        device: Device of the input.
        name: Name of the input, for the message.

    Raises:
        InputError: If the device is Apple's GPU (``mps``).

    Example:
        >>> refuse_without_float64(torch.device("cpu"), "features")
    """
    if device.type == "mps":
        raise InputError(
            expected=f"{name} on a device with float64",
            found="mps, which has none",
            fix=f"move to the CPU, for example {name}.cpu()",
        )


def bytes_to_keep(device: torch.device) -> int:
    """Return the bytes that may be kept on a device besides the work: half of its free memory."""
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.mem_get_info(device)[0] // 2
    return _KEPT_WITHOUT_REPORT


def move_to(tensor: Shaped[Tensor, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """Move a tensor to a device, without waiting for the copy where pinned memory allows that."""
    # From memory that is not pinned, the host itself would copy, after all the queued work.
    from_host = device.type == "cuda" and tensor.device.type == "cpu"
    if not (from_host and _can_pin() and tensor.nbytes <= _LAUNCHED):
        return tensor.to(device)
    # torch keeps the pinned memory until the copy has ended.
    return tensor.pin_memory().to(device, non_blocking=True)


def are_equal(first: Shaped[Tensor, "..."], second: Shaped[Tensor, "..."]) -> bool:
    """Return whether tensors have the same values, also if a model has them on two devices."""
    return torch.equal(first.to(second.device), second)


class HostCopy:
    """Copies of tensors in the host's memory, made while the host goes on.

    From a CUDA device, the copies go to pinned memory behind the work that is queued. An event
    marks their end, and `wait` waits for this event before anybody reads the copies.

    Args:
        tensors: Tensors on any devices. They may be freed at once: their memory is used again only
            behind the copies.

    Example:
        >>> HostCopy({"features": torch.ones(2)}).wait()["features"]
        tensor([1., 1.])
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        aside = {name: tensor for name, tensor in tensors.items() if _can_copy_aside(tensor)}
        self._copies = {name: _start_copy(t) if name in aside else t for name, t in tensors.items()}
        self._pinned = frozenset(aside)
        self._events: list[torch.cuda.Event] = []
        # Each device has a queue of its own, so one event a device marks the end of all its copies.
        for device in {tensor.device for tensor in aside.values()}:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)

    @property
    def complete(self) -> bool:
        """True if nothing has to be waited for."""
        return not self._events

    def wait(self) -> dict[str, Tensor]:
        """Return the tensors on the CPU, in memory that is not pinned, once they are complete."""
        for event in self._events:
            event.synchronize()
        # Pinned memory is scarce, and torch gives out powers of two: it serves for one batch only.
        return {
            name: tensor.clone() if name in self._pinned else tensor.cpu()
            for name, tensor in self._copies.items()
        }


def _start_copy(tensor: Tensor) -> Tensor:
    """Start to copy a tensor to pinned memory, to which a device copies by itself."""
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True, device="cpu")
    return pinned.copy_(tensor, non_blocking=True)


def _can_copy_aside(tensor: Tensor) -> bool:
    """Return whether a tensor can be copied to the host beside other work."""
    return tensor.device.type == "cuda" and _can_pin()


def _can_pin() -> bool:
    return torch.cuda.is_available()
