r"""Bounds that hold for every network: evenness in few dimensions, and the sum of the head's rows.

Proofs are in docs/theory/field.md and, in short, in the docstrings of the checks.
"""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from ncscope.math.frames import orthogonal_frame, simplex_basis
from ncscope.metrics.class_means import etf_distance
from ncscope.metrics.duality import self_duality
from ncscope_lab.theory.search import Instance, choice, climb, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_STARTS = 8
_STEPS = 30
_Loss = Callable[[Tensor, Tensor], Tensor]
_Objective = Callable[[Tensor], Tensor]


def rank_bound(k: int, rank: int) -> float:
    r"""$\sqrt{2-2\sqrt{r/(K-1)}}$: least `etf_distance` of K vectors of rank r."""
    return math.sqrt(max(2 - 2 * math.sqrt(rank / (k - 1)), 0.0))


def duality_bound(row_sum: float) -> float:
    r"""$2-2\sqrt{1-\mathrm{NC0}^2}$: least `self_duality` of a head with this sum of its rows."""
    return 2 - 2 * math.sqrt(max(1 - row_sum**2, 0.0))


def remaining_sum(decay: float, time: float) -> float:
    r"""$e^{-\lambda t}$: the share of $W^\top\mathbf 1$ that gradient flow leaves after a time."""
    return math.exp(-decay * time)


def row_sum(weight: Float[Tensor, "k d"]) -> float:
    r"""NC0: $\lVert W^\top\mathbf 1\rVert/(\sqrt K\lVert W\rVert_F)$."""
    return float(weight.sum(0).norm() / (math.sqrt(len(weight)) * weight.norm()))


def few_dimensions(generator: torch.Generator) -> Iterator[float]:
    r"""Check `rank_bound` by random and gradient search, and its equality case.

    Proof: with the Gram matrix G of the vectors and the projector $J=I-\frac1K\mathbf{11}^\top$ the
    squared distance is $2-2\operatorname{tr}(GJ)/(\lVert G\rVert_F\sqrt{K-1})$. G is positive
    semidefinite, so $\operatorname{tr}(GJ)\le\operatorname{tr}G$, and of rank r, so
    $\operatorname{tr}G\le\sqrt r\lVert G\rVert_F$. Both are equalities if and only if G is a
    multiple of a projector of rank r with $G\mathbf 1=0$.
    """
    for _ in range(_STARTS):
        k = integer(3, 12, generator)
        d = integer(1, k - 2, generator)
        bound = rank_bound(k, d)

        def violation(instance: Instance, bound: float = bound) -> float:
            return bound - float(etf_distance(instance[0]))

        even = _even_means(k, d, generator)
        yield abs(violation((even,)))
        for start in (even, normal(k, d, generator=generator)):
            yield from climb(violation, (start,), generator, _STEPS)
        yield abs(violation((_descend(normal(k, d, generator=generator)),)))


def stationary_heads(generator: torch.Generator) -> Iterator[float]:
    r"""Check NC0 at stationary heads, and its bound by the gradient at any other head.

    Proof: a loss that adding a constant to all logits of a sample does not change has a slope G by
    the logits with $\mathbf 1^\top G=0$. So the slope by W, $GH^\top+\lambda W$, has the row sum
    $\lambda\mathbf 1^\top W$: zero where the slope is, and elsewhere at most $\sqrt K$ times the
    norm of the slope. With squared error and a free bias, $\mathbf 1^\top G$ is
    $\frac1Nv^\top(H-h_G\mathbf 1^\top)$ at the best bias, $v=W^\top\mathbf 1$, and a stationary
    head has $v^\top(\Sigma_T+\lambda I)=0$, so $v=0$.
    """
    softmax_losses = (_cross_entropy, _smooth, _brier)
    for loss in (*softmax_losses, *softmax_losses, _squared_error):
        features, targets, start = _problem(generator)
        decay = magnitude(-2, 0, generator)
        objective = _objective(loss, features, targets, decay)
        yield row_sum(_stationary(objective, start))
        if loss is not _squared_error:
            slope = _slope(objective, start)
            yield float((slope.sum(0) - decay * start.sum(0)).norm() / start.norm())
            bound = float(slope.norm() / (decay * start.norm()))
            yield max(row_sum(start) - bound, 0.0)


