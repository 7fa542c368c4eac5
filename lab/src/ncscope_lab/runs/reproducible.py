"""Context for runs with the same numbers on every machine of one kind, and no side effects."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed the CPU's global generator and use one thread; restore both afterwards.

    This context is for small networks on the CPU. With several threads, in torch or in the linear
    algebra of NumPy and SciPy, the order of summation depends on the number of cores, and so do the
    last digits. Several threads are also slower than one on matrices of this size.

    Args:
        seed: Seed of all draws from the global generator inside, such as initialisations.

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
