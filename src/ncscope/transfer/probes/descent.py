"""Limited-memory BFGS for penalised logistic regression, warm from one penalty to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.errors import InputError
from ncscope.transfer.probes.secants import Secants

_MOST_ITERATIONS, _MOST_TRIALS = 10_000, 60
_KEPT = 0.25  # the share of the fall that a step promises that it has to keep
_PARALLEL = 1e-9  # added to the cosine of a move with itself, for moves that are all but parallel
_ROUNDING = 1e-9  # relative, of the objective: a sum over the samples


Move: TypeAlias = tuple[Float[Tensor, "k q"], Float[Tensor, "k n"]]
"""Of the weights, and of the margins."""


@dataclass(frozen=True)
class Point:
    r"""Weights, and what they do to every sample.

    Attributes:
        weights: $W$, a row for each class.
        margins: $z_{ik}-z_{iy_i}$, the scores less that of the sample's own class.
        loss: $\sum_i\log\sum_ke^{z_{ik}-z_{iy_i}}$.
        residuals: The classes' probabilities, less 1 for the sample's own.
        slope: The gradient of the loss.
    """

    weights: Float[Tensor, "k q"]
    margins: Float[Tensor, "k n"]
    loss: Float[Tensor, ""]
    residuals: Float[Tensor, "k n"]
    slope: Float[Tensor, "k q"]


class Descent:
    r"""Minimise $\sum_i\ell_i(W)+\frac\lambda2\lVert W_{pen}\rVert^2$ for λ after λ.

    A pass over the data is the two products, weights by columns and residuals by columns; an
    iteration takes one. Scores are linear in the weights, so that the search along a direction, or
    in a plane of moves whose margins are known, takes none.

    Args:
        columns: The samples' coordinates. Orthogonal rows make the diagonal preconditioner a
            good one.
        labels: From 0 to k-1, each of them there.
        num_classes: k.
        penalised: 1 for each coordinate whose weights are penalised, 0 for the others.

    Attributes:
        passes: How many passes have been made.
    """

    def __init__(
        self,
        columns: Float[Tensor, "q n"],
        labels: Int[Tensor, " n"],
        num_classes: int,
        penalised: Float[Tensor, " q"],
    ) -> None:
        self.columns, self.num_classes = columns, num_classes
        self.passes = 0.0
        self._own = labels[None]
        self._penalised = penalised
        self._rounding = torch.finfo(columns.dtype).eps * columns.shape[1]
        self._squares = columns.square().sum(1)
        self._secants = Secants(penalised.repeat(num_classes))

    def beginning(self) -> Point:
        """No weights, and the bias that gives the classes' shares: the minimum at infinite λ."""
        weights = self.columns.new_zeros(self.num_classes, len(self.columns))
        bias = torch.bincount(self._own[0]).to(weights).log()
        weights[:, -1] = bias - bias.mean()
        margins = self._margins(weights)
        return self._point(weights, margins, *_loss(margins))

    def objective(self, point: Point, strength: float) -> float:
        """The loss and its penalty."""
        return float(point.loss + strength / 2 * (point.weights * self._penalised).square().sum())

    def minimise(
        self, point: Point, strength: float, tolerance: float, before: Point | None = None
    ) -> Point:
        r"""Descend until the objective is above its minimum by no more than a share of itself.

        How far it is above is estimated by $-\frac12\langle g,D\rangle$, of the gradient and the
        direction: the decrement of a Newton step, as far as BFGS knows the Hessian. It falls
        short of the truth up to fortyfold where the penalty is weak and classes are separable.
        Below the rounding of the loss, $n\epsilon$, nothing is sought.

        Args:
            point: Where to begin: at the minimum for the λ before.
            strength: λ, above 0.
            tolerance: The share.
            before: The minimum for the λ before that. The first step is then the best in the plane
                of the direction and of the line through the two.

        Raises:
            InputError: If that is not reached: of samples whose lengths are orders of magnitude
                apart the minimum is too narrow.
        """
        chords = [] if before is None or before is point else [_chord(before, point)]
        for _ in range(_MOST_ITERATIONS):
            gradient = point.slope + strength * point.weights * self._penalised
            direction = self._direction(point, gradient, strength)
            fall = float((gradient * direction).sum())
            # A loss is a sum of logarithms of 1 and more: less than their rounding is none.
            enough = max(tolerance * self.objective(point, strength), self._rounding)
            if -fall / 2 <= enough:
                return point
            moves = [(direction, self._margins(direction)), *chords]
            point, chords = self._step(point, moves, strength, enough), []
        raise InputError(
            expected=f"a logistic fit within {tolerance:g} of its minimum at strength {strength:g}",
            found=f"none in {_MOST_ITERATIONS} iterations",
            fix="scale the samples to comparable lengths, or take a stronger penalty",
        )

    def _direction(
        self, point: Point, gradient: Float[Tensor, "k q"], strength: float
    ) -> Float[Tensor, "k q"]:
        """Against the gradient. BFGS begins with one over the Hessian's diagonal.

        The diagonal is as if residuals and coordinates were independent.
        """
        wrong = point.residuals.abs()
        curvature = (wrong - wrong.square()).mean(1)
        scale = 1 / (curvature[:, None] * self._squares + strength * self._penalised)
        newton = self._secants.newton(gradient.flatten(), strength, scale.flatten())
        return -newton.view_as(gradient)

    def _step(self, point: Point, moves: Sequence[Move], strength: float, enough: float) -> Point:
        """The next point, by Newton's method in the span of some moves.

        On a line a step that falls as it promised will do; in a plane the least is sought.
        """
        span = _Span(point, moves, strength * self._penalised)
        taken, shares = point.loss.new_zeros(len(moves)), point.residuals
        height = span.height(taken, point.loss)
        move, promise = span.newton(taken, shares)
        for _ in range(_MOST_TRIALS):
            margins = span.margins(taken + move)
            loss, shares = _loss(margins)
            reached = span.height(taken + move, loss)
            if reached > height - _KEPT * promise + _ROUNDING * float(point.loss):
                move, promise = move / 2, promise / 2
                continue
            taken, height = taken + move, reached
            if len(moves) == 1:
                break
            move, promise = span.newton(taken, shares)
            if promise <= enough:
                break
        there = self._point(span.weights(taken), margins, loss, shares)
        self._learn(point, there)
        return there

    def _margins(self, weights: Float[Tensor, "k q"]) -> Float[Tensor, "k n"]:
        """Scores less that of the sample's own class. Takes half a pass."""
        self.passes += 0.5
        scores = weights @ self.columns
        return scores.sub_(scores.gather(0, self._own))

    def _point(
        self,
        weights: Float[Tensor, "k q"],
        margins: Float[Tensor, "k n"],
        loss: Float[Tensor, ""],
        shares: Float[Tensor, "k n"],
    ) -> Point:
        """The point of these weights. Takes half a pass, and the shares for its residuals."""
        self.passes += 0.5
        residuals = shares.scatter_add_(0, self._own, shares.new_full((), -1).expand_as(self._own))
        return Point(weights, margins, loss, residuals, residuals @ self.columns.mT)

    def _learn(self, start: Point, end: Point) -> None:
        step, turn = end.weights - start.weights, end.slope - start.slope
        self._secants.learn(step.flatten(), turn.flatten())


