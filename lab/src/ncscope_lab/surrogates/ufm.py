"""The unconstrained features model under the MSE loss (XUFM section 3)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope.math.frames import simplex_basis
from ncscope_lab.surrogates.problem import Minimiser, Point, Problem


class UFM(Problem):
    r"""Model of free features and a free classifier under the regularised MSE loss.

    $$\frac1{2N}\lVert WH+b\mathbf 1^\top-Y\rVert_F^2+\frac{\lambda_W}2\lVert W\rVert_F^2
    +\frac{\lambda_H}2\lVert H\rVert_F^2+\frac{\lambda_b}2\lVert b\rVert^2,\quad
    Y=I_K\otimes\mathbf 1_n^\top$$

    Source: XUFM (3); without a bias (5), with a free bias (14).

    Args:
        num_classes: $K\ge2$.
        dim: Dimension $d$ of the features.
        per_class: $n$ samples in each class.
        weight_decay: $\lambda_W>0$.
        feature_decay: $\lambda_H>0$.
        bias_decay: $\lambda_b\ge0$: with 0 the bias is free; with None there is no bias.

    Raises:
        InputError: If a size or a decay is out of range.

    Example:
        >>> problem = UFM(4, 20, 50, weight_decay=0.005, feature_decay=0.001)
        >>> best = problem.minimiser()
        >>> abs(float(problem.objective(best.point)) - best.objective) < 1e-15
        True
        >>> max(float(slope.norm()) for slope in problem.gradient(best.point)) < 1e-15
        True
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        per_class: int,
        weight_decay: float,
        feature_decay: float,
        bias_decay: float | None = None,
    ) -> None:
        check_parameters(num_classes, dim, per_class, weight_decay, feature_decay)
        if bias_decay is not None and not 0 <= bias_decay < math.inf:
            raise InputError(
                expected="a bias decay of at least 0",
                found=str(bias_decay),
                fix="0 leaves the bias free, None leaves it out",
            )
        self.num_classes, self.dim, self.per_class = num_classes, dim, per_class
        self.weight_decay, self.feature_decay = weight_decay, feature_decay
        self.bias_decay = bias_decay
        self.names = ("W", "H") if bias_decay is None else ("W", "H", "b")
        self._targets = torch.eye(num_classes, dtype=torch.float64).repeat_interleave(per_class, 1)
        self._offset = -self._targets
        self._ones = torch.ones(self.num_samples, dtype=torch.float64)

    @property
    def num_samples(self) -> int:
        """$N=Kn$."""
        return self.num_classes * self.per_class

    @property
    def c(self) -> float:
        r"""$c=K\sqrt{n\lambda_H\lambda_W}$; the minimiser is zero if $c\ge1$."""
        return collapse_threshold(
            self.num_classes, self.per_class, self.weight_decay, self.feature_decay
        )

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """XUFM (3)."""
        fit = self._error(point).square().sum() / (2 * self.num_samples)
        decays = (self.weight_decay, self.feature_decay, self.bias_decay or 0.0)
        parts = zip(decays, point, strict=False)
        return fit + sum(decay / 2 * part.square().sum() for decay, part in parts)

    def gradient(self, point: Point) -> Point:
        """Compute the gradient. Cost: three products of a K x d and a d x N matrix."""
        weight, features, share = point[0], point[1], 1 / self.num_samples
        error = self._error(point)
        slopes = (
            self.add_product(weight, error, features.mT, beta=self.weight_decay, alpha=share),
            self.add_product(features, weight.mT, error, beta=self.feature_decay, alpha=share),
        )
        if self.bias_decay is None:
            return slopes
        bias = torch.addmv(point[2], error, self._ones, beta=self.bias_decay, alpha=share)
        return (*slopes, bias)

    def start(self, generator: torch.Generator) -> Point:
        """Draw standard normal entries (XUFM section 6)."""
        k, d, n = self.num_classes, self.dim, self.num_samples
        shapes: tuple[tuple[int, ...], ...] = ((k, d), (d, n), (k,))
        return tuple(
            torch.randn(shape, dtype=torch.float64, generator=generator)
            for shape, _ in zip(shapes, self.names, strict=False)
        )

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """One: H."""
        return {"H": point[1]}

    def head(self, point: Point) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"] | None]:
        """Return W, and b or None."""
        return point[0], None if self.bias_decay is None else point[2]

    def minimiser(self, generator: torch.Generator | None = None) -> Minimiser:
        r"""Return a global minimiser in closed form, for any sizes and decays.

        With $P=W\bar H$ and the optimal $b=\frac1{K(1+\lambda_b)}(I-P)\mathbf 1$, K times the
        objective is

        $$\tfrac12\lVert(P-I)J\rVert_F^2+\tfrac\omega2\lVert(P-I)u\rVert^2+c\lVert P\rVert_*,\quad
        J=I-uu^\top,\quad u=\tfrac1{\sqrt K}\mathbf 1,\quad\omega=\frac{\lambda_b}{1+\lambda_b}.$$

        Its minimum is at $P=V\operatorname{diag}(p)V^\top$ with $p=1-c$ on up to d orthonormal
        directions that sum to zero, and $p=1-\frac c\omega$ on u if $d\ge K$ and $\omega>c$. Then
        $\bar H=\tau^{-1/2}R\operatorname{diag}(p)^{1/2}V^\top$ and $W=\tau\bar H^\top$ with
        $\tau=\sqrt{n\lambda_H/\lambda_W}$ and any R with orthonormal columns. Without a bias
        $\omega=1$ and all directions are equivalent.

        Source: XUFM theorems 3.1 and 3.2; the regularised bias and $d<K$ are derived in the
        documentation of this model.

        Args:
            generator: Generator of a random R, and of random directions if d is too small for all
                directions; None takes a fixed choice.

        Returns:
            Minimiser; if $c\ge1$, W and H are zero.
        """
        basis, values = self._directions(generator)
        kept = values > 0
        root = values[kept].sqrt()[:, None] * basis[:, kept].mT
        tau = math.sqrt(self.per_class * self.feature_decay / self.weight_decay)
        means = tau**-0.5 * _orthonormal_columns(self.dim, len(root), generator) @ root
        point: Point = (tau * means.mT, means.repeat_interleave(self.per_class, 1))
        if self.bias_decay is not None:
            left = 1 - (basis.sum(0).square() * values).sum() / self.num_classes
            bias = left / (self.num_classes * (1 + self.bias_decay))
            point = (*point, bias * torch.ones(self.num_classes, dtype=torch.float64))
        return Minimiser(point, self._minimum())

    def compact(self, start: Point) -> tuple["UFM", Point]:
        r"""Return an equivalent descent on $K+d$ columns instead of N.

        The objective is invariant under joint rotations of H and Y in sample space, and descent
        keeps the rows of H in the span of their initial values and the class indicators. With an
        orthonormal basis B of this span, $H=FB$, and descent on F is descent on H. Metrics and
        objective do not change; `levels` reverses the change of basis.

        Args:
            start: Initial point of the descent.

        Returns:
            Problem on F and its start; this problem and the given start if the number of columns
            would not shrink.
        """
        if self.num_classes + self.dim >= self.num_samples:
            return self, start
        features = start[1]
        indicators = self._targets / self.per_class**0.5
        within = features - (features @ indicators.mT) @ indicators
        basis = torch.cat([indicators, torch.linalg.qr(within.mT).Q.mT])
        return _CompactUFM(self, basis), (start[0], features @ basis.mT, *start[2:])

    def _error(self, point: Point) -> Float[Tensor, "*s k n"]:
        offset = self._offset
        if self.bias_decay is not None:
            offset = torch.addr(offset, point[2], self._ones)
        return self.add_product(offset, point[0], point[1])

    def _bias_share(self) -> float:
        r"""$\omega=\lambda_b/(1+\lambda_b)$: 0 with a free bias, 1 without a bias."""
        return 1.0 if self.bias_decay is None else self.bias_decay / (1 + self.bias_decay)

    def _directions(
        self, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "k k"], Float[Tensor, " k"]]:
        """Return the orthonormal directions of P, ordered by gain, and the values of P."""
        k = self.num_classes
        values = torch.full((k,), 1 - self.c, dtype=torch.float64)
        if self.bias_decay is None:
            basis = _orthonormal_columns(k, k, generator)
        else:
            turn = _orthonormal_columns(k - 1, k - 1, generator)
            ones = torch.full((k, 1), k**-0.5, dtype=torch.float64)
            basis = torch.cat([simplex_basis(k) @ turn, ones], 1)
            share = self._bias_share()
            values[-1] = 1 - self.c / share if share > self.c else 0.0
        values[self.dim :] = 0
        return basis, values.clamp(min=0)

    def _minimum(self) -> float:
        c, k, share = self.c, self.num_classes, self._bias_share()
        used = min(self.dim, k - 1) if c < 1 else 0
        last = c * (2 - c / share) if self.dim >= k and share > c else share
        return (used * c * (2 - c) + (k - 1 - used) + last) / (2 * k)


