"""Limited-memory BFGS for penalised logistic regression, warm-started from penalty to penalty."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ncscope.errors import InputError
from ncscope.transfer.probes.secants import Secants

_MOST_ITERATIONS, _MOST_TRIALS = 10_000, 60
_KEPT = 0.25  # least share of the predicted decrease that a step must reach
_PARALLEL = 1e-9  # added to the diagonal of the moves' cosines, for moves that are almost parallel
_ROUNDING = 1e-9  # relative rounding error of the objective, which is a sum over the samples
_MOST_GROWTH = 1e6  # bound on the growth of the margins' rounding error


class Move(NamedTuple):
    """A change of the weights, with the change of every sample's margins.

    Attributes:
        weights: Change of the weights.
        margins: Change of the margins.
        growth: Rounding error of ``margins``, as a multiple of the error of margins computed
            afresh from the weights.
    """

    weights: Float[Tensor, "k q"]
    margins: Float[Tensor, "k n"]
    growth: float


@dataclass(frozen=True)
class Iterate:
    r"""Weights, with margins, loss and gradient at these weights.

    Attributes:
        weights: $W$, a row for each class.
        margins: $z_{ik}-z_{iy_i}$, the scores minus the score of the sample's class.
        loss: $\sum_i\log\sum_ke^{z_{ik}-z_{iy_i}}$.
        residuals: Probabilities of the classes, minus 1 for the sample's class.
        slope: Gradient of the loss.
        growth: Rounding error of ``margins``, as a multiple of the error of margins computed
            afresh from the weights.
    """

    weights: Float[Tensor, "k q"]
    margins: Float[Tensor, "k n"]
    loss: Float[Tensor, ""]
    residuals: Float[Tensor, "k n"]
    slope: Float[Tensor, "k q"]
    growth: float


class Descent:
    r"""Minimisation of $\sum_i\ell_i(W)+\frac\lambda2\lVert W_{pen}\rVert^2$ for a sequence of λ.

    A pass over the data consists of two products, weights with columns and residuals with columns;
    an iteration takes one pass. Scores are linear in the weights, so that a search along a
    direction, or in a plane of moves whose margins are computed, takes no pass.

    Args:
        columns: Coordinates of the samples. The diagonal preconditioner is good if the rows are
            orthogonal.
        labels: Labels 0..k-1; every class must occur.
        num_classes: k.
        penalised: 1 for each coordinate whose weights are penalised, 0 for the others.

    Attributes:
        passes: Number of passes over the data so far.
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
        """Return the minimum at infinite λ: zero weights, and the bias of the classes' shares."""
        weights = self.columns.new_zeros(self.num_classes, len(self.columns))
        bias = torch.bincount(self._own[0]).to(weights).log()
        weights[:, -1] = bias - bias.mean()
        margins = self._margins(weights)
        return self._point(weights, margins, *_loss(margins, self._own), growth=1.0)

    def objective(self, point: Iterate, strength: float) -> float:
        """Compute the sum of loss and penalty."""
        return float(point.loss + strength / 2 * (point.weights * self._penalised).square().sum())

    def minimise(
        self, point: Iterate, strength: float, tolerance: float, before: Iterate | None = None
    ) -> Iterate:
        r"""Descend until the objective exceeds its minimum by at most a share of itself.

        The excess is estimated by $-\frac12\langle g,D\rangle$ from the gradient and the direction:
        the decrement of a Newton step with BFGS's approximation of the Hessian. The estimate was up
        to 230 times too small with a weak penalty or many classes, and less than three times in
        nine of ten fits.

        Args:
            point: Initial point: the minimum for the previous λ.
            strength: λ, above 0.
            tolerance: Share of the objective by which it may exceed its minimum.
            before: Minimum for the λ before the previous one. The first step is then the best in
                the plane of the direction and of the line through the two minima.

        Raises:
            InputError: If the tolerance is not reached, as with samples whose lengths differ by
                orders of magnitude: their minimum is too narrow.
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
        """Return a direction of descent. BFGS starts from the inverse of the Hessian's diagonal.

        The diagonal is approximated as if residuals and coordinates were independent.
        """
        wrong = point.residuals.abs()
        curvature = (wrong - wrong.square()).mean(1)
        scale = 1 / (curvature[:, None] * self._squares + strength * self._penalised)

        # The scale differs from class to class, and would add one common vector to the weights of
        # all classes. No score depends on the common vector: only the penalty curves along it,
        # thousands of times less than the loss elsewhere, and BFGS would undo it very slowly. So
        # the mean over the classes is removed before and after scaling.
        def inverse(flat: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
            return _contrasts(scale * _contrasts(flat.view_as(scale))).flatten()

        return -self._secants.newton(gradient.flatten(), strength, inverse).view_as(gradient)

    def _step(
        self, point: Iterate, moves: Sequence[Move], strength: float, enough: float
    ) -> Iterate:
        """Return the next point, by Newton's method in the span of some moves.

        On a line, the first step with a sufficient decrease is taken; in a plane, the search goes
        on to the minimum.
        """
        span = _Span(point, moves, strength * self._penalised)
        taken = point.loss.new_zeros(len(moves))
        height = span.height(taken, point.loss)
        move, promise = span.newton(taken, point.residuals)
        for _ in range(_MOST_TRIALS):
            margins = span.margins(taken + move)
            loss, residuals = _loss(margins, self._own)
            reached = span.height(taken + move, loss)
            # Near the minimum the predicted decrease is smaller than the rounding of the loss.
            # Without the allowance for rounding, every such step would be halved in vain.
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
            # Long steps along two almost parallel moves, for many strengths, would let the margins
            # drift from the weights: a fit then ended 7 % above its minimum without an error.
            margins, growth = self._margins(weights), 1.0
            loss, residuals = _loss(margins, self._own)
        there = self._point(weights, margins, loss, residuals, growth)
        self._append_pair(point, there)
        return there

    def _margins(self, weights: Float[Tensor, "k q"]) -> Float[Tensor, "k n"]:
        """Return the scores minus the score of the sample's class, in half a pass."""
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
        """Return the iterate at given weights, in half a pass."""
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
    """Return the sum of the cross-entropy, and the residuals, from the margins."""
    # Both are computed from sums over the classes other than the sample's. If the sample's class is
    # almost certain, 1 minus its probability would have no correct digits, and neither would the
    # logarithm of a sum near 1; hence log1p and expm1.
    largest = margins.amax(0)
    shares = (margins - largest).exp_()
    others = shares.scatter_(0, own, 0).sum(0)
    loss = (largest + torch.log1p(others + torch.expm1(-largest))).sum()
    residuals = shares.scatter_(0, own, -others[None])
    return loss, residuals.div_(others + torch.exp(-largest))


