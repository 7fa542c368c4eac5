"""Limited-memory BFGS for penalised logistic regression, warm from one penalty to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.errors import InputError
from ncscope.transfer.probes.secants import Secants

_MOST_ITERATIONS, _MOST_TRIALS = 10_000, 60
_KEPT = 0.25  # the share of the fall that a step promises that it has to keep
_PARALLEL = 1e-9  # added to the cosine of a move with itself, for moves that are all but parallel
_ROUNDING = 1e-9  # relative, of the objective: a sum over the samples
_MOST_GROWTH = 1e6  # of the margins' rounding


class Move(NamedTuple):
    """A change of the weights, and what it does to every sample.

    Attributes:
        weights: Change of the weights.
        margins: Change of the margins.
        growth: Rounding of these margins, as a multiple of that of margins computed from weights.
    """

    weights: Float[Tensor, "k q"]
    margins: Float[Tensor, "k n"]
    growth: float


@dataclass(frozen=True)
class Iterate:
    r"""Weights, and what they do to every sample.

    Attributes:
        weights: $W$, a row for each class.
        margins: $z_{ik}-z_{iy_i}$, the scores less that of the sample's own class.
        loss: $\sum_i\log\sum_ke^{z_{ik}-z_{iy_i}}$.
        residuals: The classes' probabilities, less 1 for the sample's own.
        slope: The gradient of the loss.
        growth: Rounding of the margins, as a multiple of that of margins computed from weights.
    """

    weights: Float[Tensor, "k q"]
    margins: Float[Tensor, "k n"]
    loss: Float[Tensor, ""]
    residuals: Float[Tensor, "k n"]
    slope: Float[Tensor, "k q"]
    growth: float


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
        passes: Number of passes made.
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
        self._squares = columns.square().sum(1)
        self._secants = Secants(penalised.repeat(num_classes))

    def beginning(self) -> Iterate:
        """No weights, and the bias that gives the classes' shares: the minimum at infinite λ."""
        weights = self.columns.new_zeros(self.num_classes, len(self.columns))
        bias = torch.bincount(self._own[0]).to(weights).log()
        weights[:, -1] = bias - bias.mean()
        margins = self._margins(weights)
        return self._point(weights, margins, *_loss(margins, self._own), growth=1.0)

    def objective(self, point: Iterate, strength: float) -> float:
        """Compute the loss and its penalty."""
        return float(point.loss + strength / 2 * (point.weights * self._penalised).square().sum())

    def minimise(
        self, point: Iterate, strength: float, tolerance: float, before: Iterate | None = None
    ) -> Iterate:
        r"""Descend until the objective is above its minimum by no more than a share of itself.

        How far it is above is estimated by $-\frac12\langle g,D\rangle$, of the gradient and the
        direction: the decrement of a Newton step, as far as BFGS knows the Hessian. It fell
        short of the truth up to 230-fold, where the penalty was weak or classes were many; in nine
        fits of ten less than threefold.

        Args:
            point: Initial point: the minimum for the λ before.
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
            enough = tolerance * self.objective(point, strength)
            if -fall / 2 <= enough:
                return point
            moves = [Move(direction, self._margins(direction), 1.0), *chords]
            point, chords = self._step(point, moves, strength, enough), []
        raise InputError(
            expected=f"a logistic fit within {tolerance:g} of its minimum at strength {strength:g}",
            found=f"none in {_MOST_ITERATIONS} iterations",
            fix="scale the samples to comparable lengths, or take a stronger penalty",
        )

    def _direction(
        self, point: Iterate, gradient: Float[Tensor, "k q"], strength: float
    ) -> Float[Tensor, "k q"]:
        """Return a direction of descent. BFGS begins with one over the Hessian's diagonal.

        The diagonal is as if residuals and coordinates were independent. It differs from class to
        class, and would add the same vector to the weights of all classes, which no score sees:
        there only the penalty curves, thousands of times less, and BFGS would take that part back
        very slowly. So the part is taken out, before and after.
        """
        wrong = point.residuals.abs()
        curvature = (wrong - wrong.square()).mean(1)
        scale = 1 / (curvature[:, None] * self._squares + strength * self._penalised)

        def inverse(flat: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
            return _contrasts(scale * _contrasts(flat.view_as(scale))).flatten()

        return -self._secants.newton(gradient.flatten(), strength, inverse).view_as(gradient)

    def _step(
        self, point: Iterate, moves: Sequence[Move], strength: float, enough: float
    ) -> Iterate:
        """Return the next point, by Newton's method in the span of some moves.

        On a line a step that falls as it promised will do; in a plane the least is sought.
        """
        span = _Span(point, moves, strength * self._penalised)
        taken = point.loss.new_zeros(len(moves))
        height = span.height(taken, point.loss)
        move, promise = span.newton(taken, point.residuals)
        for _ in range(_MOST_TRIALS):
            margins = span.margins(taken + move)
            loss, residuals = _loss(margins, self._own)
            reached = span.height(taken + move, loss)
            if reached > height - _KEPT * promise + _ROUNDING * float(point.loss):
                move, promise = move / 2, promise / 2
                continue
            taken, height = taken + move, reached
            if len(moves) == 1:
                break
            move, promise = span.newton(taken, residuals)
            if promise <= enough:
                break
        weights, growth = span.weights(taken), point.growth + span.growth(taken)
        if growth > _MOST_GROWTH:
            # A long way along two all but parallel moves, strength after strength, would part the
            # margins from the weights.
            margins, growth = self._margins(weights), 1.0
            loss, residuals = _loss(margins, self._own)
        there = self._point(weights, margins, loss, residuals, growth)
        self._append_pair(point, there)
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
        residuals: Float[Tensor, "k n"],
        growth: float,
    ) -> Iterate:
        """Return the point of these weights. Takes half a pass."""
        self.passes += 0.5
        return Iterate(weights, margins, loss, residuals, residuals @ self.columns.mT, growth)

    def _append_pair(self, start: Iterate, end: Iterate) -> None:
        step, turn = end.weights - start.weights, end.slope - start.slope
        self._secants.append(step.flatten(), turn.flatten())


def _contrasts(weights: Float[Tensor, "k q"]) -> Float[Tensor, "k q"]:
    """Subtract the mean over the classes."""
    return weights - weights.mean(0)


def _loss(
    margins: Float[Tensor, "k n"], own: Int[Tensor, "1 n"]
) -> tuple[Float[Tensor, ""], Float[Tensor, "k n"]]:
    """Return cross-entropy in all, and residuals, from scores less that of the sample's own class.

    Where the own class is all but certain, both are sums over the other classes: 1 less a
    probability near 1 would keep no digits.
    """
    largest = margins.amax(0)
    shares = (margins - largest).exp_()
    others = shares.scatter_(0, own, 0).sum(0)
    loss = (largest + torch.log1p(others + torch.expm1(-largest))).sum()
    residuals = shares.scatter_(0, own, -others[None])
    return loss, residuals.div_(others + torch.exp(-largest))


def _chord(first: Iterate, second: Iterate) -> Move:
    weights, margins = second.weights - first.weights, second.margins - first.margins
    # Rounding met on the way to the first is in both; computed anew in between, it is not.
    kept = second.growth >= first.growth
    growth = 1 + second.growth + (-first.growth if kept else first.growth)
    return Move(weights, margins, growth)


class _Span:
    """The objective from a point on, along a few moves; a sample's own class has no margin."""

    def __init__(
        self,
        point: Iterate,
        moves: Sequence[Move],
        penalty: Float[Tensor, " q"],
    ) -> None:
        self._point = point
        self._moves = torch.stack([move.weights for move in moves]).flatten(1)
        self._rays = torch.stack([move.margins for move in moves]).flatten(1)
        self._growths = self._rays.new_tensor([move.growth for move in moves])
        pulls = (self._moves.view(-1, *point.weights.shape) * penalty).flatten(1)
        self._across, self._along = pulls @ point.weights.flatten(), pulls @ self._moves.mT

    def weights(self, taken: Float[Tensor, " m"]) -> Float[Tensor, "k q"]:
        """After so much of each move."""
        return self._point.weights + (taken @ self._moves).view_as(self._point.weights)

    def margins(self, taken: Float[Tensor, " m"]) -> Float[Tensor, "k n"]:
        """Return the margins of `weights`."""
        return self._point.margins + (taken @ self._rays).view_as(self._point.margins)

    def growth(self, taken: Float[Tensor, " m"]) -> float:
        """Return the rounding that the margins gain by so much of each move."""
        return float(taken.abs() @ self._growths)

    def height(self, taken: Float[Tensor, " m"], loss: Float[Tensor, ""]) -> float:
        """Compute the objective, less the penalty at the point."""
        return float(loss + taken @ (self._across + self._along @ taken / 2))

    def newton(
        self, taken: Float[Tensor, " m"], residuals: Float[Tensor, "k n"]
    ) -> tuple[Float[Tensor, " m"], float]:
        """Return Newton's step, and the fall that it promises.

        Residuals stand for probabilities: they differ only where the margin is 0.
        """
        pulls = self._rays * residuals.flatten()
        means = pulls.view(-1, *residuals.shape).sum(1)
        slope = means.sum(1) + self._across + self._along @ taken
        bend = pulls @ self._rays.mT - means @ means.mT + self._along
        size = bend.diagonal().rsqrt()
        cosines = bend * size * size[:, None]
        cosines.diagonal().add_(_PARALLEL)
        step = -size * torch.linalg.solve(cosines, size * slope)
        return step, -float(slope @ step) / 2
