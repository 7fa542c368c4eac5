import pytest

from tests.losses.batches import BATCHES, Batch


@pytest.fixture(params=BATCHES.values(), ids=BATCHES.keys())
def batch(request: pytest.FixtureRequest) -> Batch:
    return request.param
