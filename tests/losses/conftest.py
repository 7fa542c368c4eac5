from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits

from tests.losses.batches import BATCHES, Batch


@pytest.fixture(params=BATCHES.values(), ids=BATCHES.keys())
def batch(request: pytest.FixtureRequest) -> Batch:
    return request.param


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Batch-sized matrices: a second thread costs more than it brings."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)
