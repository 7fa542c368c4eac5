"""Sums over pairs of rows, in blocks: no k x k matrix, however many classes there are."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

_BLOCK_BYTES = 64 * 2**20


def row_blocks(k: int, width: int) -> Iterator[slice]:
    """Slices of 0..k-1 such that a block of that many float64 rows takes 64 MB at most."""
    rows = max(1, _BLOCK_BYTES // (8 * max(width, 1)))
    return (slice(start, min(start + rows, k)) for start in range(0, k, rows))


def sum_over_pairs(
    vectors: Float[Tensor, "k d"],
    term: Callable[[Float[Tensor, "m n"], slice, slice], Float[Tensor, "... m n"]],
) -> Float[Tensor, "..."]:
    r"""$\sum_{i<j}f(\langle v_i,v_j\rangle,i,j)$.

    Args:
        vectors: One vector a row.
        term: Given a block of the Gram matrix and the slices of its rows and columns, the block
            of summands (or a stack of several); it may be written over.

    Returns:
        The sum (or the stack of sums). Cost: $k^2d$ operations, 64 MB a block.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0], [3.0]]).double()
        >>> sum_over_pairs(rows, lambda gram, i, j: gram).item()  # 2 + 3 + 6
        11.0
    """
    k = len(vectors)
    sums = []
    for rows in row_blocks(k, k):
        cols = slice(rows.start, k)
        values = term(vectors[rows] @ vectors[cols].mT, rows, cols)
        corner = values[..., : rows.stop - rows.start]  # the pairs that come twice, or i = j
        corner.copy_(corner.triu(1))
        sums.append(values.sum((-2, -1)))
    return torch.stack(sums).sum(0)
