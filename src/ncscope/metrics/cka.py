"""Centred kernel alignment of two sets of features, from the smaller of products and kernels."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.math.hsic import estimate_hsic, kernel_alignment, rounding_of_hsic
from ncscope.math.powers import COPY_LIMIT, exponent_of, times_power
from ncscope.stats.cka_moments import CkaMoments


def linear_cka(first: Shaped[Tensor, "n d1"], second: Shaped[Tensor, "n d2"]) -> Float[Tensor, ""]:
    r"""Compute CKA with linear kernels and the unbiased HSIC, in $[-1,1]$.

    Args:
        first: Finite features, n at least 4.
        second: Finite features of the same samples.

    Returns:
        CKA, NaN if a set is constant or its HSIC with itself is zero. Cost in float64: the lesser
        of $2n(d_1^2+d_1d_2+d_2^2)$ operations for sums over samples, and $2n^2(d_1+d_2)$ for
        kernels, which then take $2n^2$ numbers.

    Example:
        >>> rows = torch.tensor([[0.0, 1.0], [2.0, 0.0], [5.0, 1.0], [3.0, 4.0]])
        >>> round(linear_cka(rows, rows @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).item(), 12)
        1.0
    """
    # A power of two is exact, and CKA does not change. The range of fourth powers is narrow.
    first, second = (_scale_into_range(rows) for rows in (first, second))
    n, d1, d2 = len(first), first.shape[1], second.shape[1]
    if n * (d1 + d2) < d1 * d1 + d1 * d2 + d2 * d2:
        return _compare_kernels(first, second)
    moments = CkaMoments(device=first.device)
    moments.update(first, second.to(first.device))
    return moments.cka()[0, 1]


def _scale_into_range(rows: Shaped[Tensor, "n d"]) -> Shaped[Tensor, "n d"]:
    exponent = exponent_of(rows, COPY_LIMIT)
    return times_power(rows.to(torch.float64), -exponent) if exponent else rows


def _compare_kernels(
    first: Shaped[Tensor, "n d1"], second: Shaped[Tensor, "n d2"]
) -> Float[Tensor, ""]:
    """Compute CKA from both n x n kernel matrices."""
    n = len(first)
    kernels = [_compute_kernel(rows) for rows in (first, second.to(first.device))]
    sums = [kernel.sum(1) for kernel in kernels]
    values = {}
    for i, j in ((0, 0), (0, 1), (1, 1)):
        products = (kernels[i] * kernels[j]).sum()
        parts = products, sums[i].sum() * sums[j].sum(), sums[i] @ sums[j]
        value = estimate_hsic(*parts, n)
        if i == j:
            value = torch.where(value > rounding_of_hsic(*parts, n), value, 0.0)
        values[i, j] = value
    return kernel_alignment(values[0, 1], values[0, 0], values[1, 1])


def _compute_kernel(rows: Shaped[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return the products of different rows about their mean, and zeros on the diagonal."""
    wide = rows.to(torch.float64)
    centred = wide - wide.mean(0)
    return (centred @ centred.mT).fill_diagonal_(0)
