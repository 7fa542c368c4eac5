"""Cheapest factorisation of a matrix: the nuclear norm as a sum of two Frobenius norms."""

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from ncscope.errors import InputError

Matrix = Float[Tensor, "_r _c"]
_SMALLEST = 1e-12


def factorisation_cost(
    weight: Matrix, features: Matrix, weight_decay: float, feature_decay: float
) -> Float[Tensor, ""]:
    r"""Compute $\frac{\lambda_W}2\lVert W\rVert_F^2+\frac{\lambda_H}2\lVert H\rVert_F^2$."""
    return (weight_decay * weight.square().sum() + feature_decay * features.square().sum()) / 2


def nuclear_bound(product: Matrix, weight_decay: float, feature_decay: float) -> float:
    r"""Compute $\sqrt{\lambda_W\lambda_H}\,\lVert Z\rVert_*$, the least cost of factors of Z.

    Source: XUFM lemma C.1, which is lemma A.3 of Zhu et al. 2021.
    """
    return math.sqrt(weight_decay * feature_decay) * float(torch.linalg.svdvals(product).sum())


def balance_factors(
    product: Matrix, inner: int, weight_decay: float, feature_decay: float
) -> tuple[Matrix, Matrix]:
    r"""Return factors of Z that attain `nuclear_bound`.

    $$W=\alpha^{1/4}US^{1/2}R^\top,\quad H=\alpha^{-1/4}RS^{1/2}V^\top,\quad
    \alpha=\lambda_H/\lambda_W,\quad Z=USV^\top$$

    Args:
        product: Z.
        inner: Number of columns of W, at least the rank of Z.
        weight_decay: $\lambda_W>0$.
        feature_decay: $\lambda_H>0$.

    Raises:
        InputError: If the inner dimension is below the rank.
    """
    left, values, right = _compact_svd(product, inner)
    root = values.sqrt()
    size = (feature_decay / weight_decay) ** 0.25
    weight = torch.zeros(len(product), inner, dtype=product.dtype)
    features = torch.zeros(inner, product.shape[1], dtype=product.dtype)
    weight[:, : len(root)] = size * left * root
    features[: len(root)] = root[:, None] * right / size
    return weight, features


def cheapest_factors(
    product: Matrix,
    inner: int,
    weight_decay: float,
    feature_decay: float,
    generator: torch.Generator,
) -> tuple[Matrix, Matrix]:
    r"""Minimise the cost over all factorisations of Z from a random one, by BFGS.

    All factors of $Z=USV^\top$ whose W has the range of U are $W=US^{1/2}G$ and
    $H=G^+S^{1/2}V^\top+(I-G^+G)B$, with G of full row rank and any B. The solver moves G and B
    freely and knows nothing of the nuclear norm.

    Args:
        product: Z.
        inner: Number of columns of W, at least the rank of Z.
        weight_decay: $\lambda_W>0$.
        feature_decay: $\lambda_H>0$.
        generator: Generator of the start.

    Raises:
        InputError: If the inner dimension is below the rank.
    """
    left, values, right = _compact_svd(product, inner)
    rank, columns = len(values), product.shape[1]
    size = rank * inner, inner * columns
    left, right = left * values.sqrt(), values.sqrt()[:, None] * right

    def factors(flat: Tensor) -> tuple[Matrix, Matrix]:
        turn, free = flat.split(size)
        turn, free = turn.view(rank, inner), free.view(inner, columns)
        inverse = torch.linalg.pinv(turn)
        return left @ turn, inverse @ right + free - inverse @ (turn @ free)

    def evaluate(flat: np.ndarray) -> tuple[float, np.ndarray]:
        moved = torch.from_numpy(flat).requires_grad_()
        with torch.enable_grad():
            cost = factorisation_cost(*factors(moved), weight_decay, feature_decay)
            (slope,) = torch.autograd.grad(cost, moved)
        return float(cost.detach()), slope.numpy()

    start = torch.randn(sum(size), dtype=product.dtype, generator=generator).numpy()
    done = minimize(evaluate, start, jac=True, method="BFGS", options={"gtol": 1e-10})
    return factors(torch.from_numpy(done.x))


def _compact_svd(product: Matrix, inner: int) -> tuple[Matrix, Float[Tensor, " r"], Matrix]:
    left, values, right = torch.linalg.svd(product, full_matrices=False)
    rank = int((values > _SMALLEST * values[0]).sum())
    if inner < rank:
        raise InputError(
            expected=f"an inner dimension of at least the rank {rank}",
            found=str(inner),
            fix="a product of narrower factors has a lower rank",
        )
    return left[:, :rank], values[:rank], right[:rank]
