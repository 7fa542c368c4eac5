"""Extended models, linear and ReLU (XUFM theorems 4.1 and 4.2)."""

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.lab.surrogates.extended import (
    Activation,
    ExtendedUFM,
    best_product,
    nonzero_limit,
)
from ncscope.lab.surrogates.problem import Point
from ncscope.lab.theory.search import Instance, choice, climb, integer, magnitude, normal
from ncscope.lab.theory.statement import Statement
from ncscope.math.frames import orthogonal_frame

TOLERANCE = 1e-9
_STARTS = 8
_STEPS = 20
_GOLDEN = (math.sqrt(5) - 1) / 2


def minimum(load: float) -> float:
    r"""Return the least value of (23) where $d\ge K$: $g(p)=\frac12(1-p)^2+\frac32p(1-p)$."""
    p = best_product(3, load)
    return (1 - p) ** 2 / 2 + 1.5 * p * (1 - p) if p > 0 else 0.5


def orthogonal_columns_norm(columns: Float[Tensor, "d k"]) -> Float[Tensor, ""]:
    """Compute the nuclear norm of a matrix with orthogonal columns: the sum of their lengths."""
    return torch.linalg.vector_norm(columns, dim=0).sum()


def frames_below_limit(generator: torch.Generator) -> Iterator[float]:
    """Theorem 4.1 at minimisers; all of them are covered, up to the choice of two frames."""
    for _ in range(_STARTS):
        model = loaded_model(generator, 1 - magnitude(-6, -0.01, generator), "linear")
        yield from _collapsed_minimiser(
            model, linear_minimiser(model, model.num_classes, generator)
        )
        yield from _none_lower(model, generator)


def frames_at_any_load(generator: torch.Generator) -> Iterator[float]:
    """Check the statement also at the load where a gain of 0 is as good as the larger root."""
    yield from frames_below_limit(generator)
    model = loaded_model(generator, 1.0, "linear")
    rank = integer(1, model.num_classes - 1, generator)
    point = linear_minimiser(model, rank, generator)
    yield from _collapsed_minimiser(model, point)


def relu_frames_below_limit(generator: torch.Generator) -> Iterator[float]:
    """Theorem 4.2 at points that satisfy its assumption and attain the bound in its proof."""
    for _ in range(_STARTS):
        model = loaded_model(generator, 1 - magnitude(-6, -0.01, generator), "relu")
        yield from _collapsed_relu(model, _relu_minimiser(model, model.num_classes, generator))


def relu_frames_at_any_load(generator: torch.Generator) -> Iterator[float]:
    """Check the statement also at the load where minimisers of every rank exist."""
    yield from relu_frames_below_limit(generator)
    model = loaded_model(generator, 1.0, "relu")
    rank = integer(1, model.num_classes - 1, generator)
    yield from _collapsed_relu(model, _relu_minimiser(model, rank, generator))


def nuclear_norms_agree(generator: torch.Generator) -> Iterator[float]:
    r"""Check the conjecture at points that beat all points with equal nuclear norms.

    If the norms are equal, the objective is that of (23) at $(W_2,\phi(W_1H_1))$ and hence at least
    `minimum`. The deviation is the difference of the norms, relative to that of $W_1H_1$.
    """
    for model, point in _unequal(generator):
        before = point[1] @ point[2]
        norms = [torch.linalg.svdvals(part).sum() for part in (before, before.clamp(min=0))]
        lower = model.objective(point) < minimum(model.load)
        yield float((norms[1] - norms[0]).abs() / norms[0]) if lower else 0.0


