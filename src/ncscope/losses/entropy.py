r"""Spectral entropy of a Gram matrix, with a gradient that is correct for repeated eigenvalues.

Write $H(K)=\sum_jf(\lambda_j)$, $f(x)=-\frac xm\log\frac xm$, for $K=AA^\top$ with eigenvalues
$\lambda_j$ and eigenvectors $U$.

On the range of $K$: $f$ is smooth there, and $H$ is a function of the matrix, not of a choice of
eigenvectors, so $dH=\operatorname{tr}(F\,dK)$ with $F=Uf'(\Lambda)U^\top$,
$f'(\lambda)=-\frac1m(\log\frac\lambda m+1)$. No eigenvector is differentiated, so no term
$1/(\lambda_i-\lambda_j)$ appears, and repeated eigenvalues need no special treatment.

On the null space, $f'(0)=\infty$. But for null vectors $u,v$ we have $A^\top u=A^\top v=0$, so
$u^\top dK\,v=u^\top dA\,(A^\top v)+(A^\top u)^\top dA^\top v=0$: along a path in $A$ those
eigenvalues leave zero at second order, $\lambda=O(t^2)$, and $f(\lambda)=O(t^2\log\frac1t)$ has
derivative 0. Their entry of $F$ is therefore 0. The cut loses nothing either: the gradient for
$A$ is $2FA$, whose part along an eigenvector has size $2|f'(\lambda)|\sqrt\lambda\to0$.

The Hadamard product of two Gram matrices is the Gram matrix of the row-wise Kronecker products,
$\langle a_i,a_j\rangle\langle b_i,b_j\rangle=\langle a_i\otimes b_i,a_j\otimes b_j\rangle$. The
argument therefore holds for this product, with $A$ the matrix of rows $a_i\otimes b_i$.
"""

from typing import Any, NoReturn

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ncscope.arguments import Size, check_arguments
from ncscope.devices import refuse_without_float64
from ncscope.errors import InputError
from ncscope.losses.inputs import check_matrix, loss_dtype, make_zero_loss, normalise_rows
from ncscope.math.symmetric import symmetric_eigen


@check_arguments
def matrix_entropy(matrix: Shaped[Tensor, "m m"], samples: Size) -> Float[Tensor, ""]:
    r"""$H=-\sum_j\frac{\lambda_j}n\log\frac{\lambda_j}n$ over the eigenvalues, $0\log0=0$.

    Source: INFO definition 3.1. Range $[0,\log m]$ where the trace is $n$; 0: rank one. Invariant
    under rotation. Cost: one eigen-decomposition of size m, in float64.

    The gradient $-\frac1n\sum_j(\log\frac{\lambda_j}n+1)u_ju_j^\top$ runs over the eigenvalues
    above $\epsilon\,m\,\lambda_{max}$. It is exact for a matrix that stays a Gram matrix
    $A(t)A(t)^\top$ of differentiable $A$, of any rank; along other paths from a singular matrix the
    true derivative is infinite. A second derivative raises an error. Form the matrix in float64, as
    `batch_entropy` does: rounding in a narrower type makes null eigenvalues positive.

    Args:
        matrix: Symmetric positive semi-definite, any float dtype: a Gram matrix or a Hadamard
            product of two. Only the lower triangle is read.
        samples: $n$, the trace of the matrix, at least 1.

    Returns:
        The entropy in nats, float64.

    Raises:
        InputError: If the matrix is not square, not real or not finite, or the device has no
            float64.

    Example:
        >>> round(float(matrix_entropy(torch.eye(4), 4)), 6)  # log 4
        1.386294
    """
    refuse_without_float64(matrix.device, "matrix")
    check_matrix(matrix, "matrix", matrix.shape[-1] if matrix.ndim else None)
    if not matrix.isfinite().all():
        fix = "check that training did not diverge"
        raise InputError(expected="a finite matrix", found="NaN or Inf in it", fix=fix)
    value: Tensor = _SpectralEntropy.apply(matrix.double(), samples)
    return value


@check_arguments
def batch_entropy(vectors: Shaped[Tensor, "n d"]) -> Float[Tensor, ""]:
    r"""$H(G)=-\operatorname{tr}(\frac1nG\log\frac1nG)$, $G$ the Gram matrix of the unit rows.

    Source: INFO definition 3.1. Range $[0,\log\min(n,d)]$; 0: all rows on one line. Invariant
    under rotation and scaling of each row. Differentiable at any rank. Cost: one
    eigen-decomposition of size $\min(n,d)$.

    Args:
        vectors: One vector a row, any real dtype.

    Returns:
        The entropy in nats; dtype of the input, at least float32. 0 for fewer than two rows.

    Raises:
        InputError: If rows are zero or not finite.

    Example:
        >>> round(float(batch_entropy(torch.tensor([[1.0, 0.0], [0.0, 5.0]]))), 6)  # log 2
        0.693147
    """
    check_matrix(vectors, "vectors")
    if len(vectors) < 2:
        return make_zero_loss(vectors)
    return entropy_of_unit_rows(normalise_rows(vectors, "vectors")).to(loss_dtype(vectors))


def entropy_of_unit_rows(rows: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Compute `batch_entropy` of rows that are float64 and of unit length."""
    n, d = rows.shape
    return matrix_entropy(rows @ rows.mT if n <= d else rows.mT @ rows, n)


class _SpectralEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Float[Tensor, "m m"], samples: Size) -> Float[Tensor, ""]:
        eigen = symmetric_eigen(matrix)
        share = eigen.values / samples
        slope = -(share.log() + 1) / samples
        ctx.save_for_backward(matrix, slope, eigen.vectors)
        return torch.special.entr(share).sum()

    @staticmethod
    def backward(ctx: Any, grad: Float[Tensor, ""]) -> tuple[Float[Tensor, "m m"], None]:
        return grad * _Gradient.apply(*ctx.saved_tensors), None


class _Gradient(torch.autograd.Function):
    """$F$ as a function of $K$, so that a second derivative raises an error.

    `once_differentiable` would return a wrong second derivative, because it checks the incoming
    gradient only, not $K$.
    """

    @staticmethod
    def forward(
        ctx: Any,
        matrix: Float[Tensor, "m m"],
        slope: Float[Tensor, " r"],
        vectors: Float[Tensor, "m r"],
    ) -> Float[Tensor, "m m"]:
        return (vectors * slope) @ vectors.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> NoReturn:
        message = "matrix_entropy has a first derivative only"
        raise NotImplementedError(message)
