r"""Critical points of the linear extended model, and their kind by the Hessian.

At a critical point with positive decays the factors are balanced and
$W_{m-1}\cdots W_1\bar H_1=\sum_jp_jv_jv_j^\top$ with orthonormal $v_j$, where each $p_j$ is 0 or a
root of $p^{1-2/m}(1-p)=c$; c is the load. So up to rotations there are finitely many critical
points. Source: ours; proof in docs/models/extended.md.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from ncscope.errors import InputError
from ncscope_lab.surrogates.extended import ExtendedUFM
from ncscope_lab.surrogates.problem import Point

Kind = Literal["minimum", "strict saddle", "degenerate"]
_RELATIVE = 1e-7


def critical_roots(factors: int, load: float) -> tuple[float, ...]:
    r"""Return the positive roots of $p^{1-2/m}(1-p)=c$, in increasing order.

    Args:
        factors: m, at least 2.
        load: c, positive.

    Returns:
        One root for two factors and $c<1$; for more factors two roots below the largest value of
        the left-hand side, which is at $p=\frac{m-2}{2(m-1)}$; else none.

    Example:
        >>> critical_roots(2, 0.25), len(critical_roots(3, 0.4)), len(critical_roots(3, 0.5))
        ((0.75,), 2, 0)
    """
    power = 1 - 2 / factors
    top = (factors - 2) / (2 * (factors - 1))

    def excess(p: float) -> float:
        return float(p**power * (1 - p) - load)

    if factors == 2:
        return (1 - load,) if load < 1 else ()
    if excess(top) <= 0:
        return ()
    low, high = (float(brentq(excess, *ends, xtol=1e-16)) for ends in ((0.0, top), (top, 1.0)))
    return low, high


def critical_point(model: ExtendedUFM, products: Sequence[float]) -> Point:
    r"""Return diagonal factors whose product has given values $p_j$.

    $$\lambda_ls_{l,j}^2=n\lambda_Hs_{H,j}^2=\kappa\,p_j^{2/m}$$

    Args:
        model: Linear model with positive decays.
        products: Values $p_j$, 0 or one of `critical_roots`; at most $\min(d,K)$ of them.

    Raises:
        InputError: If there are more values than directions.
    """
    k, d, factors = model.num_classes, model.dim, len(model.decays)
    if len(products) > min(d, k):
        raise InputError(
            expected=f"at most min(d, K) = {min(d, k)} values",
            found=str(len(products)),
            fix="give a value for each direction that is used",
        )
    values = torch.tensor(list(products), dtype=torch.float64)
    shares = model.load / k * values ** (2 / factors)
    shapes = [(k, d), *[(d, d)] * (factors - 2), (d, k)]
    point = []
    for decay, (rows, columns) in zip(model.decays, shapes, strict=True):
        part = torch.zeros(rows, columns, dtype=torch.float64)
        part[range(len(values)), range(len(values))] = (shares / decay).sqrt()
        point.append(part)
    features = point[-1].repeat_interleave(model.per_class, 1) / math.sqrt(model.per_class)
    return (*point[:-1], features)


def hessian(model: ExtendedUFM, point: Point) -> Float[Tensor, "v v"]:
    """Compute the Hessian of the objective by automatic differentiation.

    Cost: $O(v^2)$ memory for v variables, so for small models only.
    """
    sizes = [part.numel() for part in point]

    def objective(flat: Tensor) -> Tensor:
        pieces = zip(flat.split(sizes), point, strict=True)
        return model.objective(tuple(piece.view(part.shape) for piece, part in pieces))

    flat = torch.cat([part.flatten() for part in point])
    return torch.autograd.functional.hessian(objective, flat)


def orbit_dimension(model: ExtendedUFM, point: Point) -> int:
    r"""Compute the dimension of the set of equal points that the symmetries reach.

    The linear model does not change under a rotation between any two factors, nor under a joint
    rotation of the classes in $W_{m-1}$, Y and $H_1$.
    """
    k, d, factors = model.num_classes, model.dim, len(model.decays)
    n = model.per_class
    averages = torch.full((n, n), 1 / n, dtype=torch.float64)
    directions = []
    for index in range(factors):
        size = k if index == 0 else d
        for turn in _rotations(size):
            moved = [torch.zeros_like(part) for part in point]
            moved[index] += turn @ point[index]
            before = factors - 1 if index == 0 else index - 1
            right = torch.kron(turn, averages) if index == 0 else turn
            moved[before] -= point[before] @ right
            directions.append(torch.cat([part.flatten() for part in moved]))
    if not directions:
        return 0
    values = torch.linalg.svdvals(torch.stack(directions))
    return int((values > _RELATIVE * max(float(values[0]), _RELATIVE)).sum())


def kind(model: ExtendedUFM, point: Point) -> Kind:
    """Return the kind of a critical point.

    A negative eigenvalue of the Hessian makes a strict saddle. If no eigenvalue is negative and the
    zero eigenvalues are exactly the directions of `orbit_dimension`, the point is a local minimum,
    unique up to symmetries. Otherwise the Hessian does not decide: the point is degenerate, as a
    non-strict saddle is.
    """
    values = torch.linalg.eigvalsh(hessian(model, point))
    border = _RELATIVE * float(values.abs().max())
    if float(values[0]) < -border:
        return "strict saddle"
    flat = int((values.abs() <= border).sum())
    return "minimum" if flat == orbit_dimension(model, point) else "degenerate"


def _rotations(size: int) -> list[Float[Tensor, "s s"]]:
    """Return a basis of the antisymmetric matrices."""
    turns = []
    for row in range(size):
        for column in range(row):
            turn = torch.zeros(size, size, dtype=torch.float64)
            turn[row, column], turn[column, row] = 1.0, -1.0
            turns.append(turn)
    return turns
