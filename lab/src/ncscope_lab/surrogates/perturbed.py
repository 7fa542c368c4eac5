"""The model with features fixed at perturbed collapsed features, and a free classifier."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.frames import orthogonal_frame
from ncscope_lab.surrogates.problem import Minimiser, Point, Problem


class PerturbedUFM(Problem):
    r"""The plain model without bias, with its features fixed at $H^*+E$.

    $$\min_W\frac1{2N}\lVert W(H^*+E)-Y\rVert_F^2+\frac{\lambda_W}2\lVert W\rVert_F^2$$
    $(W^*,H^*)$ minimises the plain model (5) with $\lambda_H=\tilde\lambda_H/n$, so that the
    length of a feature does not depend on n. The entries of E are independent and normal with
    variance $\sigma^2$.

    Source: XUFM (25), theorem 5.1.

    Args:
        num_classes: K.
        dim: d, at least K.
        per_class: n.
        weight_decay: $\lambda_W$.
        feature_decay: $\tilde\lambda_H$.
        noise: $\sigma$.
        seed: Seed of the perturbation E.

    Attributes:
        features: $H^*+E$.
        unperturbed: $W^*$.

    Raises:
        InputError: If a number is out of range, or the decays are so strong that $H^*$ is zero.

    Example:
        >>> model = PerturbedUFM(4, 20, 5000, 0.005, 0.05, noise=0.5)
        >>> (weight,) = model.minimiser().point
        >>> torch.allclose(weight, model.attenuation * model.unperturbed, atol=0.02)
        True
    """

    names = ("W",)

    def __init__(
        self,
        num_classes: int,
        dim: int,
        per_class: int,
        weight_decay: float,
        feature_decay: float,
        noise: float,
        seed: int = 0,
    ) -> None:
        self.num_classes, self.dim, self.per_class = num_classes, dim, per_class
        self.weight_decay, self.feature_decay, self.noise = weight_decay, feature_decay, noise
        decays = (weight_decay, feature_decay)
        if not (1 <= num_classes <= dim and per_class >= 1 and noise >= 0 and min(decays) > 0):
            sizes = f"K={num_classes}, d={dim}, n={per_class}"
            raise InputError(
                expected="d >= K >= 1, n >= 1, noise >= 0 and positive decays",
                found=f"{sizes}, noise={noise}, decays {decays}",
                fix="the collapsed features are an orthogonal frame, which needs d >= K",
            )
        load = num_classes * math.sqrt(weight_decay * feature_decay)
        if load >= 1:
            raise InputError(
                expected="K sqrt(weight_decay * feature_decay) < 1",
                found=f"{load:.3g}",
                fix="with stronger decays the minimiser is zero; take smaller ones",
            )
        length = math.sqrt((1 - load) * math.sqrt(weight_decay / feature_decay))
        means = length * orthogonal_frame(num_classes, dim).mT
        self.unperturbed = math.sqrt(feature_decay / weight_decay) * means.mT
        samples = num_classes * per_class
        generator = torch.Generator().manual_seed(seed)
        error = torch.randn(dim, samples, dtype=torch.float64, generator=generator)
        self.features = means.repeat_interleave(per_class, 1) + noise * error
        self._targets = torch.eye(num_classes, dtype=torch.float64).repeat_interleave(per_class, 1)

    @property
    def attenuation(self) -> float:
        r"""$\alpha$ with $\hat W\to\alpha W^*$ as n grows; see `attenuation`."""
        return attenuation(self.num_classes, self.weight_decay, self.feature_decay, self.noise)

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""
        (weight,) = point
        loss = (weight @ self.features - self._targets).square().sum() / (2 * len(self.labels))
        return loss + self.weight_decay / 2 * weight.square().sum()

    def gradient(self, point: Point) -> Point:
        r"""$\frac1N(WH-Y)H^\top+\lambda_WW$."""
        (weight,) = point
        error = weight @ self.features - self._targets
        return (error @ self.features.mT / error.shape[1] + self.weight_decay * weight,)

    def start(self, generator: torch.Generator) -> Point:
        """Draw standard normal entries; the problem is strongly convex, so any start works."""
        shape = (self.num_classes, self.dim)
        return (torch.randn(shape, dtype=torch.float64, generator=generator),)

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the fixed features."""
        return {"H": self.features}

    def minimiser(self) -> Minimiser:
        r"""$\hat W=YH^\top(HH^\top+N\lambda_WI)^{-1}$, the ridge regression of labels on features.

        Source: XUFM (82).
        """
        samples = self.features.shape[1]
        gram = self.features @ self.features.mT / samples
        ridge = gram + self.weight_decay * torch.eye(self.dim, dtype=torch.float64)
        cross = self._targets @ self.features.mT / samples
        weight = torch.linalg.solve(ridge, cross, left=False)
        # At the minimiser the quadratic terms equal half of the linear term; also ||Y||^2 = N.
        return Minimiser((weight,), (1 - float((weight * cross).sum())) / 2)


def attenuation(num_classes: int, weight_decay: float, feature_decay: float, noise: float) -> float:
    r"""Return the factor by which noise on the features shortens the classifier as n grows.

    $$\alpha=\left(1+\sigma^2K\sqrt{\tilde\lambda_H/\lambda_W}\right)^{-1}$$

    Source: XUFM theorem 5.1; derived in docs/theory/xufm-extended.md.

    Args:
        num_classes: K.
        weight_decay: $\lambda_W$.
        feature_decay: $\tilde\lambda_H=n\lambda_H$.
        noise: $\sigma$.
    """
    return 1 / (1 + noise**2 * num_classes * math.sqrt(feature_decay / weight_decay))
