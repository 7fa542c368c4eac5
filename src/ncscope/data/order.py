"""Samples of each step as a function of seed, epoch and step, for any number of processes."""

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Sampler

from ncscope.data.draws import Draw, Purpose, generator
from ncscope.errors import InputError


def epoch_order(count: int, seed: int, epoch: int) -> Int[Tensor, " n"]:
    """Draw a random order of all samples, which differs by epoch.

    Example:
        >>> epoch_order(5, seed=0, epoch=3).sort().values.tolist()
        [0, 1, 2, 3, 4]
    """
    return torch.randperm(count, generator=generator(seed, Purpose.ORDER, epoch), device="cpu")


class EpochBatches(Sampler[list[Draw]]):
    """This process's part of each global batch of an epoch, as keys of `Images`.

    The order of an epoch is cut into global batches, and a global batch into equal parts for the
    processes: together they read the samples that a single process would read. An incomplete batch
    at the end of an epoch is left out; its samples differ by epoch.

    Args:
        count: Number of samples.
        batch_size: Size of the global batch.
        seed: Seed of the orders and of the augmentation.
        rank: Rank of this process, from 0.
        world: Number of processes.

    Raises:
        InputError: If the batch is larger than the set, or the processes cannot share it evenly.

    Example:
        >>> batches = EpochBatches(10, batch_size=4, seed=0)
        >>> [len(batch) for batch in batches]
        [4, 4]
        >>> halves = [EpochBatches(10, 4, 0, rank, world=2) for rank in (0, 1)]
        >>> next(iter(halves[0])) + next(iter(halves[1])) == next(iter(batches))
        True
    """

    def __init__(
        self, count: int, batch_size: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        if not 1 <= batch_size <= count:
            expected, fix = f"a batch of 1 to {count} samples, the set's size", "pass a batch size"
            raise InputError(expected=expected, found=str(batch_size), fix=f"{fix} in that range")
        if batch_size % world:
            expected = f"a global batch that {world} processes can share evenly"
            fix = f"pass a multiple of {world}"
            raise InputError(expected=expected, found=f"{batch_size} samples", fix=fix)
        self._count, self._batch_size, self._seed = count, batch_size, seed
        self._rank, self._world = rank, world
        self.begin(0)

    @property
    def per_epoch(self) -> int:
        """Number of steps in an epoch."""
        return self._count // self._batch_size

    def begin(self, epoch: int, step: int = 0) -> None:
        """Set the epoch and the step at which the next iteration begins.

        Args:
            epoch: Number of the epoch, from 0.
            step: Number of steps of this epoch that are already done.
        """
        self._epoch, self._step = epoch, step

    def __len__(self) -> int:
        return self.per_epoch - self._step

    def __iter__(self) -> Iterator[list[Draw]]:
        order = epoch_order(self._count, self._seed, self._epoch).tolist()
        share = self._batch_size // self._world
        for step in range(self._step, self.per_epoch):
            start = step * self._batch_size + self._rank * share
            indices = order[start : start + share]
            yield [Draw(self._seed, self._epoch, index) for index in indices]


def process_share(count: int, rank: int, world: int) -> range:
    """Return this process's range of the samples 0 to count - 1; lengths differ by at most 1.

    Example:
        >>> [process_share(7, rank, world=3) for rank in range(3)]
        [range(0, 2), range(2, 4), range(4, 7)]
    """
    return range(count * rank // world, count * (rank + 1) // world)


def check_shares(counts: Mapping[str, int], world: int) -> None:
    """Refuse sets that leave a process without samples: the others would wait for it forever.

    Args:
        counts: Number of samples by their description.
        world: Number of processes.

    Raises:
        InputError: If a set has fewer samples than processes; raised on every process.

    Example:
        >>> check_shares({"held-out images": 3}, world=3)
    """
    for what, count in counts.items():
        if count < world:
            expected = f"at least {world:,} {what}, one a process"
            fix = "train with fewer devices or nodes"
            raise InputError(expected=expected, found=f"{count:,}", fix=fix)


def draw_balanced_subset(labels: Int[Tensor, " n"], size: int, seed: int) -> Int[Tensor, " size"]:
    """Draw a random subset with classes as equal as possible; return its indices, ascending.

    Classes too small for an equal share are taken completely, and the others share the rest
    equally. If the rest does not divide, randomly chosen classes give one sample more.

    Args:
        labels: Labels of all samples.
        size: Size of the subset.
        seed: Seed of the choice.

    Raises:
        InputError: If the subset is empty or larger than the set.

    Example:
        >>> labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
        >>> labels[draw_balanced_subset(labels, 5, seed=0)].tolist()
        [0, 0, 1, 1, 2]
    """
    if not 1 <= size <= len(labels):
        expected = f"a subset of 1 to {len(labels)} samples, the set's size"
        raise InputError(expected=expected, found=str(size), fix="pass a size in that range")
    draws = generator(seed, Purpose.SUBSET)
    shuffled = torch.randperm(len(labels), generator=draws, device="cpu")
    present, index = labels[shuffled].unique(return_inverse=True)
    by_class = [shuffled[index == k] for k in range(len(present))]
    quota = _quotas(torch.tensor([len(members) for members in by_class], device="cpu"), size, draws)
    taken = [members[: int(n)] for members, n in zip(by_class, quota, strict=True)]
    return torch.cat(taken).sort().values


def _quotas(available: Int[Tensor, " k"], size: int, draws: torch.Generator) -> Int[Tensor, " k"]:
    """Return the number of samples of each class: one level for all classes that reach it."""
    # Bisection for the highest level at which all classes together give no more than the size.
    low, high = 0, size
    while low < high:
        level = (low + high + 1) // 2
        fits = int(available.clamp(max=level).sum()) <= size
        low, high = (level, high) if fits else (low, level - 1)
    quota = available.clamp(max=low)
    able = (available > low).nonzero().flatten()
    extra = torch.randperm(len(able), generator=draws, device="cpu")[: size - int(quota.sum())]
    quota[able[extra]] += 1
    return quota