def _loss(margins: Float[Tensor, "k n"]) -> tuple[Float[Tensor, ""], Float[Tensor, "k n"]]:
    """Cross-entropy in all, and probabilities, from scores less that of the sample's own class."""
    largest = margins.amax(0)
    shares = (margins - largest).exp_()
    total = shares.sum(0)
    return (largest + total.log()).sum(), shares.div_(total)


def _chord(first: Point, second: Point) -> Move:
    return second.weights - first.weights, second.margins - first.margins


class _Span:
    """The objective from a point on, along a few moves; a sample's own class has no margin."""

    def __init__(
        self,
        point: Point,
        moves: Sequence[Move],
        penalty: Float[Tensor, " q"],
    ) -> None:
        self._point = point
        self._moves = torch.stack([weights for weights, _ in moves]).flatten(1)
        self._rays = torch.stack([margins for _, margins in moves]).flatten(1)
        pulls = (self._moves.view(-1, *point.weights.shape) * penalty).flatten(1)
        self._across, self._along = pulls @ point.weights.flatten(), pulls @ self._moves.mT

    def weights(self, taken: Float[Tensor, " m"]) -> Float[Tensor, "k q"]:
        """After so much of each move."""
        return self._point.weights + (taken @ self._moves).view_as(self._point.weights)

    def margins(self, taken: Float[Tensor, " m"]) -> Float[Tensor, "k n"]:
        """Those of `weights`."""
        return self._point.margins + (taken @ self._rays).view_as(self._point.margins)

    def height(self, taken: Float[Tensor, " m"], loss: Float[Tensor, ""]) -> float:
        """The objective, less the penalty at the point."""
        return float(loss + taken @ (self._across + self._along @ taken / 2))

    def newton(
        self, taken: Float[Tensor, " m"], shares: Float[Tensor, "k n"]
    ) -> tuple[Float[Tensor, " m"], float]:
        """Newton's step, and the fall that it promises; from residuals as from shares."""
        pulls = self._rays * shares.flatten()
        means = pulls.view(-1, *shares.shape).sum(1)
        slope = means.sum(1) + self._across + self._along @ taken
        bend = pulls @ self._rays.mT - means @ means.mT + self._along
        size = bend.diagonal().rsqrt()
        cosines = bend * size * size[:, None]
        cosines.diagonal().add_(_PARALLEL)
        step = -size * torch.linalg.solve(cosines, size * slope)
        return step, -float(slope @ step) / 2
