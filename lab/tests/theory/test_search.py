"""The matrices have the rank they promise, and the climb climbs."""

import pytest
import torch

from ncscope_lab.theory.search import Instance, climb, factors


@pytest.mark.parametrize("seed", range(12))
def test_factors_have_the_rank(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = factors(7, 9, 3, generator)
    values = torch.linalg.svdvals(left @ right)
    assert (left.shape, right.shape) == ((7, 3), (3, 9))
    assert values[2] > 1e-6 * values[0]
    assert values[3] < 1e-14 * values[0]


def test_climb_approaches_the_worst_instance() -> None:
    def violation(instance: Instance) -> float:
        return 1.0 - float((instance[0] - 3).square().sum())

    generator = torch.Generator().manual_seed(0)
    found = list(climb(violation, (torch.ones(2).double(),), generator, steps=300))
    assert len(found) == 301
    assert found[0] == 0.0
    assert min(found) >= 0.0
    assert max(found) > 0.99


def test_climb_keeps_the_start_unchanged() -> None:
    start = torch.ones(3).double()
    generator = torch.Generator().manual_seed(0)
    list(climb(lambda instance: float(instance[0].sum()), (start,), generator, steps=20))
    assert start.tolist() == [1.0] * 3
