"""The unconstrained features model under the cross-entropy loss (PFC section II-B)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.frames import simplex_etf
from ncscope_lab.surrogates.problem import Minimiser, Point, Problem
from ncscope_lab.surrogates.ufm import check_parameters, collapse_threshold


class CrossEntropyUFM(Problem):
    r"""Model of free features and a free classifier under the regularised cross-entropy.

    $$\frac1N\sum_{k,i}CE(Wh_{k,i},y_k)+\frac{\lambda_W}2\lVert W\rVert_F^2
    +\frac{\lambda_H}2\lVert H\rVert_F^2$$

    Source: PFC (2).

    Args:
        num_classes: $K\ge2$.
        dim: Dimension $d$ of the features.
        per_class: $n$ samples in each class.
        weight_decay: $\lambda_W>0$.
        feature_decay: $\lambda_H>0$.

    Raises:
        InputError: If a size or a decay is out of range.

    Example:
        >>> problem = CrossEntropyUFM(4, 20, 50, weight_decay=0.005, feature_decay=0.001)
        >>> best = problem.minimiser()
        >>> abs(float(problem.objective(best.point)) - best.objective) < 1e-15
        True
        >>> max(float(slope.norm()) for slope in problem.gradient(best.point)) < 1e-15
        True
    """

    names = ("W", "H")

    def __init__(
        self,
        num_classes: int,
        dim: int,
        per_class: int,
        weight_decay: float,
        feature_decay: float,
    ) -> None:
        check_parameters(num_classes, dim, per_class, weight_decay, feature_decay)
        self.num_classes, self.dim, self.per_class = num_classes, dim, per_class
        self.weight_decay, self.feature_decay = weight_decay, feature_decay
        self._targets = torch.eye(num_classes, dtype=torch.float64).repeat_interleave(per_class, 1)

    @property
    def c(self) -> float:
        r"""$c=K\sqrt{n\lambda_H\lambda_W}$; the minimiser is zero if $c\ge1$."""
        return collapse_threshold(
            self.num_classes, self.per_class, self.weight_decay, self.feature_decay
        )

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """PFC (2)."""
        weight, features = point
        logits = weight @ features
        loss = (torch.logsumexp(logits, 0) - (logits * self._targets).sum(0)).mean()
        decay = self.weight_decay * weight.square().sum()
        return loss + decay / 2 + self.feature_decay / 2 * features.square().sum()

    def gradient(self, point: Point) -> Point:
        """Compute the gradient. Cost: three products of K x d and d x N, and a softmax."""
        weight, features = point
        share = 1 / self._targets.shape[1]
        error = torch.softmax(weight @ features, 0) - self._targets
        return (
            torch.addmm(weight, error, features.mT, beta=self.weight_decay, alpha=share),
            torch.addmm(features, weight.mT, error, beta=self.feature_decay, alpha=share),
        )

    def start(self, generator: torch.Generator) -> Point:
        """Draw standard normal entries."""
        k, d, n = self.num_classes, self.dim, self.num_classes * self.per_class
        return tuple(
            torch.randn(shape, dtype=torch.float64, generator=generator)
            for shape in ((k, d), (d, n))
        )

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """One: H."""
        return {"H": point[1]}

    def minimiser(self, generator: torch.Generator | None = None) -> Minimiser:
        r"""Return a global minimiser in closed form: a simplex ETF.

        The class means' logits are $W\bar H=\alpha(I-\frac1K\mathbf 1\mathbf 1^\top)$ with
        $\alpha=\log\bigl(\frac Kc-K+1\bigr)$, or 0 if $c\ge1$;
        $\bar H=\sqrt{\alpha/\tau}\,R$, $W=\tau\bar H^\top$, $\tau=\sqrt{n\lambda_H/\lambda_W}$,
        with $R^\top R=I-\frac1K\mathbf 1\mathbf 1^\top$. The minimum is
        $-\log(1-x)+\alpha x$ with $x=\frac{K-1}Kc$; $\log K$ if $c\ge1$.

        Source: the constants are derived in the documentation of this model. Zhu et al. 2021,
        theorem 3.1, prove that the minimiser is a simplex ETF.

        Args:
            generator: Generator of a random rotation of the frame; None takes a fixed frame.

        Returns:
            Minimiser; zero if $c\ge1$.

        Raises:
            InputError: If $d<K-1$ and $c<1$: no simplex fits, and no closed form is known.
        """
        k, d, c = self.num_classes, self.dim, self.c
        if c >= 1:
            weight = torch.zeros(k, d, dtype=torch.float64)
            return Minimiser((weight, weight.mT.repeat(1, self.per_class)), math.log(k))
        if d < k - 1:
            raise InputError(
                expected=f"dim >= K - 1 = {k - 1} for a closed form",
                found=f"dim={d}",
                fix="raise dim, or minimise with ncscope_lab.surrogates.descent",
            )
        alpha, share = math.log(k / c - k + 1), c * (k - 1) / k
        tau = math.sqrt(self.per_class * self.feature_decay / self.weight_decay)
        means = math.sqrt(alpha * (k - 1) / k / tau) * simplex_etf(k, d, generator).mT
        point = (tau * means.mT, means.repeat_interleave(self.per_class, 1))
        return Minimiser(point, -math.log1p(-share) + alpha * share)
