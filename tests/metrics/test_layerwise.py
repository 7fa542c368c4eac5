"""From layer to layer: the line between two layers, path lengths, depth, breaks of the order."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ncscope.metrics.layerwise import (
    Geodesic,
    effective_depth,
    geodesic,
    order_breaks,
    relative_position,
    straightness,
)
from ncscope.stats.moments import ClassMoments
from ncscope.stats.paths import CrossMoments
from ncscope.stats.statistics import finish

from ..reference.layerwise import (
    reference_alignment,
    reference_effective_depth,
    reference_geodesic,
    reference_monotonicity_breaks,
    reference_relative_position,
    reference_transport_cost,
)

TIMES = [0.0, 0.125, 0.5, 0.75, 1.0]


def line(first: Tensor, last: Tensor, labels: Tensor, k: int, prior: str = "empirical") -> Geodesic:
    """Return the line between two layers' features."""
    ends, counts = [], torch.bincount(labels, minlength=k)
    for features in (first, last):
        moments = ClassMoments(k, features.shape[1], prior=prior, class_counts=counts)
        moments.update(features, labels)
        ends.append(finish(moments))
    pair = CrossMoments(k, first.shape[1])
    pair.update(first, last, labels)
    return geodesic(*ends, pair)


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


# Two and four samples on an axis, with class means -2 and 1, then -4 and 2; the products of the
# deviations add up to 2 + 2 in the first class and to nothing in the second.
LABELS = torch.tensor([0, 0, 1, 1, 1, 1])
FIRST = column(-3, -1, 0, 2, 0, 2)
LAST = column(-6, -2, 3, 3, 1, 1)


@pytest.mark.parametrize("scale", [1.0, 1 / 8])
@pytest.mark.parametrize("t", TIMES)
def test_pfc1_of_two_classes_on_an_axis_by_hand(t: float, scale: float) -> None:
    within = (1 - t) ** 2 + 2 * t * (1 - t) * 2 / 3 + 2 * t**2
    between = 2 * (1 + t) ** 2
    found = line(scale * FIRST, scale * LAST, LABELS, 2).pfc1(t)
    assert float(found) == pytest.approx(within / between, rel=1e-14)


def test_cross_traces_alignment_and_transport_cost_by_hand() -> None:
    between = line(FIRST, LAST, LABELS, 2)
    assert between.cross_traces.tolist() == [2, 0]
    assert float(between.alignment()) == 2 * 1.5 * 3  # unweighted: the centres are -0.5 and -1
    assert float(between.transport_cost()) == 2 * 1.5**2
    back = line(FIRST, -LAST, LABELS, 2)
    assert float(back.alignment()) == -9
    assert float(back.transport_cost()) == 2 * 4.5**2


def test_pfc1_is_nan_where_the_means_meet() -> None:
    opposite = line(FIRST, -FIRST + 0.5 * (FIRST - FIRST.round()), LABELS, 2)
    assert math.isnan(opposite.pfc1(0.5))
    assert float(opposite.pfc1(0.0)) == pytest.approx(1 / 2)
    spread = column(0, 2, -1, 3, -1, 3)  # one mean for both classes
    assert math.isnan(line(spread, spread, LABELS, 2).pfc1(0.5))


def test_pfc2_of_three_classes_by_hand() -> None:
    """From an equilateral triangle to its first vertex and the middle of the opposite side."""
    root = 3**0.5
    first = torch.tensor([[2, 0], [-1, root], [-1, -root]], dtype=torch.float64)
    last = torch.tensor([[2, 0], [-1, 0], [-1, 0]], dtype=torch.float64)
    flattening = line(first, last, torch.arange(3), 3)
    for t in TIMES:
        # squares of the axes of the three centred points: 6 and 6 (1 - t)^2
        a, b = 6.0, 6 * (1 - t) ** 2
        cosine = (a + b) / math.sqrt(2 * (a * a + b * b))
        assert float(flattening.pfc2(t)) == pytest.approx(math.sqrt(2 - 2 * cosine), abs=1e-7)


