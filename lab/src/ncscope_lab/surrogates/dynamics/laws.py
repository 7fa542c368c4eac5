r"""Growth of the singular values of the signal-to-noise matrix, in closed form.

Each $\omega_j$ evolves independently of the others, with $\dot\omega=\omega/\sum_pc_p\omega^p$.
Hence $c_0\log\omega+\sum_{p>0}\frac{c_p}p\omega^p=a_j+t$, and
$\omega\approx (pt/c_p)^{1/p}$ with the largest p.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

_LIMIT = 200


@dataclass(frozen=True)
class Law:
    r"""A law of growth.

    Attributes:
        name: Name of the flow.
        coefficients: $c_p$ by p; all are positive, and p = 0 is included.
    """

    name: str
    coefficients: Mapping[int, float]

    @property
    def exponent(self) -> float:
        r"""Return the exponent 1/p of the asymptotic growth: $\omega\approx  t^{1/p}$."""
        return 1 / max(self.coefficients)

    def rate(self, values: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        r"""$\dot\omega=\omega/\sum_pc_p\omega^p$."""
        return values / sum(c * values**p for p, c in self.coefficients.items())

    def potential(self, values: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        r"""$c_0\log\omega+\sum_{p>0}\frac{c_p}p\omega^p$, which is $a_j+t$ (MSE (9))."""
        terms = (c * values**p / p for p, c in self.coefficients.items() if p)
        return self.coefficients[0] * values.log() + sum(terms)

    def asymptote(self, times: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        r"""$(pt/c_p)^{1/p}$ with the largest p: the common asymptote of all $\omega_j$."""
        last = max(self.coefficients)
        return (last * times / self.coefficients[last]) ** (1 / last)

    def singular_values(
        self, start: Float[Tensor, " m"], times: Float[Tensor, " t"]
    ) -> Float[Tensor, "t m"]:
        r"""Compute $\omega_j(t)$ from $\omega_j(0)$.

        The growth $\delta=\log(\omega/\omega_0)$ solves
        $c_0\delta+\sum_{p>0}\frac{c_p}p\omega_0^p(e^{p\delta}-1)=t$. This form has no difference of
        large numbers for $\omega$ from 1e-8 to 1e8 and t from 1e-8 to 1e16. The left side is convex
        and increasing in $\delta$, so Newton's method converges from above, within a bracket. A
        singular value of zero stays zero.

        Args:
            start: $\omega_j(0)\ge0$.
            times: $t\ge0$.
        """
        omega, elapsed = torch.broadcast_tensors(start[None, :], times[:, None])
        moving = torch.where(omega > 0, omega, 1.0)
        growth = self._growth(moving, elapsed)
        return omega * growth.exp()

    def _growth(self, start: Tensor, time: Tensor) -> Tensor:
        """Solve for the root by Newton's method, within the bounds that single terms give."""
        share = 1 / len(self.coefficients)
        low, high = self._single_terms(start, share * time), self._single_terms(start, time)
        here = high
        for _ in range(_LIMIT):
            reached, slope = self._elapsed(start, here)
            low = torch.where(reached < time, here, low)
            high = torch.where(reached > time, here, high)
            there = here - (reached - time) / slope
            there = torch.where((there < low) | (there > high), (low + high) / 2, there)
            settled = bool(((there - here).abs() <= 4 * math.ulp(1.0) * here).all())
            here = there
            if settled:
                break
        return here

    def _single_terms(self, start: Tensor, time: Tensor) -> Tensor:
        """Return the smallest growth at which one of the terms alone reaches the time."""
        grown = [
            time / c if p == 0 else torch.log1p(p * time / (c * start**p)) / p
            for p, c in self.coefficients.items()
        ]
        return torch.stack(grown).min(0).values

    def _elapsed(self, start: Tensor, growth: Tensor) -> tuple[Tensor, Tensor]:
        """Return the time that a growth takes, and its derivative."""
        time, slope = torch.zeros_like(growth), torch.zeros_like(growth)
        for p, c in self.coefficients.items():
            scale = c * start**p
            time = time + scale * (torch.expm1(p * growth) / p if p else growth)
            slope = slope + scale * torch.exp(p * growth)
        return time, slope


def law_of_projection(num_classes: int, per_class: int) -> Law:
    r"""Return the orthogonally projected law: $\dot\omega=\frac{\omega}{n(K+\omega^2)^2}$.

    $n(K^2\log\omega+K\omega^2+\frac14\omega^4)=a+t$ and $\omega\approx (4t/n)^{1/4}$.
    Source: MSE (9), (27).

    Args:
        num_classes: $K$.
        per_class: $n$.

    Example:
        >>> law = law_of_projection(4, 50)
        >>> float(law.singular_values(torch.ones(1).double(), torch.tensor([2e9]).double()))
        112.43...
    """
    k, n = num_classes, per_class
    return Law("projected", {0: n * k**2, 2: 2 * n * k, 4: n})


def law_of_renormalisation(num_classes: int, per_class: int) -> Law:
    r"""Return the law of renormalised gradient steps: $\dot\omega=\frac{\omega}{nK(K+\omega^2)}$.

    $n(K^2\log\omega+\frac K2\omega^2)=a+t$ and $\omega\approx (2t/(nK))^{1/2}$.
    Source: ours; the flow of MSE D.1.

    Args:
        num_classes: $K$.
        per_class: $n$.
    """
    k, n = num_classes, per_class
    return Law("renormalised", {0: n * k**2, 2: n * k})
