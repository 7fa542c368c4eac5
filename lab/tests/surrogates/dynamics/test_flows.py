"""Flows in all features, against laws that know nothing of features."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ncscope_lab.surrogates.dynamics.central_path import least_squares_gradient
from ncscope_lab.surrogates.dynamics.flows import (
    Velocity,
    descend_and_renormalise,
    flow,
    integrate_velocity,
    velocity_by_projection,
    velocity_by_renormalisation,
)
from ncscope_lab.surrogates.dynamics.laws import Law, law_of_projection, law_of_renormalisation
from ncscope_lab.surrogates.dynamics.manifold import orthogonal_projection
from ncscope_lab.surrogates.dynamics.snr import (
    align,
    random_features,
    renormalise,
    snr_matrix,
    split,
    spread_over_samples,
)

K, D, N = 3, 4, 3
UNIT = N * K**2
BOTH: list[tuple[Callable[[int, int], Law], Velocity]] = [
    (law_of_projection, velocity_by_projection),
    (law_of_renormalisation, velocity_by_renormalisation),
]


@pytest.fixture
def start() -> Tensor:
    return random_features(K, D, N, 0.4, torch.Generator().manual_seed(0))


def values(features: Tensor) -> Tensor:
    return align(snr_matrix(features, K)).values


@pytest.mark.parametrize(("law", "velocity"), BOTH)
def test_simulation_follows_the_closed_form_over_six_decades(law, velocity, start) -> None:
    times = [UNIT * 10**power for power in range(-1, 6)]
    expected = law(K, N).singular_values(values(start), torch.tensor(times).double())
    before = align(snr_matrix(start, K))
    for (time, here), closed, due in zip(
        flow(velocity, start, K, times, 1e-8), expected, times, strict=True
    ):
        assert time == due
        torch.testing.assert_close(values(here), closed, rtol=1e-6, atol=0.0)
        classes = split(here, K).classes
        along = (before.left.mT @ classes @ before.right).diag()
        assert (before.left * along @ before.right.mT - classes).norm() < 1e-10 * classes.norm()
        torch.testing.assert_close(split(here, K).covariance, torch.eye(D).double())
        torch.testing.assert_close(split(here, K).within, split(start, K).within)
    limit = spread_over_samples(before.left @ before.right.mT, N)
    size = (D * K * N) ** 0.5 / float(closed[0])
    assert (here / closed[0] - limit).norm() == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(("law", "velocity"), BOTH)
@pytest.mark.parametrize("separation", [0.01, 1.0, 50.0])
def test_one_step_s_change_is_the_rate_of_the_law(law, velocity, separation) -> None:
    """The constants in time, by differences of what the two algorithms do in one step."""
    here = random_features(K, D, N, separation, torch.Generator().manual_seed(1))
    slope = least_squares_gradient(here, K)
    step = 1e-4 * separation / float(slope.norm())
    if velocity is velocity_by_projection:
        slope = orthogonal_projection(here, slope, K)
    ahead, behind = renormalise(here - step * slope, K), renormalise(here + step * slope, K)
    measured = (values(ahead) - values(behind)) / (2 * step)
    torch.testing.assert_close(measured, law(K, N).rate(values(here)), rtol=1e-4, atol=0.0)


def test_small_renormalised_steps_follow_the_second_law_and_not_the_first(start) -> None:
    span = 4 * UNIT
    own, other = [], []
    at = torch.tensor([span], dtype=torch.float64)
    for steps in (25, 50, 100):
        *_, last = descend_and_renormalise(start, K, span / steps, steps)
        found = values(last)
        for law, gaps in ((law_of_renormalisation, own), (law_of_projection, other)):
            closed = law(K, N).singular_values(values(start), at)[0]
            gaps.append(float((found / closed - 1).abs().max()))
    assert own[0] / own[1] == pytest.approx(2, rel=0.1)
    assert own[1] / own[2] == pytest.approx(2, rel=0.1)
    assert min(other) > 20 * own[2]


def test_the_solver_hands_over_what_was_asked_for() -> None:
    times = [0.0, 1.0, 5.0]
    path = list(integrate_velocity(lambda x: -x, torch.ones(2).double(), times, 1.0, 1e-10))
    assert [time for time, _ in path] == times
    for time, state in path:
        torch.testing.assert_close(state, torch.full((2,), math.exp(-time)).double())
