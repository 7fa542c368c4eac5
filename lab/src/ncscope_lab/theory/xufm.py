"""The unconstrained features model under cross-entropy, and under the MSE loss (XUFM section 3)."""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.surrogates.descent import quasi_newton
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.surrogates.ufm import UFM
from ncscope_lab.surrogates.ufm_cross_entropy import CrossEntropyUFM
from ncscope_lab.theory.search import Instance, climb, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_CLASSES = (2, 3, 4, 7)


Model = UFM | CrossEntropyUFM


def energy(problem: UFM) -> float:
    r"""$(1-c)\sqrt{\lambda_W/(n\lambda_H)}$, or 0 if $c\ge1$: a mean's squared length in (7)."""
    return max(1 - problem.c, 0.0) / weight_ratio(problem)


def weight_ratio(problem: Model) -> float:
    r"""$\sqrt{n\lambda_H/\lambda_W}$: the factor of the class mean in (9) and (20)."""
    return math.sqrt(problem.per_class * problem.feature_decay / problem.weight_decay)


def frame_minimum(problem: UFM) -> float:
    r"""Return the least objective without a bias: $\frac12(2c-c^2)$, or $\frac12$ if $c\ge1$."""
    return lemma_minimum(problem.c)


def simplex_minimum(problem: UFM) -> float:
    r"""Return the minimum with a free bias: $\frac{K-1}K$ times `frame_minimum`."""
    return (1 - 1 / problem.num_classes) * lemma_minimum(problem.c)


def lemma_minimum(beta: float) -> float:
    r"""$\beta-\frac12\beta^2$ for $\beta\le1$, and $\frac12$ for $\beta\ge1$ (lemma A.1)."""
    return beta - beta**2 / 2 if beta < 1 else 0.5


def mean_value(problem: UFM) -> float:
    r"""Gain along the mean with regularised bias: $\max(0,1-c\frac{1+\lambda_b}{\lambda_b})$."""
    decay = problem.bias_decay or 0.0
    return max(0.0, 1 - problem.c * (1 + decay) / decay)


def minimum_with_bias_decay(problem: UFM) -> float:
    r"""Return the minimum with a regularised bias, $\omega=\lambda_b/(1+\lambda_b)$, for $c<1$."""
    k, decay, c = problem.num_classes, problem.bias_decay or 0.0, problem.c
    share = decay / (1 + decay)
    return ((k - 1) * c * (2 - c) + (c * (2 - c / share) if share > c else share)) / (2 * k)


def saddle_curvature(problem: UFM) -> float:
    r"""$-\frac2K(1-c)$: second derivative along an unused direction, as scaled in `_escape`."""
    return -2 / problem.num_classes * (1 - problem.c)


def logit_scale(problem: CrossEntropyUFM) -> float:
    r"""$\log\bigl(\frac Kc-K+1\bigr)$, or 0 if $c\ge1$: the logits of the class means over J."""
    k = problem.num_classes
    return math.log(k / problem.c - k + 1) if problem.c < 1 else 0.0


def cross_entropy_minimum(problem: CrossEntropyUFM) -> float:
    r"""$\alpha x-\log(1-x)$ with `logit_scale` $\alpha$, $x=\frac{K-1}K\min(c,1)$."""
    share = min(problem.c, 1.0) * (1 - 1 / problem.num_classes)
    return logit_scale(problem) * share - math.log1p(-share)


def simplices_under_cross_entropy(generator: torch.Generator) -> Iterator[float]:
    """Check the closed form of cross-entropy as `orthogonal_frames`, in K-1 or more dimensions."""
    for size in _problems(generator, lambda k: k - 1, lambda: None):
        k, decays = size.num_classes, (size.weight_decay, size.feature_decay)
        problem = CrossEntropyUFM(k, size.dim, size.per_class, *decays)
        gram = logit_scale(problem) / weight_ratio(problem) * _centring(k)
        yield from _minimisers(problem, gram, cross_entropy_minimum(problem), generator)


