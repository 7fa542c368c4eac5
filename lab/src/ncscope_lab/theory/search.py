"""Instances for tests of inequalities: matrices of prescribed spectrum, and a random search."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

Choice = TypeVar("Choice")
Instance = tuple[Tensor, ...]


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Draw independent standard normal entries in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def integer(low: int, high: int, generator: torch.Generator) -> int:
    """Draw a uniform integer, both ends included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def choice(options: Sequence[Choice], generator: torch.Generator) -> Choice:
    """Draw one of the options uniformly."""
    return options[integer(0, len(options) - 1, generator)]


def magnitude(low: float, high: float, generator: torch.Generator) -> float:
    """Draw a positive number whose decimal logarithm is uniform."""
    share = float(torch.rand((), dtype=torch.float64, generator=generator))
    return float(10 ** (low + (high - low) * share))


def factors(
    rows: int, columns: int, rank: int, generator: torch.Generator
) -> tuple[Float[Tensor, "m r"], Float[Tensor, "r n"]]:
    """Draw two factors whose product has a given rank; the spectrum is flat, tied, wide or random.

    Args:
        rows: Number of rows of the product.
        columns: Number of columns of the product.
        rank: Rank of the product, at most the number of rows and of columns.
        generator: Generator of the kind of spectrum, the scale (1e-8 to 1e8) and the directions.

    Returns:
        Factors of full rank. Small changes of the factors do not change the rank of the product.
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
    """Yield deviations at an instance and along a random search for larger violations.

    Each step changes every tensor by noise of 0.1 % to 100 % of its root mean square. The change
    is kept if the violation grows.

    Args:
        violation: Function that returns the amount by which an instance violates the inequality;
            a negative amount is the margin by which the inequality holds.
        start: Initial instance.
        generator: Generator of the changes.
        steps: Number of steps to try.

    Yields:
        The positive part of the violation at each instance that was tried.
    """
    here, worst = start, violation(start)
    yield max(worst, 0.0)
    for _ in range(steps):
        there = _move(here, magnitude(-3, 0, generator), generator)
        value = violation(there)
        yield max(value, 0.0)
        if value > worst:
            here, worst = there, value


def _move(instance: Instance, size: float, generator: torch.Generator) -> Instance:
    return tuple(
        part + size * part.square().mean().sqrt() * normal(*part.shape, generator=generator)
        for part in instance
    )