def flows_of_heads(generator: torch.Generator) -> Iterator[float]:
    r"""Check the law of $W^\top\mathbf 1$ under gradient flow and gradient descent.

    Proof: the row sum of $\dot W=-GH^\top-\lambda W$ is $-\lambda\mathbf 1^\top W$, whatever the
    features and however they move; a step of descent multiplies it by $1-\eta\lambda$.
    """
    for loss in (_cross_entropy, _smooth, _brier):
        for decay in (0.0, magnitude(-2, -0.3, generator)):
            features, targets, start = _problem(generator)
            objective = _objective(loss, features, targets, decay)
            size, steps, step = start.sum(0).norm(), 50, 0.004
            flow = descent = start
            for _ in range(steps):
                flow = _runge_kutta(objective, flow, step)
                descent = descent - step * _slope(objective, descent)
            expected = remaining_sum(decay, steps * step) * start.sum(0)
            yield float((flow.sum(0) - expected).norm() / size)
            expected = (1 - step * decay) ** steps * start.sum(0)
            yield float((descent.sum(0) - expected).norm() / size)


def self_dual_heads(generator: torch.Generator) -> Iterator[float]:
    r"""Check `duality_bound` by random search, and its equality case.

    Proof: let $u=W/\lVert W\rVert_F$, and m be the centred means in the same scale. The part of u
    along $\mathbf 1$ has the norm NC0 and is orthogonal to m, as $\mathbf 1^\top m=0$. So
    $\langle u,m\rangle\le\sqrt{1-\mathrm{NC0}^2}$, with equality for $u=\sqrt{1-z^2}\,m
    +\frac z{\sqrt K}\mathbf 1e^\top$, e any unit vector and $z=\mathrm{NC0}$.
    """
    for _ in range(_STARTS):
        k, d = integer(2, 8, generator), integer(1, 9, generator)

        def violation(instance: Instance) -> float:
            weight, means = instance
            gap = self_duality(weight, means - means.mean(0))
            return duality_bound(row_sum(weight)) - float(gap)

        means = normal(k, d, generator=generator)
        means = means - means.mean(0)
        share = float(torch.rand((), dtype=torch.float64, generator=generator))
        common = torch.nn.functional.normalize(normal(d, generator=generator), dim=0)
        even = math.sqrt(1 - share**2) * means / means.norm() + share / math.sqrt(k) * common
        even = magnitude(-3, 3, generator) * even
        yield abs(violation((even, means)))
        for weight in (even, normal(k, d, generator=generator)):
            yield from climb(violation, (weight, means), generator, _STEPS)


def _even_means(k: int, d: int, generator: torch.Generator) -> Float[Tensor, "k d"]:
    """Return vectors whose Gram matrix is a multiple of a projector of rank d, sum zero."""
    turned = orthogonal_frame(d, k - 1, generator).mT
    return magnitude(-3, 3, generator) * simplex_basis(k) @ turned