def _chord(first: Iterate, second: Iterate) -> Move:
    weights, margins = second.weights - first.weights, second.margins - first.margins
    # The rounding of the first margins is part of the second and cancels in the difference, unless
    # the margins were recomputed from the weights in between.
    kept = second.growth >= first.growth
    growth = 1 + second.growth + (-first.growth if kept else first.growth)
    return Move(weights, margins, growth)


class _Span:
    """Objective as a function of the steps along a few moves from a point.

    Margins of a sample's class are 0, and so are their changes.
    """

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
        """Return the weights after steps of given lengths along the moves."""
        return self._point.weights + (taken @ self._moves).view_as(self._point.weights)

    def margins(self, taken: Float[Tensor, " m"]) -> Float[Tensor, "k n"]:
        """Return the margins at `weights`, without a pass over the data."""
        return self._point.margins + (taken @ self._rays).view_as(self._point.margins)

    def growth(self, taken: Float[Tensor, " m"]) -> float:
        """Return the rounding error that steps along the moves add to the margins."""
        return float(taken.abs() @ self._growths)

    def height(self, taken: Float[Tensor, " m"], loss: Float[Tensor, ""]) -> float:
        """Compute the objective minus the penalty at the initial point."""
        return float(loss + taken @ (self._across + self._along @ taken / 2))

    def newton(
        self, taken: Float[Tensor, " m"], residuals: Float[Tensor, "k n"]
    ) -> tuple[Float[Tensor, " m"], float]:
        """Return Newton's step, and the decrease that it predicts.

        Residuals may replace probabilities: the two differ only in the sample's class, whose margin
        does not change.
        """
        pulls = self._rays * residuals.flatten()
        means = pulls.view(-1, *residuals.shape).sum(1)
        slope = means.sum(1) + self._across + self._along @ taken
        bend = pulls @ self._rays.mT - means @ means.mT + self._along
        # Scaled to a diagonal of ones, so that the addition is relative to each move's curvature.
        # Without it the system of two almost parallel moves would be singular.
        size = bend.diagonal().rsqrt()
        cosines = bend * size * size[:, None]
        cosines.diagonal().add_(_PARALLEL)
        step = -size * torch.linalg.solve(cosines, size * slope)
        return step, -float(slope @ step) / 2
