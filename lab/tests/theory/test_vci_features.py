"""The instances are what they say, and the slow ways to the metrics are right."""

import pytest
import torch

from ncscope_lab.theory.search import normal
from ncscope_lab.theory.vci_features import (
    between_covariance,
    capture,
    capture_trace,
    class_means,
    draw,
    draw_balanced,
    draw_imbalanced,
    draw_mixture,
    draw_unstructured_of,
    label_by_counts,
    probe_minimum,
    total_covariance,
    within_covariance,
)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_covariances_of_a_hand_made_set() -> None:
    rows = torch.tensor([[0.0], [2.0], [5.0], [9.0]]).double()
    labelled = label_by_counts(rows, torch.tensor([2, 2]))
    assert class_means(labelled).flatten().tolist() == [1, 7]
    assert within_covariance(labelled).item() == pytest.approx((1 + 1 + 4 + 4) / 4)
    assert between_covariance(labelled).item() == pytest.approx(9)
    assert total_covariance(labelled).item() == pytest.approx((16 + 4 + 1 + 25) / 4)
    assert capture_trace(labelled) == pytest.approx(9 / 11.5)


def test_drawn_spectra_are_those_of_the_pair(generator: torch.Generator) -> None:
    between = torch.tensor([3.0, 0.5, 0.0]).double()
    within = torch.tensor([0.0, 2.0, 1.0]).double()
    labelled = draw(torch.tensor([4, 4, 4]), between, within, generator)
    pair = within_covariance(labelled), between_covariance(labelled)
    ranks = [int(torch.linalg.matrix_rank(matrix, hermitian=True)) for matrix in pair]
    assert ranks == [2, 2]
    inverse = torch.linalg.pinv(sum(pair), rtol=1e-11, hermitian=True)
    values = torch.linalg.eigvals(inverse @ pair[1]).real.sort(descending=True).values
    torch.testing.assert_close(values[:2], torch.tensor([1.0, 0.2], dtype=torch.float64))
    assert values[2:].abs().max() < 1e-12
    assert capture_trace(labelled) == pytest.approx(1.2)


def test_every_kind_of_instance_comes_up(generator: torch.Generator) -> None:
    drawn = list(draw_balanced(generator, 200))
    assert {labelled.k for labelled in drawn} == {2, 3, 4, 5, 6}
    for kind in (
        lambda one: not one.within.any(),
        lambda one: not (one.within * one.between).any(),
        lambda one: one.rank < one.k - 1,
        lambda one: one.features.shape[1] > len(one.between),
        lambda one: one.features.shape[1] >= one.k,
        lambda one: one.features.shape[1] < one.k - 1,
    ):
        assert any(kind(one) for one in drawn)
    for one in draw_imbalanced(generator, 50):
        assert one.counts.min() >= 2
        assert one.counts.max() > one.counts.min()


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (6, 3)])
def test_mixing_is_well_conditioned(shape: tuple[int, int], generator: torch.Generator) -> None:
    values = torch.linalg.svdvals(draw_mixture(*shape, generator))
    assert values.min() >= 1 - 1e-12
    assert values.max() <= 10 + 1e-12


def test_probe_minimum_against_the_normal_equations(generator: torch.Generator) -> None:
    labelled = draw_unstructured_of(3, 6, 4, generator)
    rows = torch.cat([labelled.features, torch.ones(18, 1).double()], 1)
    target = torch.eye(3).double()[labelled.labels]
    solution = torch.linalg.inv(rows.mT @ rows) @ rows.mT @ target
    expected = (rows @ solution - target).square().sum() / 36
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert probe_minimum(labelled, uniform) == pytest.approx(float(expected), rel=1e-12)


def test_weights_count_like_copies(generator: torch.Generator) -> None:
    rows, copies = normal(9, 2, generator=generator), torch.tensor([1, 1, 1, 3, 3, 3, 1, 1, 1])
    once = label_by_counts(rows, torch.tensor([3, 3, 3]))
    often = label_by_counts(rows.repeat_interleave(copies, 0), torch.tensor([3, 9, 3]))
    prior = torch.tensor([0.2, 0.6, 0.2], dtype=torch.float64)
    torch.testing.assert_close(capture(once, prior), capture(often, prior))
    assert capture_trace(often) == pytest.approx(float(capture(once, prior).sum()))
    assert probe_minimum(once, prior) == pytest.approx(probe_minimum(often, prior), rel=1e-12)
