"""Count of the operations for which the host of an accelerator must wait."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_READING = frozenset(
    {
        "_local_scalar_dense",  # item, float, int, bool
        "nonzero",
        "bincount",
        "masked_select",
        "_unique",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "equal",
        "is_nonzero",
        "repeat_interleave",
    }
)


class Reads(TorchDispatchMode):
    """Operations whose result depends on values that the host must read; ``seen`` counts them.

    On the CPU they cost nothing; on an accelerator each of them waits for all queued work. `tolist`
    is not an operation of the dispatcher, so `counted` counts its calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in _READING or (name.startswith("index") and _by_mask(args)):
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))


def _by_mask(args: tuple[Any, ...]) -> bool:
    """Return whether an index is a mask, whose true entries the host must count."""
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(isinstance(index, Tensor) and index.dtype == torch.bool for index in indices)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Treat the CPU as an accelerator, and count its reads."""
    reads, plain = Reads(), Tensor.tolist

    def tolist(tensor: Tensor) -> Any:
        reads.seen["tolist"] += 1
        return plain(tensor)

    with as_accelerator(), patch.object(Tensor, "tolist", tolist), reads:
        yield reads.seen


@contextmanager
def as_accelerator() -> Iterator[None]:
    """Take the paths of an accelerator on the CPU: nothing is read before the end of a pass."""
    with patch("ncscope.devices._READ_AT_ONCE", frozenset()):
        yield
