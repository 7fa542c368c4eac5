"""Instances to test an inequality on: matrices of prescribed spectrum, and a climb to the worst."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Choice = TypeVar("Choice")
Instance = tuple[Tensor, ...]


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Independent standard normal entries, float64."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def integer(low: int, high: int, generator: torch.Generator) -> int:
    """Draw a uniform integer, both ends included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def choice(options: Sequence[Choice], generator: torch.Generator) -> Choice:
    """One of the options, uniformly."""
    return options[integer(0, len(options) - 1, generator)]


def magnitude(low: float, high: float, generator: torch.Generator) -> float:
    """Draw a positive number whose decimal logarithm is uniform."""
    share = float(torch.rand((), dtype=torch.float64, generator=generator))
    return float(10 ** (low + (high - low) * share))


def factors(
    rows: int, columns: int, rank: int, generator: torch.Generator
) -> tuple[Float[Tensor, "m r"], Float[Tensor, "r n"]]:
    """Two factors whose product has the rank: the spectrum flat, near ties, spread or random.

    Args:
        rows: Number of rows of the product.
        columns: Number of its columns.
        rank: At most the smaller of the two.
        generator: Decides the kind of spectrum, the scale (1e-8 to 1e8) and the directions.

    Returns:
        The factors; both have full rank, and moving either keeps the product's.
    """
    spectrum = choice(
        (
            torch.ones(rank, dtype=torch.float64),
            1 + 1e-9 * normal(rank, generator=generator),
            torch.logspace(0, -5, rank, dtype=torch.float64),
            normal(rank, generator=generator).abs() + 1e-3,
        ),
        generator,
    )
    left, _ = torch.linalg.qr(normal(rows, rank, generator=generator))
    right, _ = torch.linalg.qr(normal(columns, rank, generator=generator))
    return magnitude(-8, 8, generator) * left * spectrum, right.mT


def climb(
    violation: Callable[[Instance], float],
    start: Instance,
    generator: torch.Generator,
    steps: int,
) -> Iterator[float]:
    """Deviations at an instance and on a random walk from it towards the worst one.

    Each step moves every tensor by noise of 0.1 % to 100 % of its root mean square, and stays
    where the violation grew.

    Args:
        violation: By how much an instance breaks the inequality; negative: by how much it holds.
        start: Initial point.
        generator: Source of the moves.
        steps: Number of steps to try.

    Yields:
        The positive part of the violation at each instance looked at.
    """
    here, worst = start, violation(start)
    yield max(worst, 0.0)
    for _ in range(steps):
        there = _moved(here, magnitude(-3, 0, generator), generator)
        found = violation(there)
        yield max(found, 0.0)
        if found > worst:
            here, worst = there, found


def _moved(instance: Instance, size: float, generator: torch.Generator) -> Instance:
    return tuple(
        part + size * part.square().mean().sqrt() * normal(*part.shape, generator=generator)
        for part in instance
    )
