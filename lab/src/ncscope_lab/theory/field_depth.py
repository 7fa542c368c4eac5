r"""Deep unconstrained features: points of lower rank than collapse with a smaller objective.

A model has M factors with decays, the free features among them: $W_{M-1},\dots,W_1$ and $H_1$. As
ReLU is positively homogeneous, factors can be scaled against each other without a change of the
logits, and the least decay of a chain of class means is
$\frac M2(n\prod_l\lambda_l)^{1/M}\prod_l\lVert A_l\rVert_F^{2/M}$. Two chains with the same logits
are therefore ordered by the products of their Frobenius norms, whatever the decays and the loss.
"""

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from ncscope_lab.surrogates.extended import ExtendedUFM, best_product, nonzero_limit
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.theory.search import Instance, choice, climb, integer, magnitude
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_STEPS = 20
_STRICT = 1e-6  # relative gap below which two objectives count as equal

Chain = list[Float[Tensor, "_r _c"]]


def schatten_decay(logits: Float[Tensor, "k k"], factors: int, kappa: float) -> float:
    r"""$\frac M2\kappa\sum_js_j^{2/M}$: least decay of M linear factors with this product."""
    values = torch.linalg.svdvals(logits)
    values = values[values > 1e-9 * values[0]]  # the power of a rounded zero is no rounding
    return float(factors / 2 * kappa * values.pow(2 / factors).sum())


def logits_at_collapse(k: int) -> Float[Tensor, "k k"]:
    """Return the logits of a collapsed point: every margin is 1."""
    return torch.eye(k, dtype=torch.float64) - 1 / k


