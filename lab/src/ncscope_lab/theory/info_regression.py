"""Regression between two representations, their ranks and entropies (INFO section 4.2).

Representations are d x N as in the paper, with one sample per column.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from ncscope.math.entropy import gram_entropy
from ncscope_lab.theory.search import Instance, climb, factors, integer, magnitude, normal
from ncscope_lab.theory.statement import Statement

TOLERANCE = 1e-9
_STARTS = 12
_STEPS = 20


def affine_fit(
    target: Float[Tensor, "m n"], regressors: Float[Tensor, "d n"]
) -> tuple[Float[Tensor, "m d"], Float[Tensor, ""]]:
    r"""$\arg\min_{W,b}\lVert Y-(WZ+b\mathbf 1)\rVert_F$ of least norm, and the minimum.

    The optimal $b$ centres both sides, so $W=\tilde Y\tilde Z^\dagger$. The pseudoinverse keeps
    singular values above $\epsilon\,\max(d,N)\,\lVert Z\rVert_F$, with the norm of the uncentred Z,
    because its size determines the rounding error.
    """
    y = target - target.mean(1, keepdim=True)
    left, values, right = torch.linalg.svd(
        regressors - regressors.mean(1, keepdim=True), full_matrices=False
    )
    cut = torch.finfo(values.dtype).eps * max(regressors.shape) * regressors.norm()
    kept = values > cut
    share = y @ right[kept].mT
    return share / values[kept] @ left[:, kept].mT, (y - share @ right[kept]).norm()


def transfer_bound(
    error: Float[Tensor, ""], weight: Float[Tensor, "m d"], gap: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    r"""Lemma 4.4's right side: $\min\lVert Y-(WZ_1+b)\rVert+\lVert W_1^*\rVert_F\,gap$."""
    return error + weight.norm() * gap


def tail_mass(features: Float[Tensor, "d n"], rank: int) -> Float[Tensor, ""]:
    r"""Lemma 4.5's right side: $\sum_{j\ge rank+2}\sigma_j^2$, singular values of $Z_1/\sqrt N$."""
    return torch.linalg.svdvals(features)[rank + 1 :].square().sum() / features.shape[1]


def rank_bounds(first_rank: int, second_rank: int) -> tuple[float, float]:
    """Theorem 4.6's two right sides: (r1 - r2 - 1) / r1 and 1 - r2 / r1."""
    return (first_rank - second_rank - 1) / first_rank, 1 - second_rank / first_rank


def largest_entropy(error: float, first_rank: int, second_rank: int) -> float:
    r"""Return the largest $H(G(Z_1))$ that a mean squared error allows (a Fano inequality).

    $h(e)+(1-e)\log(r_2+1)+e\log(r_1-r_2-1)$ with $h$ the binary entropy and
    $e=\min(error,1-(r_2+1)/r_1)$; for larger errors the bound does not increase.
    """
    head, tail = second_rank + 1, first_rank - second_rank - 1
    e = min(error, tail / first_rank)
    parts = [(e, tail), (1 - e, head)]
    return sum(share * math.log(count / share) for share, count in parts if share > 0)


def error_of_transfer(generator: torch.Generator) -> Iterator[float]:
    r"""INFO lemma 4.4, relative to $\lVert\tilde Y\rVert_F$.

    The check uses the minimiser of least norm, which minimises the right side. Equality holds if
    $Z_1$ has one row and $Y$ is a multiple of it.
    """

    def violation(instance: Instance) -> float:
        target, first, second = instance[0], instance[1] @ instance[2], instance[3] @ instance[4]
        weight, error = affine_fit(target, first)
        _, gap = affine_fit(first, second)
        _, reached = affine_fit(target, second)
        scale = (target - target.mean(1, keepdim=True)).norm()
        return float((reached - transfer_bound(error, weight, gap)) / scale)

    for _ in range(_STARTS):
        n = integer(3, 20, generator)
        first, second = _any_rank(n, generator), _any_rank(n, generator)
        row = factors(1, n, 1, generator)
        scale = magnitude(-8, 8, generator)
        target = scale * normal(integer(1, 4, generator), n, generator=generator)
        yield from climb(violation, (target, *first, *second), generator, _STEPS)
        yield from climb(violation, (scale * row[0] @ row[1], *row, *second), generator, _STEPS)


def regression_error_by_rank(generator: torch.Generator) -> Iterator[float]:
    r"""INFO lemma 4.5, relative to $\lVert Z_1\rVert_F^2/N$."""

    def violation(instance: Instance) -> float:
        first, second = instance[0] @ instance[1], instance[2] @ instance[3]
        _, error = affine_fit(first, second)
        mean_square = first.square().sum() / first.shape[1]
        reached = error.square() / first.shape[1]
        return float((tail_mass(first, instance[3].shape[0]) - reached) / mean_square)

    for instance in _rank_pairs(generator):
        yield from climb(violation, instance, generator, _STEPS)


def tail_by_rank(generator: torch.Generator) -> Iterator[float]:
    r"""INFO theorem 4.6: unit columns, ranks $r_1>r_2$ as in lemma 4.5."""

    def violation(instance: Instance) -> float:
        second_rank = instance[3].shape[0]
        middle, right = rank_bounds(instance[1].shape[0], second_rank)
        tail = float(tail_mass(_unit_columns(instance), second_rank))
        return max(tail - middle, middle - right)

    for instance in _rank_pairs(generator):
        yield from climb(violation, instance, generator, _STEPS)


