"""Runs that give the same numbers on every machine of one kind, and leave no trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed the CPU's global generator and use one thread; both are as before afterwards.

    For small networks on the CPU. With more threads, of torch or of the linear algebra under NumPy
    and SciPy, the order of summation, and so the last digits, depend on the number of cores; and
    matrices this small are slower shared than alone.

    Args:
        seed: Seed of draws from the global generator inside, such as initialisations.

    Example:
        >>> with reproducible(0):
        ...     first = torch.rand(())
        >>> with reproducible(0):
        ...     bool(torch.rand(()) == first)
        True
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