def frames_keep_the_norm(generator: torch.Generator) -> Iterator[float]:
    r"""$\lVert Z\rVert_*\ge\lVert\phi(Z)\rVert_*$ if the columns of $\phi(Z)$ are orthogonal.

    Also check that points with other columns beat every point with orthogonal columns.
    """
    for model, point in _unequal(generator):
        yield max(float(model.objective(point)) / minimum(model.load) - 1, 0.0)
    for _ in range(_STARTS):
        k = integer(2, 7, generator)
        pattern = _non_negative_frame(k, k + integer(0, 5, generator), generator)
        columns = pattern * (0.1 + torch.rand(k, dtype=torch.float64, generator=generator))

        def violation(instance: Instance, columns: Tensor = columns) -> float:
            off = -instance[0].abs() * (columns == 0)
            bound = orthogonal_columns_norm(columns)
            return float((bound - torch.linalg.svdvals(columns + off).sum()) / bound)

        yield from climb(
            violation, (normal(*columns.shape, generator=generator),), generator, _STEPS
        )
        # Equality case: the pattern times a positive semidefinite matrix without positive
        # off-diagonal entries.
        completed = pattern @ _completion(k, generator)
        norm = orthogonal_columns_norm(pattern)
        yield float((torch.linalg.svdvals(completed).sum() - norm).abs() / norm)


def cycle_of_five() -> Float[Tensor, "5 5"]:
    """Return five classes on a cycle, with one unit for each pair of neighbours.

    A unit has the value 1 on its two classes. Its negative value on the opposite class is such that
    two of the five singular values vanish.
    """
    row = torch.tensor([1.0, 1.0, 0.0, -_GOLDEN, 0.0], dtype=torch.float64)
    return torch.stack([row.roll(shift) for shift in range(5)])


def triples_of_six() -> Float[Tensor, "20 15"]:
    """Return pairs of six points as classes and triples as units.

    A unit has the value 1 on pairs inside its triple, -1 on pairs outside, and 0 on the other
    pairs. The matrix has rank 5.
    """
    pairs, triples = (list(combinations(range(6), size)) for size in (2, 3))
    inside = [[len({*pair} & {*triple}) - 1.0 for pair in pairs] for triple in triples]
    return torch.tensor(inside, dtype=torch.float64)


def cheapest(model: ExtendedUFM, shape: Float[Tensor, "u k"]) -> Point:
    """Return the best point whose pre-activations are a multiple of the shape, from a grid."""
    last, first, features = model.decays
    # Scale the grid by the decays: the best multiple grows as the decays of W1 and H1 fall
    # relative to that of W2.
    unit = (last**2 / (first * features * model.per_class)) ** (1 / 6)
    multiples = [unit * 10 ** (index / 20 - 1) for index in range(41)]
    points = [_with_preactivations(model, multiple * shape) for multiple in multiples]
    return min(points, key=lambda point: float(model.objective(point)))


def _with_preactivations(model: ExtendedUFM, shape: Float[Tensor, "u k"]) -> Point:
    """Return balanced W1 and H1 whose product is the shape, padded by zeros, and the best W2."""
    last, first, feature_decay = model.decays
    d, k = model.dim, model.num_classes
    before = torch.zeros(d, k, dtype=torch.float64)
    before[: len(shape)] = shape
    after = before.clamp(min=0)
    gram = after @ after.mT + k * last * torch.eye(d, dtype=torch.float64)
    left, values, right = torch.linalg.svd(before, full_matrices=False)
    balance = (feature_decay * model.per_class / first) ** 0.25
    weights, means = torch.zeros(2, d, max(d, k), dtype=torch.float64)
    weights[:, :k] = balance * left * values.sqrt()
    means[:k, :k] = values.sqrt()[:, None] * right / balance
    features = means[:, :k].repeat_interleave(model.per_class, 1)
    return torch.linalg.solve(gram, after).mT, weights[:, :d], features


def _unequal(generator: torch.Generator) -> Iterator[tuple[ExtendedUFM, Point]]:
    """Yield points that beat all points of equal nuclear norms, for 5 and 15 classes."""
    for share in (0.95, 0.97, 0.99, 0.999):
        d = 5 + integer(0, 3, generator)
        model = _model(5, d, share * nonzero_limit(3), "relu", generator)
        yield model, cheapest(model, cycle_of_five())
    for share in (magnitude(-6, -2, generator), magnitude(-2, 0, generator), 0.9, 0.999):
        d = 20 + integer(0, 3, generator)
        model = _model(15, d, share * nonzero_limit(3), "relu", generator)
        yield model, cheapest(model, triples_of_six())


