"""A lock on what several threads may update."""

import copy
import threading
from typing import Any


class Locked:
    """Base of accumulators that several threads may update at once.

    A method that reads or writes the state holds ``lock``, and calls no method that takes a lock
    meanwhile: so no two threads can wait for each other. A copy, shallow or deep, and a pickle
    are made under the lock, share nothing with the original, and have a lock of their own.

    Attributes:
        lock: Held by the thread that reads or writes the state.

    Example:
        >>> class Total(Locked):
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
        """Take over a state, with a new lock."""
        vars(self).update(state)
        self.lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Locked":
        """Copy by `__getstate__`, which copies deeply already."""
        return copy.copy(self)
