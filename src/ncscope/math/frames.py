"""Simplex equiangular tight frames and orthogonal frames, the limits of collapse."""

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError


def simplex_basis(k: int) -> Float[Tensor, "k k-1"]:
    """Return an orthonormal basis of the vectors in k dimensions that sum to zero (Helmert).

    Args:
        k: Number of classes, at least 2.

    Returns:
        Matrix with k - 1 orthonormal columns, each orthogonal to the vector of ones; float64.
    """
    length = torch.arange(1, k, dtype=torch.float64, device="cpu")
    basis = torch.ones(k, k - 1, dtype=torch.float64, device="cpu").triu()
    basis[torch.arange(1, k, device="cpu"), torch.arange(k - 1, device="cpu")] = -length
    return basis / torch.sqrt(length * (length + 1))


def simplex_etf(
    k: int, dim: int | None = None, generator: torch.Generator | None = None
) -> Float[Tensor, "k d"]:
    r"""Return unit vectors with pairwise cosine $-1/(K-1)$: the simplex equiangular tight frame.

    Source: Papyan, Han, Donoho 2020, definition 1.

    Args:
        k: Number of vectors, at least 2.
        dim: Dimension, at least k - 1 (the default).
        generator: Generator of a random rotation of the frame; None for no rotation.

    Returns:
        One vector a row; rows sum to zero; float64.

    Raises:
        InputError: If k < 2 or the dimension is too small.

    Example:
        >>> vectors = simplex_etf(4, dim=6)
        >>> gram = vectors @ vectors.T
        >>> torch.allclose(gram, (4 * torch.eye(4).double() - 1) / 3)
        True
    """
    dim = k - 1 if dim is None else dim
    _require(k >= 2 and dim >= k - 1, f"k >= 2 and dim >= k - 1 = {k - 1}", k, dim)
    scale = (k / (k - 1)) ** 0.5
    return scale * simplex_basis(k) @ _orthonormal_rows(k - 1, dim, generator)


def orthogonal_frame(
    k: int, dim: int | None = None, generator: torch.Generator | None = None
) -> Float[Tensor, "k d"]:
    """Return pairwise orthogonal unit vectors.

    Args:
        k: Number of vectors, at least 1.
        dim: Dimension, at least k (the default).
        generator: Generator of a random rotation of the frame; None for no rotation.

    Returns:
        One vector a row, float64.

    Raises:
        InputError: If the dimension is too small.

    Example:
        >>> frame = orthogonal_frame(3, dim=5, generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(frame @ frame.T, torch.eye(3).double())
        True
    """
    dim = k if dim is None else dim
    _require(k >= 1 and dim >= k, f"k >= 1 and dim >= k = {k}", k, dim)
    return _orthonormal_rows(k, dim, generator)


def _orthonormal_rows(
    count: int, dim: int, generator: torch.Generator | None
) -> Float[Tensor, "count d"]:
    if generator is None:
        return torch.eye(count, dim, dtype=torch.float64, device="cpu")
    normal = torch.randn(dim, count, dtype=torch.float64, generator=generator, device="cpu")
    orthonormal, upper = torch.linalg.qr(normal)
    return (orthonormal * torch.sign(upper.diagonal())).mT


def _require(holds: bool, expected: str, k: int, dim: int) -> None:
    if not holds:
        raise InputError(
            expected=expected,
            found=f"k={k}, dim={dim}",
            fix="use fewer vectors or a larger dimension",
        )