def _model(
    k: int, d: int, load: float, activation: Activation, generator: torch.Generator
) -> ExtendedUFM:
    """Build a model of three factors with random decays that have the given load."""
    n = integer(1, 3, generator)
    last, first = magnitude(-4, 1, generator), magnitude(-4, 1, generator)
    feature_decay = (load / k) ** 3 / (n * last * first)
    return ExtendedUFM(k, d, n, (last, first), feature_decay, activation)


def loaded_model(generator: torch.Generator, share: float, activation: Activation) -> ExtendedUFM:
    """Draw a model of three factors whose load is a given share of the limit."""
    k = integer(2, 6, generator)
    return _model(k, k + integer(0, 5, generator), share * nonzero_limit(3), activation, generator)


def _scales(model: ExtendedUFM) -> list[float]:
    """Return the singular values of the factors: theorem 4.1's gain, balanced by the decays."""
    # At the limit `best_product` returns 0; the larger root, which is needed here, is 1/2.
    p = best_product(3, model.load) if model.load < nonzero_limit(3) * (1 - 1e-12) else 0.5
    share = model.load / model.num_classes * p ** (2 / 3)
    last, first, feature_scale = (math.sqrt(share / decay) for decay in model.decays)
    return [last, first, feature_scale / math.sqrt(model.per_class)]


def linear_minimiser(model: ExtendedUFM, rank: int, generator: torch.Generator) -> Point:
    """Return a minimiser with two random frames; at rank K all minimisers have this form."""
    k, d = model.num_classes, model.dim
    last, first, feature_scale = _scales(model)
    shallow, deep = (orthogonal_frame(k, d, generator) for _ in range(2))
    kept, _ = torch.linalg.qr(normal(k, rank, generator=generator))
    kept = kept @ kept.mT
    features = (feature_scale * shallow.mT @ kept).repeat_interleave(model.per_class, 1)
    return last * kept @ deep, first * deep.mT @ kept @ shallow, features


def _relu_minimiser(model: ExtendedUFM, rank: int, generator: torch.Generator) -> Point:
    r"""Return non-negative deep features and a $W_1H_1$ of the same nuclear norm."""
    k, d, n = model.num_classes, model.dim, model.per_class
    last, first, feature_scale = _scales(model)
    pattern = _non_negative_frame(k, d, generator)
    kept = torch.zeros(k, dtype=torch.float64)
    kept[:rank] = 1.0
    completed = kept[:, None] * _completion(k, generator) * kept
    values, vectors = torch.linalg.eigh(completed)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.mT
    shallow = orthogonal_frame(k, d, generator)
    features = feature_scale * shallow.mT @ root
    weights = first * pattern @ root @ shallow
    return last * (pattern * kept).mT, weights, features.repeat_interleave(n, 1)


def _non_negative_frame(k: int, d: int, generator: torch.Generator) -> Float[Tensor, "d k"]:
    """Return orthonormal columns without negative entries; their supports are disjoint."""
    owner = torch.cat([torch.arange(k), torch.randint(k, (d - k,), generator=generator)])
    columns = torch.zeros(d, k, dtype=torch.float64)
    columns[torch.arange(d), owner] = torch.rand(d, dtype=torch.float64, generator=generator) + 0.1
    return columns / torch.linalg.vector_norm(columns, dim=0)


def _completion(k: int, generator: torch.Generator) -> Float[Tensor, "k k"]:
    """Draw a PSD matrix of unit diagonal, off-diagonal entries <= 0: I, a simplex, or random."""
    weights = torch.rand(k, k, dtype=torch.float64, generator=generator)
    weights = choice((weights + weights.mT, torch.ones(k, k, dtype=torch.float64)), generator)
    weights = weights - torch.diag(weights.diagonal())
    share = choice((0.0, 0.5, 1.0), generator)
    return torch.eye(k, dtype=torch.float64) - share * weights / torch.linalg.eigvalsh(weights)[-1]


