"""The least-squares solver and the bounds against closed forms."""

import math

import pytest
import torch

from ncscope_lab.theory.info_regression import (
    affine_fit,
    largest_entropy,
    rank_bounds,
    tail_mass,
)
from ncscope_lab.theory.search import normal


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_affine_fit_finds_an_exact_map_and_its_intercept(generator: torch.Generator) -> None:
    z, weight = normal(3, 12, generator=generator), normal(2, 3, generator=generator)
    found, error = affine_fit(weight @ z + 5.0, z)
    torch.testing.assert_close(found, weight)
    assert error < 1e-13


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_affine_fit_agrees_with_lstsq(rank: int, generator: torch.Generator) -> None:
    z = normal(4, rank, generator=generator) @ normal(rank, 9, generator=generator)
    y = normal(2, 9, generator=generator)
    with_ones = torch.cat([z, torch.ones(1, 9).double()])
    solution = torch.linalg.lstsq(with_ones.mT, y.mT, driver="gelsd").solution
    _, error = affine_fit(y, z)
    torch.testing.assert_close(error, (y.mT - with_ones.mT @ solution).norm())


def test_affine_fit_on_constant_regressors_leaves_the_centred_target(
    generator: torch.Generator,
) -> None:
    y = normal(2, 9, generator=generator)
    weight, error = affine_fit(y, torch.full((3, 9), 1e9 / 3).double())
    torch.testing.assert_close(error, (y - y.mean(1, keepdim=True)).norm())
    assert weight.norm() == 0


def test_tail_mass_of_a_known_spectrum() -> None:
    features = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0]).double())
    assert tail_mass(features, 1) == pytest.approx((4 + 1) / 4)
    assert tail_mass(features, 3) == 0


def test_rank_bounds_and_largest_entropy() -> None:
    assert rank_bounds(5, 2) == pytest.approx((2 / 5, 3 / 5))
    assert largest_entropy(0.0, 5, 2) == pytest.approx(math.log(3))
    assert largest_entropy(1.0, 5, 2) == pytest.approx(math.log(5))
    assert largest_entropy(1.0, 3, 2) == pytest.approx(math.log(3))