def logits_of_pairs(k: int) -> Float[Tensor, "k k"]:
    """Return logits of rank (K + 1) // 2 and no margin below 1: opposite pairs of classes.

    If K is odd, three of the classes form a triangle.
    """
    pair = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    triangle = 1.5 * logits_at_collapse(3)
    blocks = [triangle] * (k % 2) + [pair] * (k // 2 - k % 2)
    return torch.block_diag(*blocks)


def pairs_beat_the_simplex(generator: torch.Generator) -> Iterator[float]:
    r"""Compare opposite pairs with the simplex at every scale, decay and depth drawn.

    Proof: at the scale s all margins of the simplex are s and its decay is
    $\frac M2\kappa(K-1)s^{2/M}$. The pairs have no margin below s, and one above, hence a smaller
    loss, and the decay $\frac M2\kappa s^{2/M}$ times $\frac K22^{2/M}$ or, for odd K,
    $2\cdot1.5^{2/M}+\frac{K-3}22^{2/M}$. Both are below K - 1 from K = 6 on for M = 3, and from
    K = 4 on for M > 3.
    """
    shapes = (logits_at_collapse, logits_of_pairs)
    for factors in (3, 3, 3, 4, 4, 5, 6, 8):
        k = integer(6 if factors == 3 else 4, 13, generator)
        decays = [magnitude(-4, 0, generator) for _ in range(factors)]
        kappa = math.prod(decays) ** (1 / factors)
        scale = magnitude(-1, 1.3, generator)
        simplex, pairs = (_point(scale * shape(k), decays) for shape in shapes)
        for point, shape in zip((simplex, pairs), shapes, strict=True):
            logits = scale * shape(k)
            stated = _cross_entropy(logits) + schatten_decay(logits, factors, kappa)
            yield abs(_objective(point, decays) / stated - 1)
        yield _not_below(_objective(pairs, decays), _objective(simplex, decays))
        best = [_best_scaled(shape(k), factors, 0.1 * kappa) for shape in shapes]
        zero = math.log(k)
        yield 0.0 if best[0] > zero * (1 - _STRICT) else _not_below(best[1], best[0])


def minimum_at_collapse(model: ExtendedUFM) -> float:
    """Return the least objective of a collapsed point of the model under squared error."""
    return model.objective_at_collapse()


def relu_chain(factors: int, k: int, core: int) -> tuple[Chain, int]:
    """Return class means' factors with the identity as logits, and the rank before the last ReLU.

    The first classes, as many as ``core``, are pairs out of four, five or six points. The features
    hold the points of each pair; the last hidden layer reads triples of points or, out of four
    points, pairs. All other classes have a unit of their own at each level.

    Args:
        factors: M.
        k: Number of classes.
        core: 6, 10 or 15.
    """
    points = {6: 4, 10: 5, 15: 6}[core]
    pairs = list(combinations(range(points), 2))
    members = torch.zeros(points, core, dtype=torch.float64)
    for index, pair in enumerate(pairs):
        members[list(pair), index] = 1.0
    read = list(combinations(range(points), 2 if points == 4 else 3))
    reads = torch.full((len(read), points), -0.5, dtype=torch.float64)
    for index, chosen in enumerate(read):
        reads[index, list(chosen)] = 0.5
    before = reads @ members
    head = torch.linalg.pinv(before.clamp(min=0))
    if factors == 3:
        chain = [head, *_split(before)]
    else:
        kept = [torch.eye(points, dtype=torch.float64)] * (factors - 4)
        chain = [head, reads, *kept, *_split(members)]
    return chain, int(torch.linalg.matrix_rank(before))


def low_rank_under_squared_error(generator: torch.Generator) -> Iterator[float]:
    r"""Compare chains of low rank with the collapsed point of the deep ReLU model.

    Proof: both have the logits $pI$; see the module. The squared products of the norms are
    $\frac{65}{12}\cdot(5\sqrt{24})^2$ against $15^3$ for M = 3, and for more factors those of
    `relu_chain` against $K^M$; a further level multiplies them by the number of points and by K.
    """
    for factors in (3, 3, 4, 4, 5, 5, 6, 8):
        least = 15 if factors == 3 else 10 if factors == 4 else 6
        core = choice([size for size in (6, 10, 15) if size >= least], generator)
        k = core + integer(0, 4, generator)
        share = choice((magnitude(-6, -1, generator), 0.5, 0.999), generator)
        model = _relu_model(factors, k, share * nonzero_limit(factors), generator)
        chain, rank = relu_chain(factors, k, core)
        gain = best_product(factors, model.load)
        point, before = _scale_point(model, chain, gain)
        yield abs(int(torch.linalg.matrix_rank(before)) - (rank + k - core))
        yield float(rank >= core)
        targets = torch.eye(k, dtype=torch.float64).repeat_interleave(model.per_class, 1)
        yield float((_relu_logits(point) - gain * targets).norm())
        yield _not_below(float(model.objective(point)), minimum_at_collapse(model))


def low_rank_under_cross_entropy(generator: torch.Generator) -> Iterator[float]:
    r"""Compare chains of low rank with collapse under any loss, both with the logits $sJ$.

    The collapsed chain has an orthogonal frame at each level and $J$ times it as head, so the
    squared product of its norms is $(K-1)K^{M-1}$. The head of the low-rank chain is $J$ times that
    of `relu_chain`.
    """
    for factors in (4, 4, 5, 5, 6, 8):
        core = choice((10, 15) if factors == 4 else (6, 10, 15), generator)
        decays = [magnitude(-4, 0, generator) for _ in range(factors)]
        scale = magnitude(-1, 1.3, generator)
        chain, rank = relu_chain(factors, core, core)
        identity = torch.eye(core, dtype=torch.float64)
        chains = (chain, [identity] * factors)
        objectives = []
        for one in chains:
            one = [logits_at_collapse(core) @ one[0], *one[1:]]
            point = _balance(one, decays, scale)
            yield float((_relu_logits(point) - scale * logits_at_collapse(core)).norm() / scale)
            objectives.append(_objective(point, decays, relu=True))
        yield float(rank >= core)
        yield _not_below(*objectives)


def linear_squared_error(generator: torch.Generator) -> Iterator[float]:
    r"""Check that no point of the linear model under squared error is below the collapsed one.

    Proof: docs/models/extended.md: the least objective at rank r is
    $\frac1K\left[r\,g(p)+\frac{K-r}2\right]$, and $g(p)<\frac12$ below the limit of the load.
    """
    for factors in (2, 3, 3, 4, 4, 5):
        k, n = integer(2, 6, generator), integer(1, 3, generator)
        d = k + integer(0, 3, generator)
        rank = integer(1, k, generator)
        share = 1 - magnitude(-4, -0.01, generator)
        decays = _decays(factors, n, share * nonzero_limit(factors) / k, generator)
        whole, thin = (ExtendedUFM(k, dim, n, decays[:-1], decays[-1]) for dim in (d, min(rank, k)))
        least = minimum_at_collapse(whole)
        yield max(least / thin.objective_at_collapse() - 1, 0.0)

        def violation(instance: Instance, model: ExtendedUFM = thin, least: float = least) -> float:
            return 1 - float(model.objective(instance)) / least

        for start in (thin.point_at_collapse(), thin.start(generator)):
            yield from climb(violation, start, generator, _STEPS)


def _not_below(value: float, other: float) -> float:
    """Return 0 if the value is smaller than the other, not by rounding only; else 1 or the gap."""
    return 0.0 if value < other * (1 - _STRICT) else 1.0 + value / other


def _split(product: Float[Tensor, "r c"]) -> Chain:
    """Return two factors of the product with the least product of Frobenius norms."""
    left, values, right = torch.linalg.svd(product, full_matrices=False)
    root = values.sqrt()
    return [left * root, root[:, None] * right]


def _point(logits: Float[Tensor, "k k"], decays: list[float]) -> Point:
    """Return linear factors of the logits with the least decay."""
    left, values, right = torch.linalg.svd(logits)
    root = torch.where(values > 1e-9 * values[0], values, 0.0).pow(1 / len(decays))
    middle = [torch.diag(root)] * (len(decays) - 2)
    return _balance([left * root, *middle, root[:, None] * right], decays, 1.0)


def _balance(chain: Chain, decays: list[float], scale: float) -> Point:
    """Scale the factors of a chain so that their decays are equal and the logits ``scale`` times.

    The chain's product is kept but for the scale, so a ReLU between any two factors commutes.
    """
    costs = [decay * float(part.square().sum()) for decay, part in zip(decays, chain, strict=True)]
    equal = (scale**2 * math.prod(costs)) ** (1 / len(chain))
    return tuple(math.sqrt(equal / cost) * part for cost, part in zip(costs, chain, strict=True))


def _cross_entropy(logits: Float[Tensor, "k k"]) -> float:
    return float(torch.nn.functional.cross_entropy(logits.mT, torch.arange(len(logits))))


def _relu_logits(point: Point) -> Float[Tensor, "k n"]:
    *weights, features = point
    for weight in weights[:0:-1]:
        features = (weight @ features).clamp(min=0)
    return weights[0] @ features


def _objective(point: Point, decays: list[float], relu: bool = False) -> float:
    """Compute the cross-entropy of one sample for each class, with half the decays."""
    logits = _relu_logits(point) if relu else torch.linalg.multi_dot(point)
    paid = sum(d / 2 * float(part.square().sum()) for d, part in zip(decays, point, strict=True))
    return _cross_entropy(logits) + paid


def _best_scaled(shape: Float[Tensor, "k k"], factors: int, kappa: float) -> float:
    """Return the least objective over the multiples of the logits."""

    def value(exponent: float) -> float:
        logits = math.exp(exponent) * shape
        return _cross_entropy(logits) + schatten_decay(logits, factors, kappa)

    near = min((index / 4 for index in range(-8, 17)), key=value)
    bounds = (near - 0.25, near + 0.25)
    return min(value(near), float(minimize_scalar(value, bounds=bounds, method="bounded").fun))


def _decays(
    factors: int, per_class: int, kappa: float, generator: torch.Generator
) -> tuple[float, ...]:
    r"""Draw decays with a given $(n\prod_l\lambda_l)^{1/M}$."""
    drawn = [magnitude(-3, 1, generator) for _ in range(factors - 1)]
    return (*drawn, kappa**factors / per_class / math.prod(drawn))


def _relu_model(factors: int, k: int, load: float, generator: torch.Generator) -> ExtendedUFM:
    n = integer(1, 3, generator)
    *weights, features = _decays(factors, n, load / k, generator)
    dim = k + 5 + integer(0, 2, generator)
    return ExtendedUFM(k, dim, n, tuple(weights), features, "relu")


def _scale_point(model: ExtendedUFM, chain: Chain, gain: float) -> tuple[Point, Tensor]:
    """Return the point of the model with the chain and a frame for the classes that it lacks.

    Both parts are balanced by themselves. Also returned: the class means before the last ReLU.
    """
    *weight_decays, feature_decay = model.decays
    decays = [*weight_decays, model.per_class * feature_decay]
    core, k, d = chain[-1].shape[1], model.num_classes, model.dim
    rest = torch.eye(k - core, dtype=torch.float64)
    parts = _balance(chain, decays, gain)
    others = _balance([rest] * len(chain), decays, gain) if k > core else [rest] * len(chain)
    blocks = [torch.block_diag(*pair) for pair in zip(parts, others, strict=True)]
    sizes = [k, *[d] * (len(chain) - 1), k]
    padded = [
        torch.nn.functional.pad(block, (0, columns - block.shape[1], 0, rows - block.shape[0]))
        for block, rows, columns in zip(blocks, sizes[:-1], sizes[1:], strict=True)
    ]
    *weights, means = padded
    before = weights[-1] @ means
    for weight in weights[-2:0:-1]:
        before = weight @ before.clamp(min=0)
    return (*weights, means.repeat_interleave(model.per_class, 1)), before


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        id="field/deep-cross-entropy",
        statement=(
            "With M factors, linear, cross-entropy and decay on all, K >= 6 for M = 3 and K >= 4 "
            "for M > 3: at every scale and all decays a point of rank (K+1) // 2 made of opposite "
            "pairs has a smaller objective than the simplex ETF."
        ),
        source="Garrod and Keating 2025, theorem 1, restated",
        tolerance=TOLERANCE,
        printed=pairs_beat_the_simplex,
    ),
    Statement(
        id="field/deep-mse-relu",
        statement=(
            "With ReLU between M factors, squared error, decay on all and wide layers, at every "
            "load below the limit of collapse, a point with rank below K before the last ReLU has "
            "a smaller objective than collapse: for M = 3, K >= 15; M = 4, K >= 10; M >= 5, K >= 6."
        ),
        source="Sukenik, Mondelli and Lampert 2024, restated; M = 3 is ours",
        tolerance=TOLERANCE,
        printed=low_rank_under_squared_error,
    ),
    Statement(
        id="field/deep-relu-any-loss",
        statement=(
            "With ReLU between M factors and decay on all, K = 10 or 15 for M = 4 and K = 6, 10 or "
            "15 for M >= 5, at every scale and all decays: a point with the logits of collapse, "
            "hence its loss, and with rank below K before the last ReLU has a smaller decay."
        ),
        source="Ours, after Sukenik, Mondelli and Lampert 2024",
        tolerance=TOLERANCE,
        printed=low_rank_under_cross_entropy,
    ),
    Statement(
        id="field/deep-mse-linear",
        statement=(
            "With M linear factors, squared error, d >= K and a load below the limit, no point, "
            "whatever its rank, has a smaller objective than the collapsed one."
        ),
        source="Ours, as XUFM theorem 4.1 for any depth",
        tolerance=TOLERANCE,
        printed=linear_squared_error,
    ),
)
