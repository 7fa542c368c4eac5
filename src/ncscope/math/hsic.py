r"""Unbiased HSIC from the sums of two kernel matrices, and kernel alignment.

The estimator of Song et al. (2012, equation 5), where $\tilde K$ and $\tilde L$ are the kernel
matrices with their diagonals set to zero:

$$\mathrm{HSIC}_u=\frac1{n(n-3)}\Bigl[\operatorname{tr}\tilde K\tilde L
+\frac{\mathbf 1^\top\tilde K\mathbf 1\;\mathbf 1^\top\tilde L\mathbf 1}{(n-1)(n-2)}
-\frac2{n-2}\mathbf 1^\top\tilde K\tilde L\mathbf 1\Bigr].$$

It is an inner product of U-centred matrices (Szekely and Rizzo 2014), so alignment lies in
$[-1,1]$. U-centring removes $a_i+a_j$ from $K_{ij}$, and a common shift of the rows adds just that
to a linear kernel: the estimate does not change.
"""

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_SAMPLES = 4
"""Fewest samples for which the unbiased HSIC is defined."""

_ROUNDING = 64 * torch.finfo(torch.float64).eps


def estimate_hsic(
    products: Float[Tensor, "..."],
    totals: Float[Tensor, "..."],
    rows: Float[Tensor, "..."],
    count: int,
) -> Float[Tensor, "..."]:
    r"""Estimate HSIC without bias, from three sums.

    Args:
        products: $\operatorname{tr}\tilde K\tilde L=\sum_{i\ne j}K_{ij}L_{ij}$.
        totals: $\mathbf 1^\top\tilde K\mathbf 1\;\mathbf 1^\top\tilde L\mathbf 1$.
        rows: $\mathbf 1^\top\tilde K\tilde L\mathbf 1$, the product of the row sums.
        count: Number of samples n, at least 4.

    Returns:
        The estimate; it can be negative, because its mean is zero for independent features.

    Example:
        >>> rows = torch.tensor([-3.0, -1.0, 1.0, 3.0]).double()
        >>> kernel = rows.outer(rows).fill_diagonal_(0)
        >>> sums = kernel.sum(1)
        >>> estimate_hsic(kernel.square().sum(), kernel.sum() ** 2, sums @ sums, 4).item()
        34.66666666666667
    """
    return (products + totals / ((count - 1) * (count - 2)) - 2 * rows / (count - 2)) / (
        count * (count - 3)
    )


def rounding_of_hsic(
    products: Float[Tensor, "..."],
    totals: Float[Tensor, "..."],
    rows: Float[Tensor, "..."],
    count: int,
) -> Float[Tensor, "..."]:
    """Bound the rounding error of an HSIC, below which it cannot be told from zero.

    Args:
        products: First sum, without cancellation: of the absolute terms that were added.
        totals: Second sum of `estimate_hsic`.
        rows: Third sum of `estimate_hsic`.
        count: Number of samples n.
    """
    return _ROUNDING * estimate_hsic(products, totals.abs(), -rows.abs(), count)


def kernel_alignment(
    between: Float[Tensor, "..."], first: Float[Tensor, "..."], second: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Divide HSIC by the geometric mean of both self-similarities; NaN if one is not positive.

    Args:
        between: HSIC of the first with the second features.
        first: HSIC of the first features with themselves.
        second: HSIC of the second features with themselves.
    """
    # Two roots: the product of the HSICs of tiny or huge features would leave the range.
    defined = (first > 0) & (second > 0)
    return torch.where(defined, between / first.sqrt() / second.sqrt(), torch.nan)
