"""Free minimisation, and the loads at which points of unequal nuclear norms are checked."""

import pytest
import torch

from ncscope_lab.surrogates.extended import Activation, nonzero_limit
from ncscope_lab.theory import xufm_conjecture, xufm_extended


@pytest.mark.slow
def test_points_of_smaller_nuclear_norm_are_checked_at_the_loads_stated() -> None:
    shares: dict[int, list[float]] = {5: [], 15: []}
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        for model, point in xufm_conjecture._unequal(generator):
            shares[model.num_classes].append(model.load / nonzero_limit(3))
            assert model.objective(point) < xufm_extended.minimum(model.load)
    assert min(shares[5]) == pytest.approx(0.95)
    assert [max(own) for own in shares.values()] == pytest.approx([0.999, 0.999])
    assert 1e-6 < min(shares[15]) < 1e-3


@pytest.mark.parametrize("activation", ["linear", "relu"])
def test_runs_from_random_starts_reach_the_minimum(activation: Activation) -> None:
    generator = torch.Generator().manual_seed(0)
    model = xufm_extended.free_model(3, 0.6, activation, generator)
    start = model.start(generator)
    assert xufm_extended._off_relu_frame(model, start) > 0.1
    runs = xufm_extended.descend(model, generator)
    assert len(runs) >= 2
    least = min(run.objective for run in runs)
    assert least == pytest.approx(xufm_extended.minimum(model.load), rel=1e-12)


def test_at_the_limit_a_minimiser_without_frames_is_reached() -> None:
    points = list(xufm_extended._nonzero_at_limit("linear", torch.Generator().manual_seed(0)))
    model, point = points[-1]
    assert float(model.objective(point)) == pytest.approx(0.5, rel=1e-12)
    assert 0 < torch.linalg.matrix_rank(point[0], rtol=1e-6) < model.num_classes


def test_a_model_is_eased_to_a_share_of_the_limit_and_never_made_harder() -> None:
    generator = torch.Generator().manual_seed(0)
    hard, easy = (xufm_extended.free_model(3, share, "relu", generator) for share in (0.9, 0.2))
    assert xufm_extended._ease(hard).load == pytest.approx(0.45 * nonzero_limit(3))
    assert xufm_extended._ease(hard).activation == "relu"
    assert xufm_extended._ease(easy).load == pytest.approx(easy.load)