def orthogonal_frames(generator: torch.Generator) -> Iterator[float]:
    """XUFM theorem 3.1 with (10)-(13), at minimisers that a solver reaches from random starts."""
    for problem in _problems(generator, lambda k: k, lambda: None):
        gram = energy(problem) * torch.eye(problem.num_classes, dtype=torch.float64)
        yield from _minimisers(problem, gram, frame_minimum(problem), generator)


def simplices(generator: torch.Generator) -> Iterator[float]:
    """XUFM theorem 3.2 with (21)-(22), in K-1 or more dimensions."""
    for problem in _problems(generator, lambda k: k - 1, lambda: 0.0):
        gram = energy(problem) * _centring(problem.num_classes)
        yield from _minimisers(problem, gram, simplex_minimum(problem), generator)


def biases_with_decay(generator: torch.Generator) -> Iterator[float]:
    r"""Check the remark on $0<\lambda_b<\infty$, with the Gram matrix between simplex and frame."""
    for problem in _problems(generator, lambda k: k, lambda: magnitude(-2, 2, generator), most=0.9):
        k = problem.num_classes
        gram = energy(problem) * _centring(k) + mean_value(problem) / weight_ratio(problem) / k
        yield from _minimisers(problem, gram, minimum_with_bias_decay(problem), generator)


def strict_saddles(generator: torch.Generator) -> Iterator[float]:
    """XUFM section 3: every critical point other than a global minimiser is a strict saddle.

    The check covers every kind of critical point: a frame on r directions, r below K and d.
    """
    for problem in _problems(generator, lambda k: max(k - 1, 1), lambda: None, most=0.9):
        for rank in range(min(problem.num_classes, problem.dim)):
            point, escape = _saddle(problem, rank, generator)
            slopes = torch.cat([slope.flatten() for slope in problem.gradient(point)])
            yield float(slopes.norm())
            curvature = _second_derivative(problem, point, escape)
            yield abs(curvature / saddle_curvature(problem) - 1)


def frame_lemma(generator: torch.Generator) -> Iterator[float]:
    r"""XUFM lemma A.1: $\frac12(\alpha\cos\theta-1)^2+\beta\alpha$ over $\alpha\ge0$, $\theta$."""
    for beta in (0.01, 0.3, 0.9, 1.0, 1.1, 3.0):

        def violation(instance: Instance, beta: float = beta) -> float:
            alpha, theta = instance[0].abs(), instance[1]
            value = (alpha * theta.cos() - 1).square() / 2 + beta * alpha
            return float(lemma_minimum(beta) - value)

        best = torch.tensor(max(1 - beta, 0.0), dtype=torch.float64)
        yield abs(violation((best, torch.zeros(()))))
        for alpha in (best, magnitude(-2, 2, generator) * torch.ones(()).double()):
            angle = math.pi * normal(generator=generator)
            yield from climb(violation, (alpha, angle), generator, 40)


def simplex_lemma(generator: torch.Generator) -> Iterator[float]:
    r"""XUFM lemma B.1, over $\alpha\ge0$, $\theta$, and $\phi$ with $\cos\phi\ge-\frac1{K-1}$.

    $$\tfrac12\Bigl(\alpha\cos\theta-\frac{K-1}K\Bigr)^2
    +\frac{K-1}2\Bigl(\alpha\cos\phi+\frac1K\Bigr)^2+\beta\alpha$$
    """
    for beta in (0.01, 0.3, 0.9, 1.0, 1.1, 3.0):
        k = integer(2, 12, generator)

        def violation(instance: Instance, beta: float = beta, k: int = k) -> float:
            alpha, aligned, other = instance[0].abs(), instance[1].cos(), instance[2].cos()
            fit = (alpha * aligned - 1 + 1 / k).square()
            fit = fit + (k - 1) * (alpha * other.clamp(min=-1 / (k - 1)) + 1 / k).square()
            return float((1 - 1 / k) * lemma_minimum(beta) - fit / 2 - beta * alpha)

        best = (1 - 1 / k) * torch.tensor(max(1 - beta, 0.0), dtype=torch.float64)
        apart = torch.tensor(math.pi, dtype=torch.float64)
        yield abs(violation((best, torch.zeros(()), apart)))
        for alpha in (best, magnitude(-2, 2, generator) * torch.ones(()).double()):
            angles = math.pi * normal(2, generator=generator)
            yield from climb(violation, (alpha, angles[0], angles[1]), generator, 40)


