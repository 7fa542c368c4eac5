"""Bases of accumulators that several threads may update."""

import copy
import threading
from abc import ABC, abstractmethod
from typing import Any, TypeVar

import torch
from torch import Tensor

from ncscope.devices import refuse_without_float64

# Not `Self`, which the check of signatures in the tests cannot resolve.
Same = TypeVar("Same", bound="Moments")


class ThreadSafe:
    """Base of accumulators that several threads may update at once.

    A method that reads or writes the state holds ``lock``. While it does, it calls no method that
    takes a lock, so that no two threads can wait for each other. A copy (shallow or deep) and a
    pickle are made under the lock; they share nothing with the original and have a new lock.

    Attributes:
        lock: Held by the thread that reads or writes the state.

    Example:
        >>> class Total(ThreadSafe):
        ...     def __init__(self) -> None:
        ...         super().__init__()
        ...         self.value = 0
        >>> total = Total()
        >>> with total.lock:
        ...     total.value += 1
        >>> copy.deepcopy(total).value
        1
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Copy the state; a lock can neither be copied nor pickled."""
        with self.lock:
            return {
                name: copy.deepcopy(value) for name, value in vars(self).items() if name != "lock"
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, with a new lock."""
        vars(self).update(state)
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "ThreadSafe":
        """Return `copy.copy`, which is deep already because of `__getstate__`."""
        return copy.copy(self)


class Moments(ThreadSafe, ABC):
    """Base of the moments of a stream, in float64.

    Moments are a commutative monoid up to rounding: ``merge`` and ``+`` add the samples of two
    streams, moments without samples are neutral, and `sum` adds a list.

    Args:
        device: Device to accumulate on.

    Raises:
        InputError: If the device has no float64.
    """

    def __init__(self, device: torch.device | str) -> None:
        super().__init__()
        self.device = torch.device(device)
        refuse_without_float64(self.device, "moments")

    @abstractmethod
    def merge(self: Same, other: Same) -> Same:
        """Add the samples of other moments, and return these moments."""

    def __add__(self: Same, other: Same) -> Same:
        """Return new moments of the samples of both."""
        return copy.copy(self).merge(other) if isinstance(other, type(self)) else NotImplemented

    def __radd__(self: Same, other: int) -> Same:
        """Return a copy if the other summand is 0, with which `sum` begins."""
        return copy.copy(self) if other == 0 else NotImplemented

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=self.device)
