r"""Per-class second moments of unit vectors, and products with the joint matrix of MIR.

With $\hat h_i$ the unit feature of sample $i$ and $\ell_c$ the rows of a factor of the heads' Gram
matrix, $G(Z_1)\odot G(Z_2)$ is the Gram matrix of the vectors $\ell_{y_i}\otimes\hat h_i$. Its
non-zero spectrum is that of $J=\sum_c\ell_c\ell_c^\top\otimes S_c$, an $rd\times rd$ matrix whose
size does not depend on the number of samples.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ncscope.devices import bytes_to_keep, chunk_bytes, is_asynchronous, move_to
from ncscope.math.powers import rescale_rows
from ncscope.stats.locking import ThreadSafe

_CHUNK_BYTES = 32 * 2**20
_BLOCK_BYTES = 256 * 2**20
_ROWS_IN_MESSAGES = 10
_ROUNDING = 32.0

Batches: TypeAlias = Iterable[tuple[Shaped[Tensor, "_b _d"], Int[Tensor, " _b"]]]


class DirectionMoments(ThreadSafe):
    r"""$S_c=\sum_{y_i=c}\hat h_i\hat h_i^\top$ of a stream; additive over batches.

    State: ``counts`` (k), ``second`` (k x d x d). Several threads may call ``update``; the updates
    run one after another. Each batch is added in place, because a k x d x d tensor of the batch
    would double the memory.

    Args:
        num_classes: Number of classes; labels are 0..k-1.
        dim: Feature dimension d.
        centre: Vector subtracted from every feature first; None for raw features.
        device: Device to accumulate on, in float64.

    Attributes:
        zero_rows: The first rows, counted over the stream, that have no direction.
        zeros: Number of these rows.

    Example:
        >>> moments = DirectionMoments(num_classes=1, dim=2)
        >>> moments.update(torch.tensor([[3.0, 4.0]]), torch.tensor([0]))
        >>> moments.second[0].tolist()
        [[0.36..., 0.48...], [0.48..., 0.64...]]
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        centre: Float[Tensor, " d"] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.centre = centre
        self.counts = torch.zeros(num_classes, dtype=torch.int64, device=device)
        self.second = torch.zeros(num_classes, dim, dim, dtype=torch.float64, device=device)
        self.zero_rows: list[int] = []
        self.zeros = 0
        self._samples = 0
        self._centres = {} if centre is None else {centre.device: centre}

    def update(self, features: Shaped[Tensor, "n d"], labels: Int[Tensor, " n"]) -> None:
        """Take in a batch. Cost: $2nd^2$ operations in float64."""
        with self.lock:
            labels = labels.cpu()  # one wait, if any; sorted there, they cost none
            for by_class in _split_by_class(features, labels, self.centre, self.second.device):
                for c, members in by_class:
                    self.second[c].addmm_(members.mT, members)
            self.counts += move_to(labels.bincount(minlength=len(self.counts)), self.counts.device)
            device = features.device
            if self.centre is not None and device not in self._centres:
                self._centres[device] = self.centre.to(device)  # copied there once, not every batch
            rows = zero_rows(features, self._centres.get(device))
            self.zeros += len(rows)
            first = [self._samples + row for row in rows]
            self.zero_rows = (self.zero_rows + first)[:_ROWS_IN_MESSAGES]
            self._samples += len(features)

    def merge(self, other: "DirectionMoments") -> "DirectionMoments":
        """Add the samples of another accumulator, and return these moments.

        The rows of the other are numbered after the rows of this one.
        """
        # Copied under the other's lock alone, so that two merges cannot wait for each other.
        other = copy.copy(other)
        with self.lock:
            theirs = [self._samples + row for row in other.zero_rows]
            self._samples += other._samples
            self.counts += other.counts.to(self.counts.device)
            self.second += other.second.to(self.second.device)
            self.zero_rows = (self.zero_rows + theirs)[:_ROWS_IN_MESSAGES]
            self.zeros += other.zeros
        return self


def unit_rows(
    features: Shaped[Tensor, "n d"], centre: Float[Tensor, " d"] | None = None
) -> Float[Tensor, "n d"]:
    """Subtract the centre and scale rows to unit length in float64; a zero row stays zero."""
    rows = features.to(torch.float64)
    if centre is not None:
        rows = rows - centre.to(rows)
        apart = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        rows = torch.where(apart > _rounding_length(centre).to(rows.device), rows, 0.0)
    rows, length = rescale_rows(rows)
    return rows / torch.where(length > 0, length, 1.0)[:, None]


def zero_rows(
    features: Shaped[Tensor, "n d"], centre: Float[Tensor, " d"] | None = None
) -> list[int]:
    """Return the indices of the rows without a direction."""
    if centre is None:
        zero = (features == 0).all(1)
    else:
        apart = features.to(torch.float64) - centre.to(features.device)
        zero = torch.linalg.vector_norm(apart, dim=1) <= _rounding_length(centre)
    indices: list[int] = torch.nonzero(zero).squeeze(1).tolist()
    return indices


def _rounding_length(centre: Float[Tensor, " d"]) -> Float[Tensor, ""]:
    """Return the length up to which the difference of a row and the centre is rounding error.

    A row equal to the mean would otherwise get a direction made of rounding.
    """
    return _ROUNDING * torch.finfo(torch.float64).eps * torch.linalg.vector_norm(centre)