def tail_by_entropy(generator: torch.Generator) -> Iterator[float]:
    r"""INFO remark after theorem 4.6 as a bound, with $e^{H(G(Z))}$ in place of the rank.

    The bound fails on the last instance: Z1 has full rank and nearly all its weight on one
    direction, and Z2 has rank two with weight on both directions.
    """
    pairs = [_random_pair(generator) for _ in range(40)]
    skewed = torch.diag(torch.tensor([1.0, 0.01, 0.01], dtype=torch.float64))
    even = torch.eye(2, dtype=torch.float64)
    samples = normal(5, 30, generator=generator)
    pairs.append((skewed, samples[:3], even, samples[3:]))
    yield from (max(_over_entropy_bound(pair), 0.0) for pair in pairs)


def _over_entropy_bound(instance: Instance) -> float:
    first, second = _unit_columns(instance), instance[2] @ instance[3]
    difference = gram_entropy(second.mT / second.norm(dim=0)[:, None]) - gram_entropy(first.mT)
    return float(tail_mass(first, instance[3].shape[0]) - (1 - difference.exp()))


def error_by_entropy(generator: torch.Generator) -> Iterator[float]:
    r"""Check the bound by entropy: $H(G(Z_1))$ is at most `largest_entropy` of the error."""

    def violation(instance: Instance) -> float:
        first, second = _unit_columns(instance), instance[2] @ instance[3]
        _, error = affine_fit(first, second)
        ranks = instance[1].shape[0], instance[3].shape[0]
        allowed = largest_entropy(float(error.square()) / first.shape[1], *ranks)
        return float(gram_entropy(first.mT)) - allowed

    for instance in _rank_pairs(generator):
        yield from climb(violation, instance, generator, _STEPS)


def _any_rank(n: int, generator: torch.Generator) -> Instance:
    d = integer(1, 8, generator)
    return factors(d, n, integer(1, min(d, n), generator), generator)


def _rank_pairs(generator: torch.Generator) -> Iterator[Instance]:
    """Yield factors of Z1 and Z2 with rank(Z1) > rank(Z2): random, and with equality."""
    for start in range(_STARTS):
        yield _random_pair(generator)
        head, tail = integer(0, 3, generator), integer(2, 4, generator)
        yield _tight_pair(head, tail, 1 + start % 3, generator)


def _random_pair(generator: torch.Generator) -> Instance:
    n, d = integer(3, 20, generator), integer(2, 8, generator)
    rank = integer(2, min(d, n), generator)
    lower = integer(1, rank - 1, generator)
    second = factors(lower + integer(0, 3, generator), n, lower, generator)
    return (*factors(d, n, rank, generator), *second)


def _tight_pair(head: int, tail: int, repeats: int, generator: torch.Generator) -> Instance:
    r"""Build unit columns whose spectrum has two levels, and the best regressors of rank ``head``.

    Columns are $(\cos\theta,\pm\sin\theta\,e_j)$ with both signs, where $j$ runs over ``head``
    vectors that occur ``repeats`` times each and ``tail`` vectors that occur once. The first row is
    constant, so the intercept spans it; with $\tan^2\theta=N/(2\,repeats)$ its weight is that of a
    row of the head. So the error is the tail mass, the spectrum is flat on the head and on the
    tail, and equality holds.
    """
    shown = [j for j in range(head) for _ in range(repeats)] + list(range(head, head + tail))
    half = torch.eye(head + tail, dtype=torch.float64)[:, shown]
    signed = torch.cat([half, -half], dim=1)
    n = signed.shape[1]
    angle = math.atan(math.sqrt(n / (2 * repeats)))
    rows = torch.cat([torch.full((1, n), math.cos(angle)), math.sin(angle) * signed])
    turn, _ = torch.linalg.qr(normal(len(rows), len(rows), generator=generator))
    scale = magnitude(-3, 3, generator)
    mixing = scale * normal(head + 1, head, generator=generator)
    return turn, rows, mixing, rows[1 : 1 + head]


def _unit_columns(instance: Instance) -> Float[Tensor, "d n"]:
    features = instance[0] @ instance[1]
    return features / torch.linalg.vector_norm(features, dim=0)


STATEMENTS = (
    Statement(
        id="info/lemma-4.4",
        statement=(
            "min ||Y - (W Z2 + b)||_F <= min ||Y - (W Z1 + b)||_F "
            "+ ||W1*||_F min ||Z1 - (H Z2 + eta)||_F, W1* a minimiser on Z1."
        ),
        source="INFO lemma 4.4",
        tolerance=TOLERANCE,
        printed=error_of_transfer,
    ),
    Statement(
        id="info/lemma-4.5",
        statement=(
            "If r1 = rank(Z1) > r2 = rank(Z2), then min 1/N ||Z1 - (H Z2 + eta)||_F^2 >= "
            "sum over j = r2+2..r1 of sigma_j^2, singular values of Z1 / sqrt(N)."
        ),
        source="INFO lemma 4.5",
        tolerance=TOLERANCE,
        printed=regression_error_by_rank,
    ),
    Statement(
        id="info/theorem-4.6",
        statement=(
            "With unit columns and r1 > r2, the sum of lemma 4.5 is <= (r1-r2-1)/r1 <= 1 - r2/r1."
        ),
        source="INFO theorem 4.6",
        tolerance=TOLERANCE,
        printed=tail_by_rank,
    ),
    Statement(
        id="info/remark-4.6",
        statement=(
            "Theorem 4.6 with exp(H(G(Z))) for the rank: the sum is <= 1 - exp(H(G(Z2)) - H(G(Z1)))"
            "; corrected: H(G(Z1)) <= h(e) + (1-e) log(r2+1) + e log(r1-r2-1), h binary entropy, "
            "e = min(regression error, 1 - (r2+1)/r1)."
        ),
        source="INFO remark after theorem 4.6",
        tolerance=TOLERANCE,
        printed=tail_by_entropy,
        corrected=error_by_entropy,
        grade="false",
    ),
)