def _problems(
    generator: torch.Generator,
    least_dim: Callable[[int], int],
    bias_decay: Callable[[], float | None],
    most: float = 3.0,
) -> Iterator[UFM]:
    """Yield four sizes each with few and with many dimensions, the last with c up to ``most``."""
    for k in _CLASSES:
        for extra, low, high in ((0, 0.02, 0.3), (1, 0.3, 0.9), (5, 0.7 * most, most)):
            c = low + (high - low) * float(torch.rand((), generator=generator))
            ratio, n = magnitude(-1, 1, generator), integer(1, 5, generator)
            yield UFM(k, least_dim(k) + extra, n, c / k / ratio, c / k * ratio / n, bias_decay())


def _minimisers(
    problem: Model,
    gram: Float[Tensor, "k k"],
    minimum: float,
    generator: torch.Generator,
) -> Iterator[float]:
    """Yield distances of a computed minimiser from the stated one; then search a lower objective.

    Distances of features and of weights are relative to their lengths or, if the stated minimiser
    is zero, to those of the start.
    """
    start = problem.start(generator)
    result = quasi_newton(problem, start)
    yield abs(result.objective / minimum - 1)
    weight, features = result.point[:2]
    length = gram.trace() if gram.any() else torch.tensor(float(problem.num_classes))
    size = (problem.per_class * length).sqrt()
    means = features.unflatten(1, (problem.num_classes, problem.per_class)).mean(2)
    collapsed = means.repeat_interleave(problem.per_class, 1)
    yield float((features - collapsed).norm() / size)
    ratio, scale = weight_ratio(problem), gram.trace() if gram.any() else torch.tensor(1.0)
    yield float((means.mT @ means - gram).norm() / scale)
    yield float((weight - ratio * means.mT).norm() / (ratio * scale.sqrt()))
    yield float((weight @ means - ratio * gram).norm() / (ratio * scale))
    if isinstance(problem, UFM):
        yield from _bias_misses(problem, result.point, ratio * gram)
    best = problem.minimiser(generator).point

    def violation(instance: Instance) -> float:
        return float(1 - problem.objective(instance) / minimum)

    yield abs(violation(best))
    yield from climb(violation, best, generator, 20)


def _bias_misses(problem: UFM, point: Point, logits: Float[Tensor, "k k"]) -> Iterator[float]:
    r"""(15), generalised to a decay of the bias: $b=\frac1{K(1+\lambda_b)}(I-W\bar H)\mathbf 1$."""
    if problem.bias_decay is not None:
        k = problem.num_classes
        stated = (1 - logits.sum(1)) / (k * (1 + problem.bias_decay))
        yield float((point[2] - stated).norm() * k**0.5)


def _centring(k: int) -> Float[Tensor, "k k"]:
    return torch.eye(k, dtype=torch.float64) - 1 / k


def _saddle(problem: UFM, rank: int, generator: torch.Generator) -> tuple[Point, Point]:
    """Return a critical point of given rank, and a direction that lowers the objective."""
    classes, _ = torch.linalg.qr(normal(problem.num_classes, rank + 1, generator=generator))
    axes, _ = torch.linalg.qr(normal(problem.dim, rank + 1, generator=generator))
    means = energy(problem) ** 0.5 * axes[:, :rank] @ classes[:, :rank].mT
    escape = weight_ratio(problem) ** -0.5 * axes[:, rank:] @ classes[:, rank:].mT
    n, ratio = problem.per_class, weight_ratio(problem)
    point = (ratio * means.mT, means.repeat_interleave(n, 1))
    return point, (ratio * escape.mT, escape.repeat_interleave(n, 1))


