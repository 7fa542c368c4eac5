"""Training loaders of Lightning: which can be read once more, and their random generators."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader, IterableDataset


def can_be_read_again(loader: Any) -> bool:
    """Return whether an additional pass over the training data leaves the next epoch as it is.

    Workers that persist keep random generators, and a stream keeps its position. Of a loader of
    another kind nothing is known.
    """
    return all(
        isinstance(each, DataLoader)
        and not each.persistent_workers
        and not isinstance(each.dataset, IterableDataset)
        for each in _loaders_in(loader)
    )


def _loaders_in(loader: Any) -> list[Any]:
    """Return the loaders in nested lists, tuples, mappings and Lightning's combined loaders."""
    if isinstance(loader, CombinedLoader):
        return _loaders_in(loader.iterables)
    if isinstance(loader, Mapping):
        loader = list(loader.values())
    if isinstance(loader, list | tuple):
        return [inner for each in loader for inner in _loaders_in(each)]
    return [loader]


@contextmanager
def generators_kept(loader: Any) -> Iterator[None]:
    """Restore the states of the generators of a loader, or of several, and of their samplers."""
    owners: list[Any] = []
    for each in _loaders_in(loader):
        batches = getattr(each, "batch_sampler", None)
        owners += [each, getattr(each, "sampler", None), getattr(batches, "sampler", None)]
    generators = [getattr(owner, "generator", None) for owner in owners]
    states = [(each, each.get_state()) for each in generators if isinstance(each, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
