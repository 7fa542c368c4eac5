import pytest

from tests.losses.batches import BATCHES, Batch


@pytest.fixture(params=BATCHES)
def batch(request: pytest.FixtureRequest) -> Batch:
    return BATCHES[request.param]
