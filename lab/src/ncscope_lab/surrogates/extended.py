"""The extended unconstrained features model: any number of factors, linear or with ReLU."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from ncscope.errors import InputError
from ncscope_lab.surrogates.problem import Minimiser, Point, Problem

Activation = Literal["linear", "relu"]


class ExtendedUFM(Problem):
    r"""Model with free features at the first of several layers, squared error and no bias.

    $$\frac1{2N}\lVert W_{m-1}H_{m-1}-Y\rVert_F^2
    +\sum_{l=1}^{m-1}\frac{\lambda_l}2\lVert W_l\rVert_F^2+\frac{\lambda_H}2\lVert H_1\rVert_F^2,
    \quad H_{l+1}=\phi(W_lH_l),$$
    with $Y=I_K\otimes\mathbf 1_n^\top$, and $\phi$ the identity or ReLU. A ReLU is between any two
    layers of weights, but not on $H_1$ and not after $W_{m-1}$. With m = 2 factors this is the
    plain model without bias (5), with three factors the model (23) or (24).

    Source: XUFM (5), (23), (24); more than three factors are ours.

    Args:
        num_classes: K.
        dim: Dimension d of the features at every level.
        per_class: n.
        weight_decays: $\lambda_{m-1},\dots,\lambda_1$, the classifier's decay first.
        feature_decay: $\lambda_H$.
        activation: $\phi$.
        deviations: Standard deviations of the normal entries of a start, one per factor in the
            order of `names`; default 0.1 for all, as in XUFM section 6.

    Raises:
        InputError: If a size is below 1, a decay or deviation is not positive, there is no layer of
            weights, or the number of deviations is not that of the factors.

    Example:
        >>> model = ExtendedUFM(4, 20, 50, weight_decays=(0.005, 0.0025), feature_decay=0.001)
        >>> model.names
        ('W2', 'W1', 'H1')
        >>> best = model.minimiser()
        >>> abs(float(model.objective(best.point)) - best.objective) < 1e-14
        True
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        per_class: int,
        weight_decays: tuple[float, ...],
        feature_decay: float,
        activation: Activation = "linear",
        deviations: tuple[float, ...] | None = None,
    ) -> None:
        self.num_classes, self.dim, self.per_class = num_classes, dim, per_class
        self.decays = (*weight_decays, feature_decay)
        self.activation = activation
        self.deviations = (0.1,) * len(self.decays) if deviations is None else deviations
        sizes, factors = (num_classes, dim, per_class), len(self.decays)
        numbers = (*self.decays, *self.deviations)
        if min(sizes) < 1 or not all(0 < number < math.inf for number in numbers):
            raise InputError(
                expected="sizes of at least 1 and positive decays and deviations",
                found=f"sizes {sizes}, decays {self.decays}, deviations {self.deviations}",
                fix="a factor without decay has no minimiser",
            )
        if factors < 2 or len(self.deviations) != factors:
            raise InputError(
                expected="a decay for each layer of weights and a deviation for each factor",
                found=f"{factors - 1} weight decays, {len(self.deviations)} deviations",
                fix="with m - 1 weight decays give m deviations, the features' last, or none",
            )
        self.names = (*(f"W{layer}" for layer in range(len(weight_decays), 0, -1)), "H1")
        self._targets = torch.eye(num_classes, dtype=torch.float64).repeat_interleave(per_class, 1)
        # Keep the gradient's buffers: allocating them in every step takes longer than filling them.
        buffers = torch.empty(len(self.decays), dim, num_classes * per_class, dtype=torch.float64)
        self._buffers, self._back = list(buffers[:-2]), list(buffers[-2:])

    @property
    def load(self) -> float:
        r"""$K\kappa$ with $\kappa=(n\lambda_{m-1}\cdots\lambda_1\lambda_H)^{1/m}$.

        The minimum depends on the decays only through this number; see `best_product`.
        """
        product = self.per_class * math.prod(self.decays)
        return float(self.num_classes * product ** (1 / len(self.decays)))

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""
        *weights, features = point
        for weight in weights[:0:-1]:
            features = self._activate(weight @ features)
        loss = (weights[0] @ features - self._targets).square().sum() / (2 * len(self.labels))
        pairs = zip(self.decays, point, strict=True)
        return loss + sum(decay / 2 * part.square().sum() for decay, part in pairs)

    def gradient(self, point: Point) -> Point:
        r"""Compute the gradient: $\mathcal O(mKdN)$ linear, $\mathcal O(md^2N)$ with ReLU."""
        if self.activation == "linear":
            return self._linear_gradient(point)
        return self._relu_gradient(point)

    def start(self, generator: torch.Generator) -> Point:
        """Draw normal entries with the standard deviations of the model."""
        k, d, layers = self.num_classes, self.dim, len(self.decays) - 1
        shapes = [(k, d), *[(d, d)] * (layers - 1), (d, k * self.per_class)]
        return tuple(
            deviation * torch.randn(shape, dtype=torch.float64, generator=generator)
            for deviation, shape in zip(self.deviations, shapes, strict=True)
        )

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return ``H1``, ``H2`` and so on; with ReLU also its input ``W1 H1`` before ``H2``."""
        *weights, features = point
        outputs = {"H1": features}
        for layer, weight in enumerate(weights[:0:-1], start=1):
            before = weight @ features
            features = self._activate(before)
            if self.activation == "relu":
                outputs[f"W{layer} H{layer}"] = before
            outputs[f"H{layer + 1}"] = features
        return outputs

    def minimiser(self) -> Minimiser:
        """Return the global minimiser of the linear model, for any number of factors and any d.

        Source: XUFM theorem 4.1, which omits the constants; proof in docs/models/extended.md.

        Raises:
            InputError: If the model has a ReLU. `point_at_collapse` then has the same objective,
                but need not be the minimum.
        """
        if self.activation == "relu" and len(self.decays) > 2:
            raise InputError(
                expected="a linear model, or a single layer of weights",
                found=f"activation 'relu' between {len(self.decays) - 1} layers of weights",
                fix="no closed form is known; compare with point_at_collapse() instead",
            )
        return Minimiser(self.point_at_collapse(), self.objective_at_collapse())

    def point_at_collapse(self) -> Point:
        r"""Return diagonal non-negative factors, with an orthogonal frame at every level.

        $$W_{m-1}=s_{m-1}\,I,\quad\dots,\quad H_1=s_H\,I\otimes\mathbf 1_n^\top,\quad
        \lambda_ls_l^2=n\lambda_Hs_H^2=\kappa\,p^{2/m},$$
        with p from `best_product`. If d < K, only d classes are separated. No entry is negative, so
        a ReLU changes nothing and the objective does not depend on the activation.
        """
        factors, k, d = len(self.decays), self.num_classes, self.dim
        share = self.load / k * self._product() ** (2 / factors)
        shapes = [(k, d), *[(d, d)] * (factors - 2), (d, k)]
        *weights, means = [
            math.sqrt(share / decay) * _diagonal(*shape, min(d, k))
            for decay, shape in zip(self.decays, shapes, strict=True)
        ]
        features = means.repeat_interleave(self.per_class, 1) / math.sqrt(self.per_class)
        return (*weights, features)

    def objective_at_collapse(self) -> float:
        r"""$\frac1K\left[q\,g(p)+\frac{K-q}2\right]$ with $q=\min(d,K)$.

        $$g(p)=\tfrac12(1-p)^2+\tfrac m2p(1-p)$$
        """
        p, k = self._product(), self.num_classes
        if p == 0.0:
            return 0.5
        told_apart = min(self.dim, k)
        each = (1 - p) ** 2 / 2 + len(self.decays) / 2 * p * (1 - p)
        return (told_apart * each + (k - told_apart) / 2) / k

    def compact(self, start: Point) -> tuple["ExtendedUFM", Point]:
        r"""Return an equivalent descent on $K+d$ columns instead of N, for the linear model.

        The linear model is invariant under joint rotations of H and Y in sample space, and
        descent keeps the rows of H in the span of their initial values and the class indicators.
        With an orthonormal basis B of this span, $H=FB$, and descent on F is descent on H.

        Args:
            start: Initial point of the descent.

        Returns:
            Problem on F and its start. With ReLU, or if the number of columns would not shrink,
            this problem and the given start.
        """
        samples = self.num_classes * self.per_class
        if self.activation == "relu" or self.num_classes + self.dim >= samples:
            return self, start
        features, indicators = start[-1], self._targets / math.sqrt(self.per_class)
        within = features - (features @ indicators.mT) @ indicators
        basis = torch.cat([indicators, torch.linalg.qr(within.mT).Q.mT])
        return _CompactExtendedUFM(self, basis), (*start[:-1], features @ basis.mT)

    def _product(self) -> float:
        return best_product(len(self.decays), self.load)

    def _activate(self, before: Float[Tensor, "_d n"]) -> Float[Tensor, "_d n"]:
        return before.clamp(min=0) if self.activation == "relu" else before

    def _linear_gradient(self, point: Point) -> Point:
        # Multiply the weights before the features, so that every product has only K rows.
        products = [point[0]]
        for weight in point[1:-1]:
            products.append(products[-1] @ weight)
        share = 1 / (self.num_classes * self.per_class)
        error = self.add_product(self._targets, products[-1], point[-1], beta=-share, alpha=share)
        slopes = [self.add_product(point[-1], products[-1].mT, error, beta=self.decays[-1])]
        passed = error @ point[-1].mT
        for index in range(len(point) - 2, 0, -1):
            left, part = products[index - 1].mT, point[index]
            slopes.append(self.add_product(part, left, passed, beta=self.decays[index]))
            passed = passed @ part.mT
        slopes.append(torch.add(passed, point[0], alpha=self.decays[0]))
        return tuple(reversed(slopes))

    def _relu_gradient(self, point: Point) -> Point:
        *weights, features = point
        inputs = [features]
        for weight, buffer in zip(weights[:0:-1], self._buffers, strict=False):
            inputs.append(torch.mm(weight, inputs[-1], out=buffer).clamp_(min=0))
        share = 1 / (self.num_classes * self.per_class)
        error = torch.addmm(self._targets, weights[0], inputs[-1], beta=-share, alpha=share)
        slopes = []
        for weight, decay in zip(weights, self.decays, strict=False):
            slopes.append(torch.addmm(weight, error, inputs[-1].mT, beta=decay))
            after = inputs.pop()
            if inputs:
                error = torch.mm(weight.mT, error, out=self._back[len(inputs) % 2])
                torch.ops.aten.threshold_backward.grad_input(error, after, 0.0, grad_input=error)
        slopes.append(torch.addmm(features, weights[-1].mT, error, beta=self.decays[-1]))
        return tuple(slopes)


class _CompactExtendedUFM(ExtendedUFM):
    """A linear model whose features are coordinates in a basis of a subspace of sample space."""

    def __init__(self, whole: ExtendedUFM, basis: Float[Tensor, "c n"]) -> None:
        *weight_decays, feature_decay = whole.decays
        sizes = whole.num_classes, whole.dim, whole.per_class
        super().__init__(*sizes, tuple(weight_decays), feature_decay)
        self._basis, self._targets = basis, self._targets @ basis.mT

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        return super().levels((*point[:-1], point[-1] @ self._basis))


def _diagonal(rows: int, columns: int, ones: int) -> Float[Tensor, "r c"]:
    """Return a matrix of zeros with ones in the first diagonal entries."""
    filled = torch.zeros(rows, columns, dtype=torch.float64)
    filled[:ones, :ones] = torch.eye(ones, dtype=torch.float64)
    return filled


def best_product(factors: int, load: float) -> float:
    r"""Return the gain p of the whole model at the minimum, from the load $c=K\kappa$.

    $$p=\arg\min_{p\ge0}\ \tfrac12(1-p)^2+\tfrac m2c\,p^{2/m}$$
    For c below `nonzero_limit`, p is the larger root of $p^{1-2/m}(1-p)=c$ and above
    $(m-2)/(m-1)$. For c above the limit p is 0; at the limit both values attain the minimum.

    Source: ours; proof in docs/models/extended.md.

    Args:
        factors: m, at least 2.
        load: c, positive.

    Example:
        >>> round(best_product(2, 0.25), 12)
        0.75
    """
    if load >= nonzero_limit(factors):
        return 0.0
    if factors == 2:
        return 1 - load
    low = (factors - 2) / (factors - 1)
    return float(
        brentq(lambda p: p ** (1 - 2 / factors) * (1 - p) - load, low, 1.0, xtol=1e-16, rtol=1e-15)
    )


def nonzero_limit(factors: int) -> float:
    r"""Return the smallest load at which zero is a minimiser.

    $$\frac1{m-1}\left(\frac{m-2}{m-1}\right)^{(m-2)/m}$$
    This is 1 for two factors, 0.397 for three factors, and falls like $1/(e\,m)$.

    Args:
        factors: m, at least 2.
    """
    rest = factors - 1
    return float((factors - 2) / rest) ** ((factors - 2) / factors) / rest
