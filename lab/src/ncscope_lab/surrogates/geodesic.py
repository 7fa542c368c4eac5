r"""Part of the straight line between two layers on which the class structure keeps collapsing.

`Geodesic` computes the metrics at a point of the line $h^{(t)}=(1-t)h^{(0)}+th^{(1)}$. This module
computes the smallest $t_0$ from which a metric falls up to $t=1$, in closed form except for the
roots of a polynomial. Below, $u=1-t$, so that u = 0 is the last layer. Source: PFC III-B.
"""

import torch
from jaxtyping import Float, Int
from numpy.polynomial import Polynomial
from torch import Tensor

from ncscope.math.frames import simplex_basis
from ncscope.metrics.layerwise import Geodesic, geodesic
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments
from ncscope.stats.statistics import ClassStatistics, finish

_ROUNDING = 1e-12


def line_between(
    first: Float[Tensor, "n d"], last: Float[Tensor, "n d"], labels: Int[Tensor, " n"]
) -> Geodesic:
    """Draw the straight line from one layer's features to another's.

    Args:
        first: Features at $t=0$, one row per sample.
        last: Features of the same samples at $t=1$.
        labels: Integer class of each sample, 0..K-1.

    Raises:
        InputError: If fewer than two classes are present.

    Example:
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> first = torch.tensor([[-1.0], [0.0], [0.0], [1.0]]).double()
        >>> collapsed = torch.tensor([[-1.0], [-1.0], [1.0], [1.0]]).double()
        >>> pfc1_falls_from(line_between(first, collapsed, labels))
        0.0
    """
    k = int(labels.max()) + 1
    pair = CrossMoments(k, first.shape[1])
    pair.update(first, last, labels)
    return geodesic(_statistics(first, labels, k), _statistics(last, labels, k), pair)


def pfc1_falls_from(line: Geodesic) -> float:
    r"""Return the smallest $t_0$ such that PFC1 does not rise on $[t_0,1]$.

    $v=\operatorname{Tr}\Sigma_W$ and $b=\operatorname{Tr}\Sigma_B$ are quadratics in $u$, and PFC1
    falls towards the last layer where $v'b-vb'\ge0$, which is again a quadratic. If the last layer
    is collapsed, $t_0=\max(0,\frac{-c}{b(0)-c})$, where $c$ is the inner product of the centred
    class means of both ends, weighted as in $\Sigma_B$. The premise $c\ge0$ of theorem 1 is
    therefore sufficient and necessary.

    Returns:
        $t_0$ in $[0,1]$; 0 also if PFC1 is constant.
    """
    within, between = _within(line), _between(line)
    return 1 - _holds_until(within.deriv() * between, within * between.deriv())


def pfc2_falls_from(line: Geodesic) -> float:
    r"""Return the smallest $t_0$ such that PFC2 does not rise on $[t_0,1]$.

    Let $Z(u)$ be the part of the Gram matrix of the centred class means that is orthogonal to the
    Gram matrix of the simplex, and $q(u)=\lVert\tilde H\rVert_F^2$. The tangent of the angle
    between the two Gram matrices is $\sqrt{K-1}\,\lVert Z\rVert_F/q$, and PFC2 increases with the
    angle. So PFC2 falls towards the last layer where $z'q-2zq'\ge0$ with $z=\lVert Z\rVert_F^2$.
    The left side is a quartic in $u$, and $u$ times a cubic if the last layer's means are a
    simplex.

    Returns:
        $t_0$ in $[0,1]$; 0 also if PFC2 is constant.
    """
    last = _centre(line.last.means)
    step = _centre(line.first.frame - line.last.frame)
    mixed = _off_simplex(last, step)
    off = _square_of_sum([_off_simplex(last, last), mixed + mixed.mT, _off_simplex(step, step)])
    size = Polynomial([_dot(last, last), 2 * _dot(last, step), _dot(step, step)])
    return 1 - _holds_until(off.deriv() * size, 2 * off * size.deriv())


def _statistics(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], k: int
) -> ClassStatistics:
    moments = ClassMoments(k, features.shape[1], statistics=())
    moments.update(features, labels)
    return finish(moments)


def _within(line: Geodesic) -> Polynomial:
    """Return the within-class trace; only its quadratic term if the last layer is collapsed."""
    first, last = float(line.first.within_trace), float(line.last.within_trace)
    cross = float(line.first.prior @ line.cross_traces)
    if last <= _ROUNDING**2 * first:
        last = cross = 0.0
    return _quadratic(first, cross, last)


def _between(line: Geodesic) -> Polynomial:
    first, last, prior = line.first.centred, line.last.centred, line.first.prior
    cross = float(prior @ (first * last).sum(1))
    return _quadratic(float(line.first.between_trace), cross, float(line.last.between_trace))


def _quadratic(first: float, cross: float, last: float) -> Polynomial:
    r"""$u^2\,first+2u(1-u)\,cross+(1-u)^2\,last$."""
    return Polynomial([last, 2 * (cross - last), first - 2 * cross + last])


def _centre(means: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    return means - means.mean(0)


def _off_simplex(first: Float[Tensor, "k d"], second: Float[Tensor, "k d"]) -> Tensor:
    """Return the Gram matrix of centred rows minus its simplex part; zero if it is rounding."""
    k, gram = len(first), first @ second.mT
    basis = simplex_basis(k)
    rest = gram - gram.trace() / (k - 1) * (basis @ basis.mT)
    kept = rest.norm() > _ROUNDING * first.norm() * second.norm()
    return rest if kept else torch.zeros_like(rest)


def _square_of_sum(parts: list[Float[Tensor, "k k"]]) -> Polynomial:
    r"""$\lVert\sum_iu^iA_i\rVert_F^2$."""
    coefficients = [0.0] * (2 * len(parts) - 1)
    for i, first in enumerate(parts):
        for j, second in enumerate(parts):
            coefficients[i + j] += _dot(first, second)
    return Polynomial(coefficients)


def _dot(first: Tensor, second: Tensor) -> float:
    return float((first * second).sum())


def _holds_until(first: Polynomial, second: Polynomial) -> float:
    """Return the largest u in [0, 1] such that the first is not below the second on [0, u].

    If the two are equal, their difference is rounding; it is compared with their size.
    """
    slope, size = first - second, Polynomial(abs(first.coef)) + Polynomial(abs(second.coef))
    roots = sorted(root for root in slope.roots().real if 0 < root < 1)
    start = 0.0
    for end in (*roots, 1.0):
        middle = (start + end) / 2
        if slope(middle) < -_ROUNDING * size(middle):
            return start
        start = float(end)
    return 1.0
