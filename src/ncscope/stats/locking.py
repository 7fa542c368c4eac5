"""Lock of accumulators that several threads may update."""

import copy
import threading
from typing import Any


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