@pytest.mark.parametrize("prior", ["empirical", "uniform"])
@pytest.mark.parametrize("seed", range(2))
def test_the_line_is_that_of_interpolated_features(seed: int, prior: str) -> None:
    rng = np.random.default_rng(seed)
    labels = np.array([0, 2, 3, 3, 0, 2, 3, 3, 3])  # no sample of class 1
    first = rng.normal(size=(9, 3)) + 2 * rng.normal(size=(4, 3))[labels]
    last = rng.normal(size=(9, 3)) - 3 * rng.normal(size=(4, 3))[labels]
    found = line(*map(torch.as_tensor, (first, last, labels)), 4, prior)
    expected = reference_geodesic(first, last, labels, TIMES, num_classes=4, prior=prior)
    for t, pfc1, pfc2 in zip(TIMES, expected["pfc1"], expected["pfc2"], strict=True):
        assert float(found.pfc1(t)) == pytest.approx(pfc1, rel=1e-12)
        assert float(found.pfc2(t)) == pytest.approx(pfc2, rel=1e-12)
    alignment = reference_alignment(first, last, labels)
    assert float(found.alignment()) == pytest.approx(alignment, rel=1e-12)
    cost = reference_transport_cost(first, last, labels)
    assert float(found.transport_cost()) == pytest.approx(cost, rel=1e-12)


def test_the_line_has_the_type_of_the_statistics() -> None:
    found = line(FIRST, LAST, LABELS, 2)
    assert found.cross_traces.dtype == found.first.means.dtype == found.pfc1(0.5).dtype


@pytest.mark.parametrize(
    ("steps", "positions"),
    [
        ([], [0]),
        ([0.25], [0, 1]),
        ([1.0, 3.0], [0, 0.25, 1]),
        ([0.125, 0.0, 0.25, 0.125], [0, 0.25, 0.25, 0.75, 1]),
        ([0.0, 2.0], [0, 0, 1]),
    ],
)
def test_relative_positions_by_hand(steps: list[float], positions: list[float]) -> None:
    assert relative_position(steps) == positions


def test_relative_positions_are_nan_where_nothing_moves() -> None:
    assert relative_position([0.0, 0.0]) == pytest.approx([0, math.nan, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("turn", "ratio"), [(0.0, 1.0), (math.pi / 2, 0.5**0.5), (2 * math.pi / 3, 0.5), (math.pi, 0)]
)
def test_a_turn_halfway_shortens_the_chord_by_the_cosine_rule(turn: float, ratio: float) -> None:
    chord = math.sqrt(max(2 + 2 * math.cos(turn), 0))
    assert straightness([1.0, 1.0], chord) == pytest.approx(ratio, abs=1e-12)


def test_straightness_counts_samples_by_the_lengths_of_their_paths() -> None:
    """One sample goes 1 there and back, another 3 on: 3 of 5."""
    assert straightness([1 + 1, 1 + 2], 0 + 3) == pytest.approx(3 / 5)


def test_straightness_is_nan_where_nothing_moves() -> None:
    assert math.isnan(straightness([0.0, 0.0], 0.0))


def test_relative_positions_are_those_of_the_features() -> None:
    layers = np.random.default_rng(0).normal(size=(4, 5, 2))
    steps = np.linalg.norm(np.diff(layers, axis=0), axis=2).sum(1)
    expected = reference_relative_position(layers)
    assert relative_position(steps.tolist()) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("accuracies", "epsilon", "depth"),
    [
        ([0.5, 0.75, 0.5, 1.0, 1.0], 0.25, 1),  # the error is epsilon exactly; the first counts
        ([0.5, 0.75, 0.5, 1.0, 1.0], 0.125, 3),
        ([0.5, 0.75, 0.5, 1.0, 1.0], 0.0, 3),
        ([0.5, 0.75, 0.5, 1.0, 1.0], 0.5, 0),
        ([0.0, 0.0], 1.0, 0),
        ([0.5, 0.75], 0.125, None),
        ([], 0.5, None),
    ],
)
def test_effective_depth_by_hand(
    accuracies: list[float], epsilon: float, depth: int | None
) -> None:
    assert effective_depth(accuracies, epsilon) == depth
    assert reference_effective_depth(accuracies, epsilon) == depth


@pytest.mark.parametrize(
    ("values", "falling", "breaks"),
    [
        ([3.0, 1.0, 1.5, 1.5, 1.75, 0.0], True, [(2, 0.5), (4, 0.25)]),
        ([3.0, 1.0, 1.5, 1.5, 1.75, 0.0], False, [(1, 2.0), (5, 1.75)]),
        ([1.0, 1.0, 1.0], True, []),
        ([1.0, 1.0, 1.0], False, []),
        ([-1.0, -0.5], True, [(1, 0.5)]),
        ([2.0], True, []),
        ([], False, []),
    ],
)
def test_breaks_of_the_order_by_hand(
    values: list[float], falling: bool, breaks: list[tuple[int, float]]
) -> None:
    assert order_breaks(values, falling) == breaks
    steps = reference_monotonicity_breaks(values, decreasing=falling)
    assert [(layer + 1, amount) for layer, amount in steps] == breaks