class _CompactUFM(UFM):
    """A UFM whose features are coordinates in a basis of sample space, one basis vector per row."""

    def __init__(self, whole: UFM, basis: Float[Tensor, "m n"]) -> None:
        super().__init__(
            whole.num_classes,
            whole.dim,
            whole.per_class,
            whole.weight_decay,
            whole.feature_decay,
            whole.bias_decay,
        )
        self._basis = basis
        self._targets, self._ones = self._targets @ basis.mT, basis @ self._ones
        self._offset = -self._targets

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the single level: H, computed from its coordinates."""
        return {"H": point[1] @ self._basis}


def collapse_threshold(
    num_classes: int, per_class: int, weight_decay: float, feature_decay: float
) -> float:
    r"""$c=K\sqrt{n\lambda_H\lambda_W}$ (XUFM theorem 3.1)."""
    return num_classes * math.sqrt(per_class * feature_decay * weight_decay)


def check_parameters(
    num_classes: int, dim: int, per_class: int, weight_decay: float, feature_decay: float
) -> None:
    """Check that sizes are large enough and decays positive; else there is no minimiser.

    Raises:
        InputError: If a parameter is out of range; the message names the parameter.
    """
    for name, value, least in (
        ("num_classes", num_classes, 2),
        ("dim", dim, 1),
        ("per_class", per_class, 1),
    ):
        if value < least:
            raise InputError(
                expected=f"{name} >= {least}",
                found=str(value),
                fix=f"give {name} of at least {least}",
            )
    for name, decay in (("weight_decay", weight_decay), ("feature_decay", feature_decay)):
        if not 0 < decay < math.inf:
            raise InputError(
                expected=f"a positive {name}",
                found=str(decay),
                fix="without decay features and weights can trade size without end",
            )


def _orthonormal_columns(
    rows: int, columns: int, generator: torch.Generator | None
) -> Float[Tensor, "d r"]:
    """Return the first unit vectors, or random orthonormal columns (Haar measure)."""
    if generator is None:
        return torch.eye(rows, columns, dtype=torch.float64)
    normal = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    orthonormal, upper = torch.linalg.qr(normal)
    return orthonormal * torch.sign(upper.diagonal())
