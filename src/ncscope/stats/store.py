"""Features kept for a second look: in memory up to a budget, memory-mapped on disk beyond it."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

DEFAULT_BUDGET = 2 * 2**30

# Labels are kept as one more layer, of a name that none has. In memory while the features go to
# disk, the few bytes of each batch would lie between the freed features of two, and the process
# would grow as if it kept those.
_LABELS = "."


class FeatureStore:
    """Batches of named features, so that one forward pass serves both looks at them.

    Use as a context manager: what was spilled to disk is removed on leaving.

    Args:
        budget: Bytes to hold in memory; batches beyond them go to a file each layer, and their
            labels to one.
        folder: Where to put those files; by default the system's temporary folder.

    Example:
        >>> with FeatureStore(budget=0) as store:
        ...     store.append({"last": torch.ones(2, 3)}, torch.tensor([0, 1]))
        ...     [(rows["last"].shape, y.tolist()) for rows, y in store]
        [(torch.Size([2, 3]), [0, 1])]
    """

    def __init__(self, budget: int = DEFAULT_BUDGET, folder: str | Path | None = None) -> None:
        self.budget = budget
        self.bytes_in_memory = 0
        self._folder = folder
        self._spill: tempfile.TemporaryDirectory[str] | None = None
        self._batches: list[dict[str, Tensor | _OnDisk]] = []
        self._files: dict[str, int] = {}  # layers by number: names can be too long for a file's

    def __enter__(self) -> "FeatureStore":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._batches.clear()
        if self._spill is not None:
            self._spill.cleanup()

    def append(
        self, features: Mapping[str, Shaped[Tensor, "n _d"]], labels: Int[Tensor, " n"]
    ) -> None:
        """Keep one batch, in the features' own dtype, on the CPU.

        Raises:
            OSError: If the disk is full.
        """
        kept = {**features, _LABELS: labels}
        cost = sum(rows.nbytes for rows in kept.values())
        if self.bytes_in_memory + cost <= self.budget:
            self.bytes_in_memory += cost
            self._batches.append({name: rows.cpu() for name, rows in kept.items()})
        else:
            self._batches.append({name: self._write(name, rows) for name, rows in kept.items()})

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Int[Tensor, " n"]]]:
        """The batches in the order they came, any number of times."""
        for batch in self._batches:
            loaded = {name: _load(rows) for name, rows in batch.items()}
            labels = loaded.pop(_LABELS)
            yield loaded, labels

    def _write(self, name: str, rows: Shaped[Tensor, "n ..."]) -> "_OnDisk":
        if self._spill is None:
            self._spill = tempfile.TemporaryDirectory(prefix="ncscope-", dir=self._folder)
        path = Path(self._spill.name) / f"{self._files.setdefault(name, len(self._files))}.bin"
        raw = rows.cpu().contiguous().view(torch.uint8).numpy()
        with path.open("ab") as file:
            start = file.tell()
            raw.tofile(file)
        return _OnDisk(path, start, tuple(rows.shape), rows.dtype)


class _OnDisk:
    """One batch of one layer inside a file."""

    def __init__(self, path: Path, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.path, self.start, self.shape, self.dtype = path, start, shape, dtype

    def load(self) -> Tensor:
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        mapped = np.memmap(self.path, np.uint8, "c", offset=self.start, shape=(size,))
        return torch.from_numpy(mapped).view(self.dtype).view(self.shape)


def _load(rows: "Tensor | _OnDisk") -> Tensor:
    return rows.load() if isinstance(rows, _OnDisk) else rows
