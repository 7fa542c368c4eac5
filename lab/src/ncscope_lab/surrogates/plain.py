"""The plain features model without its guards: decays may be zero, features may pass a ReLU."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope_lab.surrogates.extended import Activation
from ncscope_lab.surrogates.problem import Point, Problem


class PlainUFM(Problem):
    r"""Plain model without bias, for the settings in which descent does not collapse.

    $$\frac1{2N}\lVert W\phi(H)-Y\rVert_F^2+\frac{\lambda_W}2\lVert W\rVert_F^2
    +\frac{\lambda_H}2\lVert H\rVert_F^2,\quad Y=I_K\otimes\mathbf 1_n^\top$$

    Without decays every exact fit is a global minimiser, collapsed or not. With a ReLU the minimum
    is that of `UFM`, because an orthogonal frame without negative entries attains it. But an entry
    of H that starts negative never becomes positive: only the decay acts on it, and the decay
    shrinks it.

    Source: XUFM section 2 (no decays) and section 7 (ReLU).

    Args:
        num_classes: K.
        dim: d.
        per_class: n.
        weight_decay: $\lambda_W\ge0$.
        feature_decay: $\lambda_H\ge0$.
        activation: $\phi$, the identity or ReLU.

    Raises:
        InputError: If a size is below 1, or a decay is negative or not finite.

    Example:
        >>> problem = PlainUFM(2, 3, 4, weight_decay=0.0, feature_decay=0.0, activation="relu")
        >>> frame = torch.eye(2, 3).double()
        >>> float(problem.objective((frame, frame.mT.repeat_interleave(4, 1))))
        0.0
    """

    names = ("W", "H")

    def __init__(
        self,
        num_classes: int,
        dim: int,
        per_class: int,
        weight_decay: float,
        feature_decay: float,
        activation: Activation = "linear",
    ) -> None:
        if min(num_classes, dim, per_class) < 1 or not all(
            0 <= decay < math.inf for decay in (weight_decay, feature_decay)
        ):
            raise InputError(
                expected="sizes of at least 1 and decays of at least 0",
                found=f"sizes {(num_classes, dim, per_class)}, decays "
                f"{(weight_decay, feature_decay)}",
                fix="give 0 for no decay",
            )
        self.num_classes, self.dim, self.per_class = num_classes, dim, per_class
        self.weight_decay, self.feature_decay = weight_decay, feature_decay
        self.activation = activation
        self._targets = torch.eye(num_classes, dtype=torch.float64).repeat_interleave(per_class, 1)
        self._share = 1 / (num_classes * per_class)

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""
        weight, features = point
        fit = (weight @ self._activate(features) - self._targets).square().sum()
        decays = self.weight_decay * weight.square().sum()
        decays = decays + self.feature_decay * features.square().sum()
        return fit / (2 * self.num_classes * self.per_class) + decays / 2

    def gradient(self, point: Point) -> Point:
        """Compute the gradient; the ReLU's slope at zero is zero."""
        weight, features = point
        outputs, share = self._activate(features), self._share
        error = self.add_product(self._targets, weight, outputs, beta=-share, alpha=share)
        back = weight.mT @ error
        if self.activation == "relu":
            back = torch.ops.aten.threshold_backward(back, features, 0.0)
        return (
            self.add_product(weight, error, outputs.mT, beta=self.weight_decay),
            back.add_(features, alpha=self.feature_decay),
        )

    def start(self, generator: torch.Generator) -> Point:
        """Draw standard normal entries (XUFM section 6)."""
        k, d, samples = self.num_classes, self.dim, self.num_classes * self.per_class
        return tuple(
            torch.randn(shape, dtype=torch.float64, generator=generator)
            for shape in ((k, d), (d, samples))
        )

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the single level: the features that enter the classifier."""
        return {"H": self._activate(point[1])}

    def _activate(self, features: Float[Tensor, "*s d n"]) -> Float[Tensor, "*s d n"]:
        return features.clamp(min=0) if self.activation == "relu" else features
