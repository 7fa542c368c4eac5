"""Loaders whose batches are the same for any number of workers."""

import torch
from torch.utils.data import DataLoader

from ncscope.data.images import Images, Sample
from ncscope.data.order import EpochBatches, process_share


def training_loader(images: Images, batches: EpochBatches, workers: int = 0) -> DataLoader[Sample]:
    """Augmented batches; ``batches.begin(epoch, step)`` says which epoch comes next.

    Hand it to Fabric with ``use_distributed_sampler=False``: the batches are shared out already.

    Args:
        images: A training set.
        batches: Its order.
        workers: Processes that read ahead; 0 reads in this one.

    Example:
        >>> from ncscope.data.catalogue import load
        >>> images = load("digits").train
        >>> batches = EpochBatches(len(images), 64, seed=0)
        >>> batches.begin(epoch=7, step=20)
        >>> len(training_loader(images, batches))
        2
    """
    return DataLoader(
        images,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=_own_generator(),
    )


def measuring_loader(
    images: Images, batch_size: int, rank: int = 0, world: int = 1, workers: int = 0
) -> DataLoader[Sample]:
    """Batches without augmentation, in the set's order; every image is in one process's share.

    Args:
        images: To measure.
        batch_size: Batch size of this process.
        rank: This process's number, from 0.
        world: Number of processes.
        workers: Processes that read ahead; 0 reads in this one.
    """
    share = process_share(len(images), rank, world)
    return DataLoader(
        images, batch_size, sampler=share, num_workers=workers, generator=_own_generator()
    )


def _own_generator() -> torch.Generator:
    """Without it, each pass over a loader would draw a seed from the global generator.

    The network's own randomness, dropout's for one, would then depend on how often a run was
    resumed and measured.
    """
    return torch.Generator().manual_seed(0)
