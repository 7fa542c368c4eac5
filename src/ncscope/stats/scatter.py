"""Scatter of a stream: the rows themselves while they are few, then a d x d matrix."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.devices import float32_is_reduced
from ncscope.math.symmetric import Gram, add_gram_, add_gram_in_blocks_
from ncscope.stats.options import Precision

_LEAST_DIM = 256  # problems of smaller dimension take no time worth saving
_SHARE = 4


class ScatterSum:
    r"""Sum of $X^\top X$ over a stream of rows $X$.

    Up to d/4 rows are kept as they are. Fewer samples than that need no d x d matrix at any time,
    and the metrics solve problems of their number. Further rows are multiplied d/4 at a time, so
    that many small batches do not each read and write the whole matrix.

    Args:
        dim: Dimension d.
        device: Device of the rows, which are float64.
        precision: Precision of the products, as for `ClassMoments`. Rows that are kept are exact.
    """

    def __init__(self, dim: int, device: torch.device, precision: Precision) -> None:
        self.dim, self.device, self.precision = dim, device, precision
        self._most_rows = dim // _SHARE if dim >= _LEAST_DIM else 0
        self._rows: list[Float[Tensor, "_n d"]] = []
        self._total: Float[Tensor, "d d"] | None = None

    @property
    def few(self) -> bool:
        """True if there are so few rows that no matrix has been formed."""
        return self._total is None

    def add(self, rows: Float[Tensor, "n d"]) -> None:
        """Add the Gram matrix of rows, which may be overwritten afterwards."""
        if not len(rows):
            return
        if sum(map(len, self._rows)) + len(rows) <= self._most_rows:
            self._rows.append(rows.clone())  # the caller's buffer is used again
        else:
            self._multiply(self.total, rows)

    def take_over(self, other: "ScatterSum") -> None:
        """Add another scatter, on any device, whose memory may be taken over."""
        if other._total is not None and self.few and not self._rows:
            # A first batch: the sum with zeros would read and write the d x d matrix twice more.
            self._total = other._total.to(self.device)
        elif other._total is not None:
            total = self.total
            total += other._total.to(self.device)
        for rows in other._rows:
            self.add(rows.to(self.device))

    def gram(self) -> Gram:
        """Return the scatter as its rows, if they are few."""
        return Gram(torch.cat([self._zeros(0), *self._rows]))

    @property
    def total(self) -> Float[Tensor, "d d"]:
        """The scatter as a matrix, not copied; only its upper blocks count: see `mirror_upper`."""
        if self._total is None:
            self._total = self._zeros(self.dim)
        if self._rows:
            self._multiply(self._total, torch.cat(self._rows))
            self._rows = []
        return self._total

    @total.setter
    def total(self, matrix: Float[Tensor, "d d"]) -> None:
        self._total, self._rows = matrix, []

    def _multiply(self, total: Float[Tensor, "d d"], rows: Float[Tensor, "n d"]) -> None:
        blocked = self.precision == "blocked" and not float32_is_reduced(self.device.type)
        (add_gram_in_blocks_ if blocked else add_gram_)(total, rows)

    def _zeros(self, rows: int) -> Float[Tensor, "n d"]:
        return torch.zeros(rows, self.dim, dtype=torch.float64, device=self.device)