def _descend(start: Float[Tensor, "k d"]) -> Float[Tensor, "k d"]:
    """Minimise the distance from the simplex by L-BFGS."""

    def evaluate(flat: object) -> tuple[float, object]:
        vectors = torch.tensor(flat, dtype=torch.float64).view_as(start).requires_grad_()
        gram = vectors @ vectors.mT
        value = (gram.mean() * len(gram) - gram.trace()) / gram.norm()
        (slope,) = torch.autograd.grad(value, vectors)
        return float(value.detach()), slope.flatten().numpy()

    options = {"maxiter": 2000, "ftol": 0.0, "gtol": 1e-13}
    done = minimize(evaluate, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(done.x).view_as(start)


def _problem(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw features, one-hot targets of unequal classes, and a head."""
    k, d = integer(2, 5, generator), integer(1, 4, generator)
    n = k + integer(5, 15, generator)
    labels = torch.cat([torch.arange(k), torch.randint(k, (n - k,), generator=generator)])
    targets = torch.nn.functional.one_hot(labels, k).double().mT
    features = normal(d, n, generator=generator) + choice((0.0, 1.0), generator)
    return features, targets, normal(k, d, generator=generator)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return -(targets * logits.log_softmax(0)).sum(0).mean()


def _smooth(logits: Tensor, targets: Tensor) -> Tensor:
    return _cross_entropy(logits, 0.9 * targets + 0.1 / len(targets))


def _brier(logits: Tensor, targets: Tensor) -> Tensor:
    return (logits.softmax(0) - targets).square().sum(0).mean()


def _squared_error(logits: Tensor, targets: Tensor) -> Tensor:
    """Return half the mean squared error under the best bias."""
    misses = logits - targets
    return (misses - misses.mean(1, keepdim=True)).square().sum(0).mean() / 2


def _objective(loss: _Loss, features: Tensor, targets: Tensor, decay: float) -> _Objective:
    def objective(weight: Tensor) -> Tensor:
        return loss(weight @ features, targets) + decay / 2 * weight.square().sum()

    return objective


def _slope(objective: _Objective, weight: Tensor) -> Tensor:
    here = weight.detach().requires_grad_()
    return torch.autograd.grad(objective(here), here)[0]


def _stationary(objective: _Objective, start: Tensor) -> Tensor:
    """Return a stationary head: L-BFGS from the start, then Newton steps."""

    def evaluate(flat: object) -> tuple[float, object]:
        weight = torch.tensor(flat, dtype=torch.float64).view_as(start)
        return float(objective(weight)), _slope(objective, weight).flatten().numpy()

    done = minimize(evaluate, start.flatten().numpy(), jac=True, method="L-BFGS-B")
    weight = torch.from_numpy(done.x).view_as(start)
    for _ in range(6):
        curvature = torch.autograd.functional.hessian(objective, weight)
        curvature = curvature.reshape(start.numel(), start.numel())
        slope = _slope(objective, weight).flatten()
        weight = weight - torch.linalg.solve(curvature, slope).view_as(weight)
    return weight


def _runge_kutta(objective: _Objective, here: Tensor, step: float) -> Tensor:
    """Take one step of the classical method of order four along minus the slope."""
    first = -_slope(objective, here)
    second = -_slope(objective, here + step / 2 * first)
    third = -_slope(objective, here + step / 2 * second)
    last = -_slope(objective, here + step * third)
    return here + step / 6 * (first + 2 * second + 2 * third + last)


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        id="field/simplex-rank",
        statement=(
            "K vectors in d < K - 1 dimensions have nc2_etf >= sqrt(2 - 2 sqrt(d / (K-1))), with "
            "equality if and only if their Gram matrix is a multiple of a projector of rank d "
            "whose rows sum to zero."
        ),
        source="The field, ours: K > d + 1 classes",
        tolerance=TOLERANCE,
        printed=few_dimensions,
    ),
    Statement(
        id="field/nc0-stationary",
        statement=(
            "A head W with decay lambda > 0 that is stationary under a loss of the softmax, or "
            "under squared error with a free bias, has W^T 1 = 0; under a loss of the softmax any "
            "head has NC0 <= ||gradient|| / (lambda ||W||_F)."
        ),
        source="The field, ours: NC0 is necessary",
        tolerance=TOLERANCE,
        printed=stationary_heads,
    ),
    Statement(
        id="field/nc0-flow",
        statement=(
            "Under gradient flow on a loss of the softmax W^T 1 = e^(-lambda t) times its start, "
            "and so is conserved without decay; a step of gradient descent multiplies it by 1 - "
            "eta lambda."
        ),
        source="The field, ours: NC0 in training",
        tolerance=TOLERANCE,
        printed=flows_of_heads,
    ),
    Statement(
        id="field/nc0-duality",
        statement=(
            "With means centred by their unweighted mean, nc3_self_duality >= 2 - 2 sqrt(1 - "
            "NC0^2); so self-duality needs NC0 = 0, and the bound is attained at every NC0."
        ),
        source="The field, ours: NC0 and NC3",
        tolerance=TOLERANCE,
        printed=self_dual_heads,
    ),
)