def _collapsed_minimiser(model: ExtendedUFM, point: Point) -> Iterator[float]:
    """Yield the deviations of a point from theorem 4.1's statement, and from a minimum."""
    last, first, features = point
    yield from _at_minimum(model, point)
    yield _off_frame(features, last @ first, model)
    yield _off_frame(first @ features, last, model)


def _collapsed_relu(model: ExtendedUFM, point: Point) -> Iterator[float]:
    """Yield the deviations of a point from theorem 4.2's assumption, conclusion and minimum."""
    last, first, features = point
    before = first @ features
    after = before.clamp(min=0)
    norms = [torch.linalg.svdvals(part).sum() for part in (before, after)]
    yield float((norms[1] - norms[0]).abs() / norms[0])
    yield from _at_minimum(model, point)
    yield _off_frame(after, last, model)


def _at_minimum(model: ExtendedUFM, point: Point) -> Iterator[float]:
    value = minimum(model.load)
    yield abs(float(model.objective(point)) - value) / value
    for slope, part, decay in zip(model.gradient(point), point, model.decays, strict=True):
        yield float(slope.norm() / (decay * part.norm()))


def _off_frame(features: Tensor, weight: Tensor, model: ExtendedUFM) -> float:
    """Return the distance from collapse to an orthogonal frame with an aligned weight."""
    means = features.unflatten(1, (model.num_classes, -1)).mean(2)
    within = (features - means.repeat_interleave(model.per_class, 1)).norm() / features.norm()
    gram = means.mT @ means
    frame = torch.eye(model.num_classes, dtype=torch.float64) * gram.diagonal().mean()
    aligned = (weight / weight.norm() - means.mT / means.norm()).norm()
    return float(torch.stack([within, (gram - frame).norm() / frame.norm(), aligned]).max())


def _none_lower(model: ExtendedUFM, generator: torch.Generator) -> Iterator[float]:
    """Search points near the minimiser and far from it for a lower objective."""
    value = minimum(model.load)
    start = linear_minimiser(model, model.num_classes, generator)
    yield from climb(
        lambda point: (value - float(model.objective(point))) / value, start, generator, _STEPS
    )


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        id="xufm/theorem-4.1",
        statement=(
            "At every nonzero global minimiser of (23), d >= K, H1 and W1 H1 collapse to "
            "orthogonal frames, W2 is aligned with W1 H1 and W2 W1 with H1; corrected: this "
            "needs K (n lambda_2 lambda_1 lambda_H)^(1/3) < 2^(-4/3); nonzero minimisers also "
            "exist at equality, and there in every rank."
        ),
        source="XUFM theorem 4.1",
        tolerance=TOLERANCE,
        printed=frames_at_any_load,
        corrected=frames_below_limit,
    ),
    Statement(
        id="xufm/theorem-4.2",
        statement=(
            "If ||W1 H1||_* = ||relu(W1 H1)||_* at a nonzero global minimiser of (24), d >= K, "
            "then H2 = relu(W1 H1) collapses to an orthogonal frame and W2 is aligned with H2"
            "; corrected: this needs K (n lambda_2 lambda_1 lambda_H)^(1/3) < 2^(-4/3), as theorem "
            "4.1 does."
        ),
        source="XUFM theorem 4.2",
        tolerance=TOLERANCE,
        printed=relu_frames_at_any_load,
        corrected=relu_frames_below_limit,
    ),
    Statement(
        id="xufm/conjecture-4.2",
        statement=(
            "||W1 H1||_* = ||relu(W1 H1)||_* at every global minimiser of (24); corrected: ||W1 "
            "H1||_* >= ||relu(W1 H1)||_* where the columns of relu(W1 H1) are orthogonal; for K "
            "= 15, d >= 20 at every load checked, from 1e-6 to 0.999 of the limit, and for K = 5 "
            "at every load checked from 0.95 to 0.999 of the limit, a point with ||W1 H1||_* < "
            "||relu(W1 H1)||_* beats all points where they are equal."
        ),
        source="XUFM appendix E",
        tolerance=TOLERANCE,
        printed=nuclear_norms_agree,
        corrected=frames_keep_the_norm,
    ),
)
