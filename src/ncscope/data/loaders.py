"""Loaders whose batches do not depend on the number of workers."""

import torch
from torch.utils.data import DataLoader

from ncscope.data.images import Images, Sample
from ncscope.data.order import EpochBatches, process_share


def make_training_loader(
    images: Images, batches: EpochBatches, workers: int = 0
) -> DataLoader[Sample]:
    """Return a loader of augmented batches; ``batches.begin(epoch, step)`` sets the next epoch.

    Pass the loader to Fabric with ``use_distributed_sampler=False``, because the batches are
    already divided between the processes.

    Args:
        images: Training set.
        batches: Order of the training set.
        workers: Number of processes that read ahead; 0 reads in this process.

    Example:
        >>> from ncscope.data.catalogue import load
        >>> images = load("digits").train
        >>> batches = EpochBatches(len(images), 64, seed=0)
        >>> batches.begin(epoch=7, step=20)
        >>> len(make_training_loader(images, batches))
        2
    """
    return DataLoader(
        images,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=_make_generator(),
    )


def make_measurement_loader(
    images: Images, batch_size: int, rank: int = 0, world: int = 1, workers: int = 0
) -> DataLoader[Sample]:
    """Return a loader of batches without augmentation, in order; processes share the images.

    Args:
        images: Images to measure.
        batch_size: Batch size of this process.
        rank: Rank of this process, from 0.
        world: Number of processes.
        workers: Number of processes that read ahead; 0 reads in this process.
    """
    share = process_share(len(images), rank, world)
    return DataLoader(
        images, batch_size, sampler=share, num_workers=workers, generator=_make_generator()
    )


def _make_generator() -> torch.Generator:
    """Return a generator for a loader, which otherwise draws a seed from the global generator.

    The randomness of the network, such as dropout, would then depend on the number of passes over
    loaders, and so on how often a run was resumed and measured.
    """
    return torch.Generator().manual_seed(0)
