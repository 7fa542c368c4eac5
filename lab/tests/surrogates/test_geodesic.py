"""The smallest t0 from which PFC1 and PFC2 fall, against the definition on a fine grid."""

import pytest
import torch

from ncscope.math.frames import simplex_etf
from ncscope.metrics.layerwise import Geodesic
from ncscope_lab.surrogates.geodesic import line_between, pfc1_falls_from, pfc2_falls_from

GRID = torch.linspace(0, 1, 201, dtype=torch.float64).tolist()


def noise(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def line_of(means: torch.Tensor, last: torch.Tensor, spread: float, left: float) -> Geodesic:
    """Class means with spread around them, and other means with a share of it left."""
    k, d = means.shape
    within = noise(4, k, d, seed=9)
    within = spread * (within - within.mean(0))
    labels = torch.arange(k).repeat(4)
    own = left * noise(4, k, d, seed=10)
    return line_between((means + within).flatten(0, 1), (last + own).flatten(0, 1), labels)


def turned(frame: torch.Tensor, angle: float) -> torch.Tensor:
    turn = torch.zeros(frame.shape[1], frame.shape[1], dtype=torch.float64)
    turn[0, -1], turn[-1, 0] = angle, -angle
    return frame @ torch.matrix_exp(turn)


def lines() -> dict[str, Geodesic]:
    found = {}
    for seed in range(3):
        k = 2 + seed
        frame = simplex_etf(k, k + 2, torch.Generator().manual_seed(seed))
        other = noise(k, k + 2, seed=seed)
        found[f"from-anywhere-{seed}"] = line_of(other, frame, 1.0, 0.0)
        found[f"nearby-{seed}"] = line_of(frame + 0.3 * other, frame, 0.5, 0.0)
        found[f"partly-collapsed-{seed}"] = line_of(other, frame + 0.2 * other, 1.0, 0.2)
        found[f"opposite-{seed}"] = line_of(other - 2 * frame, frame, 1.0, 0.0)
    return found


LINES = lines()


def falls_on_grid(values: list[float]) -> float:
    """The first grid point from which no value exceeds the one before it."""
    start = len(values) - 1
    while start and values[start - 1] >= values[start]:
        start -= 1
    return GRID[start]


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_both_fall_from_where_a_fine_grid_says(name: str):
    line = LINES[name]
    assert pfc1_falls_from(line) == pytest.approx(
        falls_on_grid([float(line.pfc1(t)) for t in GRID]), abs=5.01e-3
    )
    values = [float(line.pfc2(t)) for t in GRID]
    if max(values) > 1e-9:  # of two classes, every pair of means is a simplex
        assert pfc2_falls_from(line) == pytest.approx(falls_on_grid(values), abs=5.01e-3)
    else:
        assert pfc2_falls_from(line) == 0


@pytest.mark.parametrize("k", [2, 3, 6])
@pytest.mark.parametrize("cosine", [-0.9, -0.1, 0.0, 0.5])
def test_pfc1_falls_on_the_whole_line_exactly_if_the_means_are_aligned(k: int, cosine: float):
    frame = simplex_etf(k, k + 1)
    other = noise(k, k + 1, seed=3)
    other = other - other.mean(0)
    other = other - (other * frame).sum() / frame.square().sum() * frame
    means = cosine * frame + (1 - cosine**2) ** 0.5 * other / other.norm() * frame.norm()
    line = line_of(means, frame, 1.0, 0.0)
    expected = max(0.0, -cosine / (1 - cosine))  # both ends' means are equally long
    assert pfc1_falls_from(line) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("k", [4, 5, 7])
@pytest.mark.parametrize("angle", [1e-3, 0.01, 1.0])
def test_a_turned_simplex_reaches_it_again_only_from_the_middle_of_the_line(k: int, angle: float):
    frame = simplex_etf(k, k)
    line = line_of(turned(frame, angle), frame, 0.0, 0.0)
    assert line.transport_cost() < 2 * k * angle**2
    assert float(line.pfc2(0.0)) < 1e-12 < 1e-8 < float(line.pfc2(0.5))
    assert pfc2_falls_from(line) == pytest.approx(0.5, abs=1e-6)


def test_the_same_simplex_at_both_ends_never_changes():
    frame = simplex_etf(4, 6)
    line = line_of(3 * frame, frame, 0.0, 0.0)
    assert pfc2_falls_from(line) == 0
    assert pfc1_falls_from(line) == 0


@pytest.mark.parametrize("seed", range(8))
def test_in_one_dimension_pfc2_never_changes(seed: int):
    first, last = noise(12, 1, seed=seed), noise(12, 1, seed=seed + 100)
    line = line_between(first, last, torch.arange(4).repeat_interleave(3))
    assert float(line.pfc2(0.3)) == pytest.approx(float(line.pfc2(0.8)), abs=1e-12)
    assert pfc2_falls_from(line) == 0
