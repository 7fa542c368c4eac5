"""Sums over pairs of rows and nearest rows in blocks, without a k x k matrix for k classes."""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.math.symmetric import find_gram

_BLOCK_BYTES = 64 * 2**20
_TILE_BYTES = 4 * 2**20  # in the cache, where a term reads and writes a tile several times
_CLOSE = 1e-4  # share of the squared lengths below which a squared distance has lost digits
_DIRECT_ROWS = 4096


def row_blocks(k: int, width: int) -> Iterator[slice]:
    """Split 0..k-1 into slices such that a block of float64 rows takes at most 64 MB.

    Args:
        k: Number of rows.
        width: Length of a row.
    """
    rows = max(1, _BLOCK_BYTES // (8 * max(width, 1)))
    return (slice(start, min(start + rows, k)) for start in range(0, k, rows))


def sum_over_pairs(
    vectors: Float[Tensor, "k d"],
    term: Callable[[Float[Tensor, "m n"], slice, slice], Float[Tensor, "... m n"]],
) -> Float[Tensor, "..."]:
    r"""Compute $\sum_{i<j}f(\langle v_i,v_j\rangle,i,j)$.

    Args:
        vectors: One vector a row.
        term: Function of a block of the Gram matrix and the slices of its rows and columns. It
            returns the block of summands, or a stack of several blocks, and may overwrite the Gram
            matrix.

    Returns:
        The sum (or the stack of sums). Cost: $k^2d$ operations, in tiles of 4 MB.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0], [3.0]]).double()
        >>> sum_over_pairs(rows, lambda gram, i, j: gram).item()  # 2 + 3 + 6
        11.0
    """
    sums: Float[Tensor, "tiles ..."] | None = None
    tiles = list(_tiles(len(vectors)))
    gram = find_gram(vectors)
    for index, (rows, cols) in enumerate(tiles):
        # A clone, because the term overwrites its tile, and other metrics read the same matrix.
        tile = vectors[rows] @ vectors[cols].mT if gram is None else gram[rows, cols].clone()
        values = term(tile, rows, cols)
        if rows == cols:  # such a tile contains pairs twice, and i = j
            values.triu_(1)
        if sums is None:
            # In one tensor: a small tensor of each tile's own would be cut from the freed memory of
            # a tile, which could then hold no other tile. The process would grow by a tile for
            # each tile, past 20 GB for 100,000 classes.
            sums = values.new_empty(len(tiles), *values.shape[:-2])
        torch.sum(values, (-2, -1), out=sums[index])
        del values  # not held beside the next tile's
    assert sums is not None
    return sums.sum(0)


def recompute_close_(
    squared: Float[Tensor, "m n"],
    below: Float[Tensor, "m n"] | float,
    first: Float[Tensor, "m d"],
    second: Float[Tensor, "n d"],
) -> None:
    """Compute small squared distances again, in place, from the differences of the vectors.

    From a Gram matrix, the distance of two close vectors would cancel.

    Args:
        squared: Squared distances from a Gram matrix.
        below: Limit below which a distance is computed again.
        first: Vectors of the rows.
        second: Vectors of the columns.
    """
    near = torch.nonzero(squared < below)
    for i, j in (pair.unbind(1) for pair in near.split(_DIRECT_ROWS)):
        squared[i, j] = (first[i] - second[j]).square().sum(1)


def nearest_rows(vectors: Float[Tensor, "k d"]) -> tuple[Int[Tensor, " k"], Float[Tensor, " k"]]:
    """Return the nearest other row of each row, and its distance.

    Of rows that are equally near up to rounding, any one is returned. The distance is computed from
    the difference of the two rows, so that close rows lose no digits.

    Args:
        vectors: Two or more rows.

    Cost: $k^2d$ operations, in tiles of 4 MB; $kd$ more for each row that is far closer to another
    than it is long.

    Example:
        >>> nearest, distance = nearest_rows(torch.tensor([[0.0], [1.0], [5.0]]).double())
        >>> nearest.tolist(), distance.tolist()
        ([1, 0, 1], [1.0, 1.0, 4.0])
    """
    squares = torch.linalg.vector_norm(vectors, dim=1).square()
    best, nearest = torch.full_like(squares, math.inf), torch.zeros_like(squares, dtype=torch.int64)
    for rows, cols in _tiles(len(vectors)):
        distance = (vectors[rows] @ vectors[cols].mT).mul_(-2).add_(squares[rows, None])
        distance.add_(squares[cols])
        if rows == cols:
            distance.fill_diagonal_(math.inf)
        else:
            _keep_least(distance.mT, best[cols], nearest[cols], rows.start)
        _keep_least(distance, best[rows], nearest[rows], cols.start)
    close = best < _CLOSE * (squares + squares[nearest])
    at_once = max(1, _BLOCK_BYTES // (8 * len(vectors)))
    for rows in torch.nonzero(close).squeeze(1).split(at_once):
        nearest[rows] = _compare_close(vectors, squares, rows, best[rows])
    blocks = list(row_blocks(*vectors.shape))
    apart = [torch.linalg.vector_norm(vectors[b] - vectors[nearest[b]], dim=1) for b in blocks]
    return nearest, torch.cat(apart)


def _tiles(k: int) -> Iterator[tuple[slice, slice]]:
    """Yield the tiles on and above the diagonal of a k x k matrix: slices of rows and columns."""
    side = max(1, math.isqrt(min(_TILE_BYTES, _BLOCK_BYTES) // 8))
    starts = range(0, k, side)
    tiles = ((i, j) for i in starts for j in starts if j >= i)
    return ((slice(i, i + side), slice(j, j + side)) for i, j in tiles)


def _keep_least(
    values: Float[Tensor, "m n"], best: Float[Tensor, " m"], at: Int[Tensor, " m"], first: int
) -> None:
    """Update, in place, the least value of each row and its column.

    Args:
        values: Tile of a matrix.
        best: Least value of each row so far.
        at: Column of each least value.
        first: Column at which the tile begins.
    """
    least, column = values.min(1)
    better = least < best
    best.copy_(torch.where(better, least, best))
    at.copy_(torch.where(better, column + first, at))


def _compare_close(
    vectors: Float[Tensor, "k d"],
    squares: Float[Tensor, " k"],
    rows: Int[Tensor, " m"],
    best: Float[Tensor, " m"],
) -> Int[Tensor, " m"]:
    """Find the nearest other row of rows whose distances from the Gram matrix cancel.

    All rows that rounding could have hidden behind the least distance are compared by differences.

    Args:
        vectors: All rows.
        squares: Squared lengths of all rows.
        rows: Indices of the rows in question.
        best: Least squared distance of each, from the Gram matrix.
    """
    # A squared distance from the Gram matrix is wrong by up to the rounding of the squared lengths,
    # which exceeds the distance itself for rows that are long and close.
    size = squares[rows, None] + squares
    distance = (vectors[rows] @ vectors.mT).mul_(-2).add_(size)
    error = size.mul_(2 * (vectors.shape[1] + 8) * torch.finfo(vectors.dtype).eps)
    possible = distance <= error.add_(best[:, None])
    possible[torch.arange(len(rows), device=rows.device), rows] = False
    pairs = torch.nonzero(possible)
    apart = torch.cat(
        [
            torch.linalg.vector_norm(vectors[rows[i]] - vectors[j], dim=1)
            for i, j in (part.unbind(1) for part in pairs.split(_DIRECT_ROWS))
        ]
    )
    which, others = pairs.unbind(1)
    least = apart.new_full((len(rows),), math.inf)
    least.scatter_reduce_(0, which, apart, "amin")
    # Of several equally near rows the first wins: the order of scattering varies on an accelerator.
    shortest = apart == least[which]
    nearest = torch.full_like(rows, len(vectors))
    return nearest.scatter_reduce_(0, which[shortest], others[shortest], "amin")
