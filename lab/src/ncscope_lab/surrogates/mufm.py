r"""The multilayer unconstrained features model, whose features are tied to the data.

The features of every layer between the data $X$ and the classifier are free, but their change from
layer to layer costs energy. Source: PFC III-C.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.errors import InputError
from ncscope_lab.surrogates.problem import Point, Problem

Loss = Literal["mse", "cross-entropy"]


class MUFM(Problem):
    r"""Model of classifier and last features, with a penalty on the distance to the data.

    $\mathcal L(W,H)+\frac\omega2\lVert W\rVert_F^2+\frac\tau2\lVert H-X\rVert_F^2$, with
    $\mathcal L=\frac1{2N}\lVert WH-Y\rVert_F^2$ or the mean cross-entropy of $WH$. As printed,
    $\omega=\frac{\lambda_W}K$ and $\tau=\frac\lambda{Kn}$; without the normalisation,
    $\omega=\lambda_W$ and $\tau=\lambda$. With $X=0$ it is the unconstrained features model.

    Source: PFC (13).

    Attributes:
        data: $X$, one sample per column, ordered by class.
        loss: ``"mse"`` or ``"cross-entropy"``.
        weight_decay: $\lambda_W$.
        transport: $\lambda$.
        normalised: Divide the regularisers by $K$ and $Kn$ if True.

    Example:
        >>> from ncscope_lab.surrogates.problem import gaussian_classes
        >>> data = gaussian_classes(3, 10, 5, torch.Generator().manual_seed(0))
        >>> model = MUFM(data, 3, weight_decay=0.005, transport=0.001)
        >>> weight = model.best_classifier(data)
        >>> bool(model.gradient((weight, data))[0].norm() < 1e-12)
        True
    """

    names: tuple[str, ...] = ("W", "H")

    def __init__(
        self,
        data: Float[Tensor, "d n"],
        num_classes: int,
        weight_decay: float,
        transport: float,
        loss: Loss = "mse",
        normalised: bool = True,
    ) -> None:
        samples = data.shape[1]
        if num_classes < 2 or samples < num_classes or samples % num_classes:
            raise InputError(
                expected="at least 2 classes, and the same number of samples of each",
                found=f"{num_classes} classes, {samples} samples",
                fix="data hold a sample a column, class by class",
            )
        if not (weight_decay > 0 and transport > 0):
            raise InputError(
                expected="weight_decay > 0 and transport > 0",
                found=f"weight_decay={weight_decay}, transport={transport}",
                fix="without either of them there is no minimum",
            )
        self.data = data.to(torch.float64)
        self.num_classes, self.per_class = num_classes, samples // num_classes
        self.weight_decay, self.transport = weight_decay, transport
        self.loss, self.normalised = loss, normalised
        self.targets = torch.eye(num_classes, dtype=torch.float64)[:, self.labels]

    @property
    def num_samples(self) -> int:
        """$N=Kn$."""
        return self.num_classes * self.per_class

    @property
    def omega(self) -> float:
        r"""$\omega$, the coefficient of $\frac12\lVert W\rVert_F^2$."""
        return self.weight_decay / self.num_classes if self.normalised else self.weight_decay

    @property
    def tau(self) -> float:
        r"""$\tau$, the coefficient of $\frac12\lVert H-X\rVert_F^2$."""
        return self.transport / self.num_samples if self.normalised else self.transport

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""
        weight, features = point
        cost = self.tau / 2 * (features - self.data).square().sum()
        return self._fit(weight, features) + self.omega / 2 * weight.square().sum() + cost

    def gradient(self, point: Point) -> Point:
        """Compute the gradient. Cost: three products of a K x d and a d x N matrix."""
        weight, features = point
        pull = self._pull(weight, features)
        of_weight = torch.addmm(weight, pull, features.mT, beta=self.omega)
        moved = features - self.data
        return of_weight, torch.addmm(moved, weight.mT, pull, beta=self.tau)

    def start(self, generator: torch.Generator) -> Point:
        """Draw standard normal entries (PFC IV-B)."""
        (d, n), k = self.data.shape, self.num_classes
        return _normal(k, d, generator), _normal(d, n, generator)

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the data and the features."""
        return {"X": self.data, "H": point[-1]}

    def best_classifier(self, features: Float[Tensor, "d n"]) -> Float[Tensor, "k d"]:
        r"""Return the minimiser in $W$ of the squared loss, $YH^\top(HH^\top+N\omega I)^{-1}$.

        Source: PFC theorem 4, where $N\omega=n\lambda_W$.

        Args:
            features: H.

        Raises:
            InputError: If the loss is not the squared error.
        """
        self._require_squared("W*(H)")
        hold = self.num_samples * self.omega
        gram = features @ features.mT + hold * torch.eye(len(features), dtype=torch.float64)
        return torch.linalg.solve(gram, self.targets @ features.mT, left=False)

    def best_features(self, weight: Float[Tensor, "k d"]) -> Float[Tensor, "d n"]:
        r"""Return the squared loss's minimiser in $H$, $(W^\top W+N\tau I)^{-1}(W^\top Y+N\tau X)$.

        This is an affine map of each sample, and the same map for all samples of a class. The map
        is invertible, so features of a class coincide only if their data coincide.

        Raises:
            InputError: If the loss is not the squared error.
        """
        self._require_squared("H*(W)")
        hold = self.num_samples * self.tau
        inner = weight.mT @ weight + hold * torch.eye(weight.shape[1], dtype=torch.float64)
        return torch.linalg.solve(inner, weight.mT @ self.targets + hold * self.data)

    def compact(self, start: Point) -> tuple["MUFM", Point]:
        r"""Return an equivalent descent on $K+2d$ columns instead of N.

        Descent on the squared loss keeps the rows of H in the span of their initial values, the
        data and the class indicators. With an orthonormal basis B of this span, $H=FB$, and descent
        on F is descent on H, with $XB^\top$ and $YB^\top$ for X and Y. `levels` reverses the change
        of basis.

        Args:
            start: Initial point of the descent.

        Returns:
            Problem on F and its start; this problem and the given start if the number of columns
            would not shrink.

        Raises:
            InputError: If the loss is not the squared error.
        """
        self._require_squared("descent in a subspace")
        weight, features = start
        rows = torch.cat([self.targets, self.data, features])
        if len(rows) >= self.num_samples:
            return self, start
        basis = torch.linalg.qr(rows.mT).Q.mT
        return _CompactMUFM(self, basis), (weight, features @ basis.mT)

    def _fit(self, weight: Float[Tensor, "k d"], features: Float[Tensor, "d n"]) -> Tensor:
        outputs, n = weight @ features, self.num_samples
        if self.loss == "mse":
            return (outputs - self.targets).square().sum() / (2 * n)
        return (outputs.logsumexp(0).sum() - (outputs * self.targets).sum()) / n

    def _pull(self, weight: Float[Tensor, "k d"], features: Float[Tensor, "d n"]) -> Tensor:
        """Return the gradient of the loss in the outputs WH, a K x N matrix."""
        share = 1 / self.num_samples
        if self.loss == "mse":
            return torch.addmm(self.targets, weight, features, beta=-share, alpha=share)
        return ((weight @ features).softmax(0) - self.targets) * share

    def _require_squared(self, wanted: str) -> None:
        if self.loss != "mse":
            raise InputError(
                expected=f"the squared loss for {wanted}",
                found=f"loss={self.loss!r}",
                fix="minimise or descend on all of W and H, or pass loss='mse'",
            )


