"""Limited-memory BFGS for penalised logistic regression, warm from one penalty to the next."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

_PAIRS = 10
_MOST_ITERATIONS, _MOST_TRIALS = 10_000, 60
_FLATTER = 0.5  # the share of the slope that a step along a direction may leave
_ROUNDING = 1e-9  # relative, of the objective: a sum over the samples


@dataclass(frozen=True)
class Point:
    r"""Weights, and what they do to every sample.

    Attributes:
        weights: $W$, a row for each class.
        margins: $z_{ik}-z_{iy_i}$, the scores less that of the sample's own class.
        loss: $\sum_i\log\sum_ke^{z_{ik}-z_{iy_i}}$.
        shares: The classes' probabilities, sample by sample.
        slope: The gradient of the loss.
    """

    weights: Float[Tensor, "k q"]
    margins: Float[Tensor, "n k"]
    loss: Float[Tensor, ""]
    shares: Float[Tensor, "n k"]
    slope: Float[Tensor, "k q"]


class Descent:
    r"""Minimise $\sum_i\ell_i(W)+\frac\lambda2\lVert W_{pen}\rVert^2$ for λ after λ.

    A pass over the data is the two products, rows by weights and residuals by rows. Scores are
    linear along a direction, so that the search on it takes no pass; an iteration takes one.
    When λ changes, the Hessian changes by a multiple of the identity on what is penalised, so
    the curvature pairs of the former λ are exact for the next after that correction.

    Args:
        rows: Orthogonal columns make the diagonal preconditioner a good one.
        labels: From 0 to k-1, each of them there.
        num_classes: k.
        penalised: 1 for each column whose weights are penalised, 0 for the others.

    Attributes:
        passes: How many passes have been made.
    """

    def __init__(
        self,
        rows: Float[Tensor, "n q"],
        labels: Int[Tensor, " n"],
        num_classes: int,
        penalised: Float[Tensor, " q"],
    ) -> None:
        self.rows, self.labels, self.num_classes = rows, labels, num_classes
        self.penalised = penalised
        self.passes = 0.0
        self._squares = rows.square().sum(0)
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def margins(self, weights: Float[Tensor, "k q"]) -> Float[Tensor, "n k"]:
        """Scores less that of the sample's own class. Takes half a pass."""
        self.passes += 0.5
        scores = self.rows @ weights.mT
        return scores - scores.gather(1, self.labels[:, None])

    def at(self, weights: Float[Tensor, "k q"], margins: Float[Tensor, "n k"]) -> Point:
        """The point of these weights, whose margins are known. Takes half a pass."""
        return self._point(weights, margins, *_loss(margins))

    def beyond(self, first: Point, second: Point, share: float) -> Point:
        """On the line from the first point past the second, by a share of their distance.

        Takes half a pass, and keeps what it tells of the curvature.
        """
        weights = second.weights + share * (second.weights - first.weights)
        margins = second.margins + share * (second.margins - first.margins)
        there = self.at(weights, margins)
        self._learn(second, there)
        return there

    def objective(self, point: Point, strength: float) -> float:
        """The loss and its penalty."""
        weights = point.weights * self.penalised
        return float(point.loss + strength / 2 * weights.square().sum())

    def minimise(self, point: Point, strength: float, tolerance: float) -> Point:
        r"""Descend until the objective is above its minimum by no more than a share of itself.

        How far it is above is estimated by $-\frac12\langle g,D\rangle$, of the gradient and the
        direction: the decrement of a Newton step, as far as BFGS knows the Hessian. It falls
        short of the truth about tenfold where the penalty is weak and classes are separable.

        Args:
            point: Where to begin.
            strength: λ, above 0.
            tolerance: The share.

        Raises:
            RuntimeError: If that is not reached: the tolerance is below the rounding.
        """
        for _ in range(_MOST_ITERATIONS):
            gradient = point.slope + strength * point.weights * self.penalised
            direction = self._direction(gradient, strength, self._scale(point, strength))
            fall = float((gradient * direction).sum())
            if -fall / 2 <= tolerance * self.objective(point, strength):
                return point
            point = self._step(point, direction, fall, strength)
        msg = f"{_MOST_ITERATIONS} iterations did not reach a tolerance of {tolerance:g}"
        raise RuntimeError(msg)

    def _scale(self, point: Point, strength: float) -> Float[Tensor, "k q"]:
        """One over the Hessian's diagonal, as if shares and rows were independent."""
        curvature = (point.shares * (1 - point.shares)).mean(0)
        return 1 / (curvature[:, None] * self._squares + strength * self.penalised)

    def _direction(
        self, gradient: Float[Tensor, "k q"], strength: float, scale: Float[Tensor, "k q"]
    ) -> Float[Tensor, "k q"]:
        """Minus the approximate inverse Hessian times the gradient, by the two-loop recursion."""
        pairs = [(s, y + strength * s * self.penalised) for s, y in self._pairs]
        inner = [float((s * y).sum()) for s, y in pairs]
        image, taken = gradient, []
        for (s, y), product in zip(reversed(pairs), reversed(inner), strict=True):
            taken.append(float((s * image).sum()) / product)
            image = image - taken[-1] * y
        image = image * scale
        if pairs:
            y = pairs[-1][1]
            image = image * (inner[-1] / float((y.square() * scale).sum()))
        for (s, y), product, share in zip(pairs, inner, reversed(taken), strict=True):
            image = image + (share - float((y * image).sum()) / product) * s
        return -image

    def _step(
        self, point: Point, direction: Float[Tensor, "k q"], fall: float, strength: float
    ) -> Point:
        """The next point, near the least on the line, by Newton's method within a bracket."""
        ray = self.margins(direction)
        moved, stood = direction * self.penalised, point.weights * self.penalised
        across, along = float((moved * stood).sum()), float(moved.square().sum())
        height = float(point.loss)
        low, high, length = 0.0, float("inf"), 1.0
        for _ in range(_MOST_TRIALS):
            margins = point.margins + length * ray
            loss, shares = _loss(margins)
            pull = shares * ray
            mean = pull.sum(1)
            slope = float(mean.sum()) + strength * (across + length * along)
            rise = float(loss) - height + strength * length * (across + length * along / 2)
            if abs(slope) <= _FLATTER * abs(fall) and rise <= _ROUNDING * height:
                break
            low, high = (low, length) if slope > 0 else (length, high)
            bend = float((pull * ray).sum() - mean.square().sum()) + strength * along
            length = _within(length - slope / bend, low, high)
        there = self._point(point.weights + length * direction, margins, loss, shares)
        self._learn(point, there)
        return there

    def _point(
        self,
        weights: Float[Tensor, "k q"],
        margins: Float[Tensor, "n k"],
        loss: Float[Tensor, ""],
        shares: Float[Tensor, "n k"],
    ) -> Point:
        self.passes += 0.5
        slope = shares.mT @ self.rows
        slope.index_add_(0, self.labels, self.rows, alpha=-1)
        return Point(weights, margins, loss, shares, slope)

    def _learn(self, start: Point, end: Point) -> None:
        """Keep a pair of steps, of the weights and of the gradient without its penalty.

        Of a step that was none, or so short that rounding hides the curvature, nothing is learnt.
        """
        step, turn = end.weights - start.weights, end.slope - start.slope
        if float((step * turn).sum()) > 0:
            self._pairs.append((step, turn))
            del self._pairs[:-_PAIRS]


def _loss(margins: Float[Tensor, "n k"]) -> tuple[Float[Tensor, ""], Float[Tensor, "n k"]]:
    """Cross-entropy in all, and probabilities, from scores less that of the sample's own class."""
    largest = torch.logsumexp(margins, 1)
    return largest.sum(), torch.exp(margins - largest[:, None])


def _within(length: float, low: float, high: float) -> float:
    """A length inside the bracket, which may be open above."""
    if low < length < high:
        return length
    return 2 * low if high == float("inf") else (low + high) / 2
