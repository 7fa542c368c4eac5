"""Curvature pairs of past steps, for a penalty that changes between the steps."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

_MOST = 24


class Secants:
    r"""Last 12 to 24 steps $s$ of the weights, with the changes $t$ of the loss's gradient.

    The gradient of $f+\frac\lambda2\lVert W_{pen}\rVert^2$ changes along a step by
    $y=t+\lambda s_{pen}$. Because $t$ is stored without the penalty, pairs of one λ are exact for
    every other.

    Args:
        penalised: 1 for each weight that is penalised, 0 for the others.
    """

    def __init__(self, penalised: Float[Tensor, " p"]) -> None:
        self._penalised = penalised
        self._steps = penalised.new_zeros(_MOST, len(penalised))
        self._turns = torch.zeros_like(self._steps)
        # Inner products of each step with the gradient changes and penalised steps of this pair
        # and of later pairs.
        self._products = penalised.new_zeros(_MOST, _MOST)
        self._squares = torch.zeros_like(self._products)
        self._known = 0

    def append(self, step: Float[Tensor, " p"], turn: Float[Tensor, " p"]) -> None:
        """Store (step, gradient change); skip it if their product is not positive.

        The product is not positive for a zero step, or a step so short that rounding hides the
        curvature.
        """
        if float(step @ turn) <= 0:
            return
        if self._known == _MOST:
            self._forget()
        last, self._known = self._known, self._known + 1
        self._steps[last], self._turns[last] = step, turn
        steps = self._steps[: self._known]
        self._products[: self._known, last] = steps @ turn
        self._squares[: self._known, last] = steps @ (step * self._penalised)

    def newton(
        self,
        gradient: Float[Tensor, " p"],
        strength: float,
        inverse: Callable[[Float[Tensor, " p"]], Float[Tensor, " p"]],
    ) -> Float[Tensor, " p"]:
        r"""Multiply the gradient by BFGS's approximation of the inverse Hessian.

        With the steps and their $y$ as rows of $S$ and $Y$, oldest first, $R$ the upper triangle of
        $SY^\top$, $\Delta$ its diagonal and $D$ the first guess, scaled to fit the last pair:
        $h+S^\top R^{-\top}(\Delta u-Yh)$, where $u=R^{-1}Sg$ and $h=D(g-Y^\top u)$.
        Source: Byrd, Nocedal and Schnabel (1994), theorem 2.2.

        Args:
            gradient: $g$, penalty included.
            strength: λ.
            inverse: Product with a first guess of the inverse Hessian, which is symmetric.

        Cost: six products with the stored rows.
        """
        known = self._known
        if not known:
            return inverse(gradient)
        steps, turns = self._steps[:known], self._turns[:known]
        triangle = self._products[:known, :known] + strength * self._squares[:known, :known]
        pull = strength * self._penalised
        last = turns[-1] + pull * steps[-1]
        stretch = triangle[-1, -1] / (last @ inverse(last))
        first = torch.linalg.solve_triangular(triangle, (steps @ gradient)[:, None], upper=True)
        rest = stretch * inverse(gradient - first[:, 0] @ turns - pull * (first[:, 0] @ steps))
        met = turns @ rest + steps @ (pull * rest)
        left = triangle.diagonal()[:, None] * first - met[:, None]
        second = torch.linalg.solve_triangular(triangle.mT, left, upper=False)
        return rest + second[:, 0] @ steps

    def _forget(self) -> None:
        """Drop the older half of the pairs."""
        kept = self._known = _MOST // 2
        for rows in (self._steps, self._turns):
            rows[:kept] = rows[kept:].clone()
        for products in (self._products, self._squares):
            products[:kept, :kept] = products[kept:, kept:].clone()
