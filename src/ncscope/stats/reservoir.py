"""A random sample of a stream of features, of a fixed number of rows, for the second pass."""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from ncscope.memory import check_memory
from ncscope.stats.locking import ThreadSafe

_ROWS = 4096
"""Rows of a batch that the reservoir yields."""

_LABELS = "."
"""Name of the labels among the rows; no layer has it."""


class Reservoir(ThreadSafe):
    """Random sample, without replacement, of the rows that are appended.

    Every row gets a random key, and the rows with the smallest keys stay: each set of ``size``
    rows is equally likely, whatever the order and the length of the stream. Several threads may
    append.

    Args:
        size: Number of rows to keep.
        seed: Seed of the keys.

    Attributes:
        seen: Number of rows appended.

    Example:
        >>> sample = Reservoir(size=2)
        >>> for start in (0, 3):
        ...     rows = torch.arange(start, start + 3)
        ...     sample.append({"last": rows[:, None]}, rows)
        >>> [(rows["last"].shape, len(labels)) for rows, labels in sample]
        [(torch.Size([2, 1]), 2)]
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        super().__init__()
        self.size, self.seen = size, 0
        self._generator = torch.Generator().manual_seed(seed)
        self._keys = torch.zeros(0, dtype=torch.float64, device="cpu")
        self._rows: dict[str, Tensor] = {}

    @property
    def num_rows(self) -> int:
        """Number of rows in the sample."""
        return len(self._keys)

    def append(
        self, features: Mapping[str, Shaped[Tensor, "n _d"]], labels: Int[Tensor, " n"]
    ) -> None:
        """Show one batch to the reservoir, which copies the rows that it draws to the CPU.

        Raises:
            InputError: If the sample does not fit into memory.
        """
        batch = {**features, _LABELS: labels}
        with self.lock:
            if not self._rows:
                # All of it at once: memory that grows with the rows would run out late in the pass.
                needed = sum(self.size * rows[:1].nbytes for rows in batch.values() if len(rows))
                fix = "pass a smaller second_pass"
                check_memory(needed, f"a sample of {self.size:,} rows of every layer", fix)
                self._rows = {
                    name: torch.empty(self.size, *rows.shape[1:], dtype=rows.dtype, device="cpu")
                    for name, rows in batch.items()
                }
            count, before = len(labels), self.num_rows
            self.seen += count
            # In float64, where keys are hardly ever equal: among equals, topk does not draw lots.
            fresh = torch.rand(count, dtype=torch.float64, generator=self._generator, device="cpu")
            keys = torch.cat([self._keys, fresh])
            if len(keys) <= self.size:
                self._write(slice(before, before + count), batch, slice(None))
                self._keys = keys
                return
            smallest = keys.topk(self.size, largest=False).indices
            stays = torch.zeros(self.size, dtype=torch.bool, device="cpu")
            stays[smallest[smallest < before]] = True
            # As many places are free as rows are new, those that were never filled among them.
            free, new = torch.nonzero(~stays).squeeze(1), smallest[smallest >= before]
            self._write(free, batch, new - before)
            self._keys = torch.cat([self._keys, keys.new_empty(self.size - before)])
            self._keys[free] = keys[new]

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Int[Tensor, " n"]]]:
        """Yield the sample in batches; the reservoir can be iterated repeatedly."""
        for start in range(0, self.num_rows, _ROWS):
            part = slice(start, min(start + _ROWS, self.num_rows))
            rows = {name: values[part] for name, values in self._rows.items()}
            yield rows, rows.pop(_LABELS)

    def _write(
        self, places: Tensor | slice, batch: Mapping[str, Tensor], rows: Tensor | slice
    ) -> None:
        for name, values in batch.items():
            index = rows if isinstance(rows, slice) else rows.to(values.device)
            self._rows[name][places] = values[index].cpu()
