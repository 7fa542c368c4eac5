"""Nuclear norms before and after the ReLU: the conjecture of XUFM appendix E."""

import math
from collections.abc import Iterator
from itertools import combinations

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope_lab.surrogates.extended import ExtendedUFM, nonzero_limit
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.theory.search import Instance, choice, climb, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.xufm_extended import TOLERANCE, draw_model, minimum

_STARTS = 8
_STEPS = 20
_GOLDEN = (math.sqrt(5) - 1) / 2


def orthogonal_columns_norm(columns: Float[Tensor, "d k"]) -> Float[Tensor, ""]:
    """Compute the nuclear norm of a matrix with orthogonal columns: the sum of their lengths."""
    return torch.linalg.vector_norm(columns, dim=0).sum()


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
        model = draw_model(5, d, share * nonzero_limit(3), "relu", generator)
        yield model, cheapest(model, cycle_of_five())
    for share in (magnitude(-6, -2, generator), magnitude(-2, 0, generator), 0.9, 0.999):
        d = 20 + integer(0, 3, generator)
        model = draw_model(15, d, share * nonzero_limit(3), "relu", generator)
        yield model, cheapest(model, triples_of_six())


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


STATEMENTS: tuple[Statement, ...] = (
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
        grade="false",
    ),
)