def _second_derivative(problem: UFM, point: Point, direction: Point) -> float:
    step = torch.zeros((), dtype=torch.float64, requires_grad=True)
    moved = tuple(part + step * way for part, way in zip(point, direction, strict=True))
    (slope,) = torch.autograd.grad(problem.objective(moved), step, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, step)
    return float(curvature)


STATEMENTS = (
    Statement(
        id="xufm/cross-entropy",
        statement=(
            "With cross-entropy in place of squared error, without a bias, d >= K-1 and c < 1, "
            "every minimiser is collapsed on a simplex ETF with W = sqrt(n lambda_H / lambda_W) "
            "H^T of the class means and their logits log(K/c - K + 1) (I - 1/K); if c >= 1 it is "
            "zero."
        ),
        source="XUFM abstract, of earlier papers; Zhu et al. 2021, theorem 3.1",
        tolerance=TOLERANCE,
        printed=simplices_under_cross_entropy,
    ),
    Statement(
        id="xufm/theorem-3.1",
        statement=(
            "Without a bias and with d >= K, c = K sqrt(n lambda_H lambda_W) < 1, every minimiser "
            "is collapsed on an orthogonal frame with h_k^T h_k = (1-c) sqrt(lambda_W / "
            "(n lambda_H)) and w_k = sqrt(n lambda_H / lambda_W) h_k; if c >= 1 it is zero."
        ),
        source="XUFM theorem 3.1, (5)-(13), as restored from its proof",
        tolerance=TOLERANCE,
        printed=orthogonal_frames,
    ),
    Statement(
        id="xufm/theorem-3.2",
        statement=(
            "With a free bias and c < 1, every minimiser has b = 1/K and h_G = 0 and is collapsed "
            "on a simplex ETF, w_k = sqrt(n lambda_H / lambda_W) h_k; if c >= 1 then W = H = 0."
        ),
        source="XUFM theorem 3.2, (14)-(22), as restored from its proof",
        tolerance=TOLERANCE,
        printed=simplices,
    ),
    Statement(
        id="xufm/remark-3.2",
        statement=(
            "With 0 < lambda_b < infinity and c < 1, W is aligned with H and H - h_G is a "
            "simplex ETF, while H is neither a simplex ETF nor an orthogonal frame if lambda_b > "
            "c / (1-c)."
        ),
        source="XUFM 3.2, remark on the regularised bias",
        tolerance=TOLERANCE,
        printed=biases_with_decay,
    ),
    Statement(
        id="xufm/remark-3",
        statement=(
            "Without a bias, every critical point that is not a global minimiser is a strict "
            "saddle."
        ),
        source="XUFM 3, remark on the optimization procedure",
        tolerance=TOLERANCE,
        printed=strict_saddles,
    ),
    Statement(
        id="xufm/lemma-a.1",
        statement=(
            "(alpha cos theta - 1)^2 / 2 + beta alpha with alpha >= 0 is least at theta = 0 and "
            "alpha = max(1 - beta, 0)."
        ),
        source="XUFM lemma A.1, as restored from its proof",
        tolerance=TOLERANCE,
        printed=frame_lemma,
    ),
    Statement(
        id="xufm/lemma-b.1",
        statement=(
            "(alpha cos theta - (K-1)/K)^2 / 2 + (K-1) (alpha cos phi + 1/K)^2 / 2 + beta alpha "
            "with alpha >= 0, cos phi >= -1/(K-1) is least at theta = 0, cos phi = -1/(K-1) and "
            "alpha = (K-1)/K max(1 - beta, 0)."
        ),
        source="XUFM lemma B.1, as restored from its proof",
        tolerance=TOLERANCE,
        printed=simplex_lemma,
    ),
)