class MomentProduct:
    r"""Product $V\mapsto\sum_cS_cV\ell_c\ell_c^\top$, computed from the second moments.

    Cost: $2kd^2$ operations for each vector, and one read of the $kd^2$ numbers for each block of
    vectors.

    Args:
        second: $S_c$, k x d x d.
        heads: $\ell_c$, k x r.
    """

    def __init__(self, second: Float[Tensor, "k d d"], heads: Float[Tensor, "k r"]) -> None:
        self.second, self.heads = second, heads

    def __call__(self, block: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        """Multiply a block of vectors."""
        return _multiply_by_class(block, self.heads, self.second.shape[1], self.second.matmul)

    def dense(self) -> Float[Tensor, "m m"]:
        """Return the whole matrix, dr x dr."""
        (k, d, _), r = self.second.shape, self.heads.shape[1]
        outer = self.heads[:, :, None] * self.heads[:, None, :]
        joint = outer.reshape(k, r * r).mT @ self.second.reshape(k, d * d)
        return joint.reshape(r, r, d, d).permute(0, 2, 1, 3).reshape(r * d, r * d)


class RowProduct:
    r"""Same product as `MomentProduct`, from stored features where $kd^2$ numbers are too many.

    Cost: $4nd$ operations for each vector, and one read of the features for each block of vectors.
    An accelerator keeps the features if they take at most half of its free memory; otherwise they
    are uploaded again for each block.

    Args:
        batches: Features and labels 0..k-1; every product iterates over them once.
        heads: $\ell_c$, k x r.
        dim: Feature dimension d.
        centre: Vector subtracted from every feature first; None for raw features.
    """

    def __init__(
        self,
        batches: Batches,
        heads: Float[Tensor, "k r"],
        dim: int,
        centre: Float[Tensor, " d"] | None,
    ) -> None:
        self.batches, self.heads, self.dim, self.centre = batches, heads, dim, centre
        self._cache: list[list[tuple[int, Tensor]]] | None = None
        self._may_cache = is_asynchronous(heads.device)  # on the CPU, the features are there

    def __call__(self, block: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        """Multiply a block of vectors."""
        return _multiply_by_class(block, self.heads, self.dim, self._multiply_within)

    def _multiply_within(self, columns: Float[Tensor, "k d b"]) -> Float[Tensor, "k d b"]:
        image = torch.zeros_like(columns)
        for by_class in self._unit_rows(columns.device):
            for c, members in by_class:
                image[c] += members.mT @ (members @ columns[c])
        return image

    def _unit_rows(self, device: torch.device) -> Iterator[list[tuple[int, Tensor]]]:
        """Yield unit rows by class, and keep them on the device if all of them fit there."""
        if self._cache is not None:
            yield from self._cache
            return
        cache: list[list[tuple[int, Tensor]]] = []
        left = bytes_to_keep(device) if self._may_cache else 0
        for features, labels in self.batches:
            for by_class in _split_by_class(features, labels.cpu(), self.centre, device):
                left -= sum(members.nbytes for _, members in by_class)
                if left >= 0:
                    cache.append(by_class)
                else:  # a part would not save the next upload, and takes memory from the products
                    cache.clear()
                yield by_class
        self._may_cache = left >= 0
        self._cache = cache if left >= 0 and cache else None


def _multiply_by_class(
    block: Float[Tensor, "m b"],
    heads: Float[Tensor, "k r"],
    dim: int,
    within: Callable[[Float[Tensor, "k d b"]], Float[Tensor, "k d b"]],
) -> Float[Tensor, "m b"]:
    r"""Sum $f_c(V\ell_c)\,\ell_c^\top$ over the classes, where $f_c$ is the map within a class.

    The r index of a vector varies slowest, so that both products are plain matrix products.
    """
    (k, r), width = heads.shape, block.shape[1]
    # The columns are taken apart by class, which makes them K/r times as large.
    at_once = max(1, _BLOCK_BYTES // (8 * k * dim))
    if width > at_once:
        parts = block.split(at_once, dim=1)
        return torch.cat([_multiply_by_class(part, heads, dim, within) for part in parts], 1)
    by_class = (heads @ block.reshape(r, dim * width)).reshape(k, dim, width)
    return (heads.mT @ within(by_class).reshape(k, dim * width)).reshape(r * dim, width)


def _split_by_class(
    features: Shaped[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    centre: Float[Tensor, " d"] | None,
    device: torch.device,
) -> Iterator[list[tuple[int, Float[Tensor, "_p d"]]]]:
    """Yield unit rows by class, in chunks of about 32 MB (256 MB on an accelerator).

    Args:
        features: Features on any device.
        labels: Class of each row, on the CPU.
        centre: Vector subtracted from every feature first; None for raw features.
        device: Device of the unit rows.
    """
    step = max(1, max(_CHUNK_BYTES, chunk_bytes(device)) // (8 * features.shape[1]))
    for rows, y in zip(features.split(step), labels.split(step), strict=True):
        order = torch.argsort(y)
        classes, counts = torch.unique_consecutive(y[order], return_counts=True)
        unit = unit_rows(move_to(rows[move_to(order, rows.device)], device), centre)
        yield list(zip(classes.tolist(), unit.split(counts.tolist()), strict=True))