class _CompactMUFM(MUFM):
    """The model in an orthonormal basis (one row per vector) of a subspace of sample space."""

    def __init__(self, model: MUFM, basis: Float[Tensor, "m n"]) -> None:
        strengths = (model.weight_decay, model.transport)
        super().__init__(model.data, model.num_classes, *strengths, model.loss, model.normalised)
        self._whole, self._basis = model, basis
        self.data, self.targets = model.data @ basis.mT, model.targets @ basis.mT

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the data and the features of every sample."""
        return self._whole.levels((point[0], point[1] @ self._basis))


class ClassifierMUFM(Problem):
    r"""The squared-loss model as a function of the classifier, minimised over the features.

    With $R=Y-WX$ and $Q=(NI+\frac1\tau WW^\top)^{-1}$,
    $\min_H=\frac12\operatorname{tr}(QRR^\top)+\frac\omega2\lVert W\rVert_F^2$ and
    $H^*(W)=X+\frac1\tau W^\top QR$. The minima of this function are those of the model, and its
    gradient is the model's gradient in W at $(W,H^*(W))$. Only $XX^\top$ and the class means enter,
    so the cost of an evaluation, $Kd^2$ operations, does not depend on n.

    Args:
        model: Model with the squared loss.

    Raises:
        InputError: If the model has another loss.
    """

    names = ("W",)

    def __init__(self, model: MUFM) -> None:
        model._require_squared("H*(W)")
        self.model = model
        self.num_classes, self.per_class = model.num_classes, model.per_class
        self._second = model.data @ model.data.mT
        self._sums = model.targets @ model.data.mT

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""
        (weight,) = point
        _, spread = self._residual(weight)
        fit = torch.linalg.solve(self._inner(weight), spread).trace() / 2
        return fit + self.model.omega / 2 * weight.square().sum()

    def gradient(self, point: Point) -> Point:
        r"""$-Q(RX^\top+\frac1\tau RR^\top QW)+\omega W$."""
        (weight,) = point
        on_data, spread = self._residual(weight)
        inner = self._inner(weight)
        scaled = torch.linalg.solve(inner, weight) / self.model.tau
        return (self.model.omega * weight - torch.linalg.solve(inner, on_data + spread @ scaled),)

    def start(self, generator: torch.Generator) -> Point:
        """Draw the model's start for the classifier."""
        return self.model.start(generator)[:1]

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the data and the best features."""
        return self.model.levels(self.complete(point))

    def complete(self, point: Point) -> Point:
        """Return the model's point with this classifier and its best features."""
        return point[0], self.model.best_features(point[0])

    def _residual(self, weight: Float[Tensor, "k d"]) -> tuple[Tensor, Tensor]:
        r"""$RX^\top$ and $RR^\top$."""
        n, k = self.per_class, self.num_classes
        on_data = self._sums - weight @ self._second
        on_targets = n * torch.eye(k, dtype=torch.float64) - self._sums @ weight.mT
        return on_data, on_targets - weight @ on_data.mT

    def _inner(self, weight: Float[Tensor, "k d"]) -> Float[Tensor, "k k"]:
        n = self.model.num_samples
        return n * torch.eye(len(weight), dtype=torch.float64) + weight @ weight.mT / self.model.tau


