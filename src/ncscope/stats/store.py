"""Features kept for a second pass: in memory up to a budget, memory-mapped on disk beyond it."""

import math
import mmap
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.devices import HostCopy
from ncscope.errors import InputError
from ncscope.stats.locking import ThreadSafe

DEFAULT_BUDGET = 2 * 2**30

# Labels are stored as one more layer, under a name that no layer has. If they stayed in memory
# while the features go to disk, each batch's few bytes of labels would lie between the freed
# features of two batches, and the process would grow as if it kept the features.
_LABELS = "."

_ALIGNMENT = 64
"""Alignment in bytes of every tensor in the file."""


class FeatureStore(ThreadSafe):
    """Batches of named features, kept so that both passes over them need one forward pass.

    Use the store as a context manager: leaving the context frees the disk space. The file on disk
    has no name, so the system frees its space even if the process is killed. Several threads may
    append.

    Args:
        budget: Bytes to hold in memory; batches beyond the budget go to one file on disk.
        folder: Folder for the file on disk; by default the system's temporary folder.
        disk: Bytes to write to disk at most; None for half of the free space of the folder.
        expected: Number of batches that will be appended, if it is known. The store then refuses
            the first batch of a stream that would not fit, instead of the batch that does not fit.
        otherwise: Remedies for the message of a store that is full.

    Example:
        >>> with FeatureStore(budget=0) as store:
        ...     store.append({"last": torch.ones(2, 3)}, torch.tensor([0, 1]))
        ...     [(rows["last"].shape, y.tolist()) for rows, y in store]
        [(torch.Size([2, 3]), [0, 1])]
    """

    def __init__(
        self,
        budget: int = DEFAULT_BUDGET,
        folder: str | Path | None = None,
        *,
        disk: int | None = None,
        expected: int | None = None,
        otherwise: str = "pass a larger memory or disk",
    ) -> None:
        super().__init__()
        self.budget, self.disk, self.expected = budget, disk, expected
        self.bytes_in_memory = self.bytes_on_disk = 0
        self._folder, self._otherwise = folder, otherwise
        self._spill: IO[bytes] | None = None
        self._last: HostCopy | None = None
        self._batches: list[dict[str, Tensor | _OnDisk]] = []

    def __enter__(self) -> "FeatureStore":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._batches.clear()
        self._last = None
        if self._spill is not None:
            self._spill.close()

    def append(
        self, features: Mapping[str, Shaped[Tensor, "n _d"]], labels: Int[Tensor, " n"]
    ) -> None:
        """Store one batch on the CPU, in the dtype of the features.

        A batch on an accelerator is copied while the next one is computed, and stored after that.

        Raises:
            InputError: If the batches, or those that are expected, take more than memory and disk
                may hold.
            OSError: If the disk is full.
        """
        copy = HostCopy({**features, _LABELS: labels})
        with self.lock:
            self._store_last()
            self._last = copy
            if copy.complete:
                self._store_last()

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Int[Tensor, " n"]]]:
        """Yield the batches in the order of `append`; the store can be iterated repeatedly."""
        with self.lock:
            self._store_last()
        for batch in self._batches:
            features = {
                name: rows.load() if isinstance(rows, _OnDisk) else rows
                for name, rows in batch.items()
            }
            labels = features.pop(_LABELS)
            yield features, labels

    def _store_last(self) -> None:
        """Store the batch whose copy began last, in memory or on disk."""
        if self._last is None:
            return
        batch, self._last = self._last.wait(), None
        cost = sum(rows.nbytes for rows in batch.values())
        self._check_size(cost)
        if self.bytes_in_memory + cost <= self.budget:
            self.bytes_in_memory += cost
            self._batches.append(dict(batch))
        else:
            self.bytes_on_disk += cost
            self._batches.append({name: self._write(rows) for name, rows in batch.items()})

    def _check_size(self, cost: int) -> None:
        """Refuse a batch that does not fit, or that shows that the expected batches will not."""
        needed, batches = self.bytes_in_memory + self.bytes_on_disk + cost, len(self._batches) + 1
        size = f"{needed:,} bytes after {batches:,} batches"
        if self.expected is not None and self.expected > batches:
            # The last batch may be smaller than the others, so it is not counted.
            projected = needed * (self.expected - 1) // batches
            if projected > needed:
                needed = projected
                size = f"about {needed:,} bytes for {self.expected:,} batches"
        if needed <= self.budget:
            return
        # Half of what is free when the first batch goes there: other programs write to disks too.
        if self.disk is None:
            folder = self._folder or tempfile.gettempdir()
            self.disk = self.bytes_on_disk + shutil.disk_usage(folder).free // 2
        if needed > self.budget + self.disk:
            limits = f"{self.budget:,} bytes of memory and {self.disk:,} bytes of disk"
            raise InputError(
                expected=f"features for the second pass within {limits}",
                found=size,
                fix=self._otherwise,
            )

    def _write(self, rows: Shaped[Tensor, "n ..."]) -> "Tensor | _OnDisk":
        if not rows.nbytes:
            return rows  # mmap refuses an empty range
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115
        start = self._spill.seek(-(-self._spill.tell() // _ALIGNMENT) * _ALIGNMENT)
        left = rows.contiguous().view(torch.uint8).flatten().numpy().data
        while left:  # not NumPy's tofile, which does not report that the disk is full
            left = left[self._spill.write(left) :]
        return _OnDisk(self._spill, start, tuple(rows.shape), rows.dtype)


class _OnDisk:
    """Position of one layer's batch in the file on disk."""

    def __init__(
        self, file: IO[bytes], start: int, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        self.file, self.start, self.shape, self.dtype = file, start, shape, dtype

    def load(self) -> Tensor:
        """Map the rows into memory; pages are read as they are used, and writes stay private."""
        count = math.prod(self.shape)
        offset = self.start % mmap.ALLOCATIONGRANULARITY  # mmap needs a multiple of it
        length, start = offset + count * self.dtype.itemsize, self.start - offset
        mapped = mmap.mmap(self.file.fileno(), length, access=mmap.ACCESS_COPY, offset=start)
        rows = torch.frombuffer(mapped, dtype=self.dtype, count=count, offset=offset)
        return rows.view(self.shape)
