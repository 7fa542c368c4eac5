"""Sums over pairs of rows in blocks, without a k x k matrix for k classes."""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

_BLOCK_BYTES = 64 * 2**20
_TILE_BYTES = 4 * 2**20  # in the cache, where a term reads and writes a tile several times


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
    k, side = len(vectors), max(1, math.isqrt(min(_TILE_BYTES, _BLOCK_BYTES) // 8))
    starts, sums = range(0, k, side), []
    tiles = ((i, j) for i in starts for j in starts if j >= i)
    for rows, cols in ((slice(i, i + side), slice(j, j + side)) for i, j in tiles):
        values = term(vectors[rows] @ vectors[cols].mT, rows, cols)
        if rows == cols:  # such a tile contains pairs twice, and i = j
            values = values.triu(1)
        sums.append(values.sum((-2, -1)))
    return torch.stack(sums).sum(0)
