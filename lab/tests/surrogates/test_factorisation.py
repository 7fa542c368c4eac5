"""Lemma C.1: the cheapest factors of a matrix, by formula and by a free search."""

import math

import pytest
import torch

from ncscope.errors import InputError
from ncscope_lab.surrogates.factorisation import (
    balance_factors,
    cheapest_factors,
    factorisation_cost,
    nuclear_bound,
)

GENERATOR = torch.Generator().manual_seed(3)
PRODUCT = (
    torch.randn(3, 2, generator=GENERATOR).double()
    @ torch.randn(2, 4, generator=GENERATOR).double()
)
DECAYS = (0.3, 0.02)


@pytest.mark.parametrize("inner", [2, 4])
def test_the_stated_factors_attain_the_bound(inner: int) -> None:
    weight, features = balance_factors(PRODUCT, inner, *DECAYS)
    assert weight.shape == (3, inner)
    assert torch.allclose(weight @ features, PRODUCT)
    bound = nuclear_bound(PRODUCT, *DECAYS)
    assert float(factorisation_cost(weight, features, *DECAYS)) == pytest.approx(bound, rel=1e-12)
    assert torch.allclose(0.3 * weight.mT @ weight, 0.02 * features @ features.mT)


def test_the_bound_of_a_diagonal_matrix() -> None:
    diagonal = torch.diag(torch.tensor([3.0, 1.0]).double())
    assert nuclear_bound(diagonal, 4.0, 9.0) == pytest.approx(math.sqrt(36) * 4)


def test_other_factors_cost_more() -> None:
    weight, features = balance_factors(PRODUCT, 2, *DECAYS)
    turn = torch.tensor([[1.0, 0.4], [0.0, 1.2]]).double()
    other = weight @ turn, torch.linalg.solve(turn, features)
    assert torch.allclose(other[0] @ other[1], PRODUCT)
    bound = nuclear_bound(PRODUCT, *DECAYS)
    assert float(factorisation_cost(*other, *DECAYS)) > 1.01 * bound


@pytest.mark.parametrize("inner", [2, 3])
def test_a_free_search_reaches_the_bound_and_the_stated_factors(inner: int) -> None:
    generator = torch.Generator().manual_seed(inner)
    weight, features = cheapest_factors(PRODUCT, inner, *DECAYS, generator)
    assert torch.allclose(weight @ features, PRODUCT, atol=1e-10)
    bound = nuclear_bound(PRODUCT, *DECAYS)
    assert float(factorisation_cost(weight, features, *DECAYS)) == pytest.approx(bound, rel=1e-10)
    stated, _ = balance_factors(PRODUCT, inner, *DECAYS)
    assert torch.allclose(weight @ weight.mT, stated @ stated.mT, atol=1e-5)


def test_narrow_factors_are_refused() -> None:
    with pytest.raises(InputError, match="an inner dimension of at least the rank 2"):
        balance_factors(PRODUCT, 1, *DECAYS)
