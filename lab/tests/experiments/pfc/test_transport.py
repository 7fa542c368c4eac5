"""Paths against optimal transport: closed forms, the chain of inequalities, premises."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ncscope_lab.experiments.pfc.paths import (
    displacement,
    premises,
    route,
    wasserstein_squared,
)
from ncscope_lab.surrogates.geodesic import line_between, pfc1_falls_from


def cloud(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_translation_costs_its_squared_length_in_any_order() -> None:
    x, shift = cloud(30, 4), torch.tensor([3.0, 0, 4, 0]).double()
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert wasserstein_squared(x, (x + shift)[order]) == pytest.approx(25, rel=1e-12)


def test_a_permutation_of_the_samples_costs_nothing_but_the_network_s_path_does() -> None:
    x = cloud(20, 3)
    swapped = x.roll(1, 0)
    found = displacement(x, swapped)
    assert found.optimal == pytest.approx(0, abs=1e-20)
    assert found.network == pytest.approx(float((swapped - x).square().sum() / 20), rel=1e-12)
    assert found.efficiency == pytest.approx(0, abs=1e-20)


def test_on_a_line_the_optimal_pairing_sorts() -> None:
    x, y = cloud(50, 1), 2 * cloud(50, 1, seed=1) + 1
    sorted_cost = float((x.sort(0).values - y.sort(0).values).square().mean())
    assert wasserstein_squared(x, y) == pytest.approx(sorted_cost, rel=1e-12)


def test_the_assignment_is_the_least_of_all_permutations() -> None:
    x, y = cloud(5, 2), cloud(5, 2, seed=3)
    costs = [
        float((x - y[list(order)]).square().sum() / 5) for order in itertools.permutations(range(5))
    ]
    found = displacement(x, y)
    assert found.optimal == pytest.approx(min(costs), rel=1e-12)
    assert found.random == pytest.approx(sum(costs) / len(costs), rel=1e-12)
    assert found.advantage == pytest.approx(
        (found.random - costs[0]) / (found.random - min(costs)), rel=1e-9
    )


def test_close_layers_far_from_the_origin_keep_their_distance() -> None:
    x = cloud(20, 8) + 1e5
    assert wasserstein_squared(x, x + 1e-3) == pytest.approx(8e-6, rel=1e-6)


def test_equal_steps_along_the_optimal_line_reach_every_bound() -> None:
    x = cloud(20, 3)
    goal = 3 * x + 1  # the gradient of a convex function, so the optimal map
    path = route([(1 - t) * x + t * goal for t in (0, 0.25, 0.5, 0.75, 1)])
    for share in (path.ends.efficiency, path.straight, path.even, path.optimality, path.geodesic):
        assert share == pytest.approx(1, rel=1e-12)
    # Without the number of steps the sum of squared steps is below W2 squared.
    assert sum(step.network for step in path.steps) == pytest.approx(path.ends.optimal / 4)


@pytest.mark.parametrize("angle", [0.3, math.pi / 2, 2.0])
def test_a_bend_shortens_the_chord_by_the_cosine_rule(angle: float) -> None:
    x = cloud(10, 2)
    first = torch.tensor([1.0, 0.0]).double()
    second = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    path = route([x, x + first, x + first + second])
    assert path.straight == pytest.approx((2 + 2 * math.cos(angle)) / 4, rel=1e-12)
    assert path.even == pytest.approx(1, rel=1e-12)
    assert path.geodesic == pytest.approx(path.straight**0.5, rel=1e-9)


def test_uneven_steps_cost_energy_alone() -> None:
    x, step = cloud(10, 2), torch.tensor([1.0, 0.0]).double()
    path = route([x, x + step, x + 4 * step])
    assert (path.straight, path.even) == pytest.approx((1, 16 / 20), rel=1e-12)
    assert path.optimality == pytest.approx(0.8, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 4), st.integers(1, 5))
def test_proposition_1_bounds_every_path(seed: int, n: int, d: int, steps: int) -> None:
    layers = [cloud(n, d, seed=seed + index) for index in range(steps + 1)]
    path, slack = route(layers), 1 + 1e-9
    assert path.ends.optimal <= slack * path.ends.network
    assert path.ends.network <= slack * path.length**2
    assert path.length**2 <= slack * path.energy
    assert path.ends.optimal**0.5 <= slack * path.wasserstein_length
    assert all(step.optimal <= slack * step.network for step in path.steps)
    parts = path.ends.efficiency * path.straight * path.even
    assert path.optimality == pytest.approx(parts, rel=1e-9)


def test_layers_that_do_not_move_have_no_shares() -> None:
    x = cloud(5, 2)
    path = route([x, x, x])
    shares = (path.ends.efficiency, path.straight, path.even, path.optimality, path.geodesic)
    assert all(map(math.isnan, shares))


def test_premises_of_a_shrinking_and_turning_frame() -> None:
    means = torch.eye(3, dtype=torch.float64)
    labels = torch.arange(3).repeat(2)
    noise = torch.tensor([1.0, -1.0]).double().repeat_interleave(3)[:, None]
    found = premises(means[labels] + noise, 2 * means[labels] + noise, labels)
    assert found["alignment_cosine"] == pytest.approx(1, rel=1e-12)
    assert found["remaining_pfc1"] == pytest.approx(0.25, rel=1e-12)
    assert found["relative_cost"] == pytest.approx(0.25, rel=1e-12)
    opposed = premises(means[labels] + noise, -means[labels], labels)
    assert opposed["alignment_cosine"] == pytest.approx(-1, rel=1e-12)
    assert opposed["remaining_pfc1"] == 0
    assert opposed["relative_cost"] == pytest.approx(4, rel=1e-12)


def test_the_alignment_decides_theorem_1() -> None:
    """Towards collapsed features PFC1 falls on the whole line if and only if alignment is >= 0."""
    labels = torch.arange(4).repeat_interleave(5)
    seen = set()
    for seed in range(20):
        first, means = cloud(20, 3, seed=seed), cloud(4, 3, seed=100 + seed)
        aligned = premises(first, means[labels], labels)["alignment_cosine"] >= 0
        assert (pfc1_falls_from(line_between(first, means[labels], labels)) == 0) == aligned
        seen.add(aligned)
    assert seen == {True, False}
