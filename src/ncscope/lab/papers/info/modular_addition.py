"""Addition modulo p: a data set with every pair of numbers once."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ncscope.data.draws import generator


class Sums(NamedTuple):
    r"""Pairs of numbers, and their sums.

    Attributes:
        pairs: a and b.
        labels: $a+b$ modulo $p$.
    """

    pairs: Int[Tensor, "n 2"]
    labels: Int[Tensor, " n"]


class SumSplit(NamedTuple):
    """Training pairs, and all other pairs as held-out pairs."""

    train: Sums
    test: Sums


def modular_addition(modulus: int, train_share: float = 0.3, seed: int = 0) -> SumSplit:
    """Split all pairs of residues at random into training pairs and held-out pairs.

    (a, b) and (b, a) are different pairs. Source: INFO section 5.5.

    Args:
        modulus: p.
        train_share: Share of the p * p pairs to train on, rounded to a whole number of pairs.
        seed: Seed of the choice of pairs.

    Returns:
        Both parts, each in order of a and then b.

    Example:
        >>> split = modular_addition(5, 0.4)
        >>> len(split.train.pairs), len(split.test.pairs)
        (10, 15)
    """
    count = modulus**2
    shuffled = torch.randperm(count, generator=generator(seed, 0))
    taken = round(train_share * count)
    return SumSplit(*(_sums(part, modulus) for part in (shuffled[:taken], shuffled[taken:])))


def mirrored(split: SumSplit) -> Bool[Tensor, " n"]:
    """Mark the held-out pairs that are training pairs in the other order.

    A network that has learnt that addition commutes knows their sums from the training pairs.

    Example:
        >>> split = modular_addition(5, 0.4)
        >>> int(mirrored(split).sum())
        8
    """
    (known, _), (new, _) = split
    size = 1 + int(torch.cat([known, new]).max())
    return torch.isin(new[:, 1] * size + new[:, 0], known[:, 0] * size + known[:, 1])


def _sums(chosen: Int[Tensor, " n"], modulus: int) -> Sums:
    numbers = chosen.sort().values
    pairs = torch.stack([numbers // modulus, numbers % modulus], 1)
    return Sums(pairs, pairs.sum(1) % modulus)
