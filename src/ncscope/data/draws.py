"""Random numbers that depend on their purpose, and not on the numbers drawn before."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

import torch


class Purpose(IntEnum):
    """Use of a run's seed; each purpose has a separate stream of random numbers."""

    ORDER = 0
    SUBSET = 1
    WEIGHTS = 2
    STEPS = 3
    LABELLED = 4
    UNLABELLED = 5
    FEW_LABELS_STEPS = 6


class Draw(NamedTuple):
    """One use of one image in training; these numbers determine its random augmentation.

    Attributes:
        seed: Seed of the run.
        epoch: Number of the epoch, from 0.
        image: Index of the image in the data set.
    """

    seed: int
    epoch: int
    image: int


def stream_seed(*numbers: int) -> int:
    """Return a seed of 32 bits from any integers; torch's CPU generator uses 32 bits only.

    Args:
        numbers: Seed of the run, its `Purpose`, and further numbers that identify the use.

    Example:
        >>> stream_seed(0, Purpose.SUBSET) == stream_seed(0, Purpose.SUBSET)
        True
        >>> stream_seed(0, Purpose.SUBSET) == stream_seed(0, Purpose.WEIGHTS)
        False
    """
    text = ",".join(str(int(number)) for number in numbers).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little")


def generator(*numbers: int) -> torch.Generator:
    """Return a new CPU generator, seeded by the numbers.

    Example:
        >>> bool(torch.rand((), generator=generator(3)) == torch.rand((), generator=generator(3)))
        True
    """
    return torch.Generator().manual_seed(stream_seed(*numbers))


@contextmanager
def seed_global_generator(*numbers: int) -> Iterator[None]:
    """Seed the CPU's global generator, from which torchvision's transforms draw, and restore it.

    Cost: about an eighth of a random crop with mirroring, a twenty-fifth of AutoAugment.

    Example:
        >>> with seed_global_generator(0, 4, 17):
        ...     first = torch.rand(())
        >>> with seed_global_generator(0, 4, 17):
        ...     bool(torch.rand(()) == first)
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(stream_seed(*numbers))
        yield