class LayeredMUFM(Problem):
    r"""Model of the classifier and the features of every layer.

    $\mathcal L(W,H^L)+\frac\omega2\lVert W\rVert_F^2+
    \frac\tau2\sum_{l<L}\lVert H^{l+1}-H^l\rVert_F^2$ with $H^0=X$, the rest as in `MUFM`.

    Source: PFC (12).

    Attributes:
        depth: L.
    """

    def __init__(
        self,
        data: Float[Tensor, "d n"],
        num_classes: int,
        depth: int,
        weight_decay: float,
        transport: float,
        loss: Loss = "mse",
        normalised: bool = True,
    ) -> None:
        if depth < 1:
            raise InputError(expected="depth >= 1", found=f"depth={depth}", fix="pass 1 or more")
        self._last = MUFM(data, num_classes, weight_decay, transport, loss, normalised)
        self.data, self.depth = self._last.data, depth
        self.num_classes, self.per_class = num_classes, self._last.per_class
        self.names = ("W", *(f"H{layer}" for layer in range(1, depth + 1)))

    def reduce(self) -> MUFM:
        r"""Return the equivalent model of the last features only; its $\lambda$ is $\lambda/L$.

        Among all paths of L steps from X to H, the straight path with equal steps has the least
        energy, $\sum_l\lVert H^{l+1}-H^l\rVert_F^2=\frac1L\lVert H-X\rVert_F^2$. PFC theorem 3
        omits the factor $\frac1L$.
        """
        last = self._last
        strengths = (last.weight_decay, last.transport / self.depth)
        return MUFM(self.data, self.num_classes, *strengths, last.loss, last.normalised)

    def straight(self, point: Point) -> Point:
        """Return the point with the best intermediate features for this head and last features.

        Args:
            point: W and H, of the reduced model.

        Returns:
            W and H1..HL, equally spaced from the data to H.
        """
        weight, features = point
        shares = [layer / self.depth for layer in range(1, self.depth)]
        between = [torch.lerp(self.data, features, share) for share in shares]
        return (weight, *between, features)

    def objective(self, point: Point) -> Float[Tensor, ""]:
        """Compute the objective; autograd can differentiate it."""
        weight, *features = point
        path = torch.stack([self.data, *features]).diff(dim=0)
        decay = self._last.omega / 2 * weight.square().sum()
        return self._last._fit(weight, features[-1]) + decay + self._tau / 2 * path.square().sum()

    def gradient(self, point: Point) -> Point:
        """Compute the gradient: the loss's, and the differences between successive layers."""
        weight, *features = point
        path = torch.stack([self.data, *features]).diff(dim=0)
        of_features = [self._tau * slope for slope in (path[:-1] - path[1:])]
        pull = self._last._pull(weight, features[-1])
        of_weight = torch.addmm(weight, pull, features[-1].mT, beta=self._last.omega)
        of_last = torch.addmm(path[-1], weight.mT, pull, beta=self._tau)
        return (of_weight, *of_features, of_last)

    def start(self, generator: torch.Generator) -> Point:
        """Draw standard normal entries."""
        d, n = self.data.shape
        features = [_normal(d, n, generator) for _ in range(self.depth)]
        return (_normal(self.num_classes, d, generator), *features)

    def levels(self, point: Point) -> dict[str, Float[Tensor, "_d n"]]:
        """Return the data and the features of every layer."""
        return {"X": self.data} | dict(zip(self.names[1:], point[1:], strict=True))

    @property
    def _tau(self) -> float:
        return self._last.tau


def data_distance(features: Float[Tensor, "d n"], data: Float[Tensor, "d n"]) -> Float[Tensor, ""]:
    r"""$\lVert H/\lVert H\rVert_F-X/\lVert X\rVert_F\rVert_F$.

    Source: PFC IV-B. Range $[0,2]$; 0: features and data are aligned.
    """
    return (features / features.norm() - data / data.norm()).norm()


def _normal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator)
