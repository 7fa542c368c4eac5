"""Chunks of a batch that fit the cache, and the rows' arithmetic in them."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.devices import chunk_bytes
from ncscope.math.powers import STREAM_LIMIT, goes_beyond, rescale_rows

_PANEL_ROWS = 512  # of a product that takes far longer than to read and write its result


def chunk_rows(dim: int, device: torch.device) -> int:
    """Return the number of float64 rows in a chunk that suits the device.

    Args:
        dim: Length of a row.
        device: Device of the arithmetic.
    """
    return max(16, chunk_bytes(device) // (8 * dim))


class Workspace:
    """Buffers for one chunk of rows, used again for every chunk.

    New memory for every intermediate result would cost more in page faults than the arithmetic.

    Args:
        samples: Number of rows of the batch.
        dim: Length of a row.
        device: Device of the arithmetic, which is in float64.
    """

    def __init__(self, samples: int, dim: int, device: torch.device) -> None:
        rows = max(1, min(samples, chunk_rows(dim, device)))
        self._raw, self._other = (
            torch.empty(rows, dim, dtype=torch.float64, device=device) for _ in range(2)
        )
        self._wide = False

    def iterate_chunks(
        self, features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"]
    ) -> Iterator[tuple[Float[Tensor, "m d"], Int[Tensor, " m"]]]:
        """Yield rows and labels by chunks; each chunk overwrites the one before."""
        rows = len(self._raw)
        self._wide = goes_beyond(features, STREAM_LIMIT)
        for chunk, y in zip(features.split(rows), labels.split(rows), strict=True):
            yield self._raw[: len(chunk)].copy_(chunk), y

    def panel(self, samples: int) -> Float[Tensor, "m d"]:
        """Return memory for a number of whole chunks, at least 512 rows if there are as many."""
        chunk, dim = self._raw.shape
        if chunk >= min(_PANEL_ROWS, samples):
            return self._other
        return self._raw.new_empty(min(-(-_PANEL_ROWS // chunk) * chunk, samples), dim)

    def subtract_pilot(
        self, rows: Float[Tensor, "m d"], pilot: Float[Tensor, " d"] | None
    ) -> Float[Tensor, "m d"]:
        """Subtract a pilot from each row; the result is valid until the workspace is used again."""
        return rows if pilot is None else torch.sub(rows, pilot, out=self._other[: len(rows)])

    def subtract_means(
        self,
        rows: Float[Tensor, "m d"],
        means: Float[Tensor, "p d"],
        index: Int[Tensor, " m"],
        pilot: Float[Tensor, " d"] | None = None,
        out: Float[Tensor, "m d"] | None = None,
    ) -> Float[Tensor, "m d"]:
        """Subtract from each row the mean of its class.

        Args:
            rows: Rows of a chunk.
            means: Class means less the pilot, one a row.
            index: Row of ``means`` for each row of the chunk.
            pilot: Vector that the means are given about; None for 0.
            out: Memory for the differences; None for the workspace's.

        Returns:
            The differences, in the workspace's memory valid until the workspace is used again.
        """
        other = self._other[: len(rows)] if out is None else out
        if pilot is not None:
            # The pilot first: the sum of pilot and mean would be rounded to the offset's digits.
            return torch.sub(rows, pilot, out=other).sub_(means.index_select(0, index))
        torch.index_select(means, 0, index, out=other)
        return torch.sub(rows, other, out=other)

    def normalise_rows(
        self, rows: Float[Tensor, "m d"]
    ) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"]]:
        """Scale rows to unit length, and return their lengths; a zero row stays zero.

        The rows may be overwritten. They are rescaled before they are squared if the features' type
        has numbers whose squares leave the range of float64; float32 has none.
        """
        if self._wide:
            rows, length = rescale_rows(rows)
        else:
            length = torch.linalg.vector_norm(rows, dim=1)
        return rows.div_(torch.where(length > 0, length, 1)[:, None]), length


def square_norms(rows: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """Return the squared length of each row, without a temporary as large as the rows."""
    return torch.linalg.vector_norm(rows, dim=1).square_()
