"""The loads at which the points of the statement on nuclear norms are checked."""

import pytest
import torch

from ncscope.lab.surrogates.extended import nonzero_limit
from ncscope.lab.theory import xufm_extended


@pytest.mark.slow
def test_points_of_smaller_nuclear_norm_are_checked_at_the_loads_stated() -> None:
    shares: dict[int, list[float]] = {5: [], 15: []}
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        for model, point in xufm_extended._unequal(generator):
            shares[model.num_classes].append(model.load / nonzero_limit(3))
            assert model.objective(point) < xufm_extended.minimum(model.load)
    assert min(shares[5]) == pytest.approx(0.95)
    assert [max(own) for own in shares.values()] == pytest.approx([0.999, 0.999])
    assert 1e-6 < min(shares[15]) < 1e-3
