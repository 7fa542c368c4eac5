"""The Cholesky factor in place of eigenpairs: the same quantities, and only at full rank."""

import math

import pytest
import torch
from torch import Tensor

from ncscope.math import symmetric
from ncscope.math.canonical import canonical, spread_within
from ncscope.math.symmetric import largest_eigenvalue, positive_definite, rank_cut, symmetric_eigen

from ..reference.exact import mp

SIDE = 260


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def of_condition(condition: float, side: int = SIDE) -> Tensor:
    """A matrix with eigenvalues from 1 down to 1 / condition, in no axis' direction."""
    basis = torch.linalg.qr(normal(side, side))[0]
    values = torch.logspace(0, -math.log10(condition), side, dtype=torch.float64)
    matrix = basis * values @ basis.T
    return (matrix + matrix.T) / 2


@pytest.fixture
def by_eigenpairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncscope.math.canonical.positive_definite", lambda matrix: None)


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e4, 2.0**25.9])
def test_a_matrix_of_full_rank_is_factored(condition: float) -> None:
    matrix = of_condition(condition)
    found = positive_definite(matrix)
    assert found is not None
    torch.testing.assert_close(found.root @ found.root.T, matrix, rtol=1e-12, atol=1e-13)
    eigen = symmetric_eigen(matrix)
    assert eigen.rank == SIDE
    assert float(found.largest) == pytest.approx(float(eigen.spectrum[0]), rel=1e-6)


@pytest.mark.parametrize("condition", [2.0**26.1, 1e10, 1e13, 1e16])
def test_a_matrix_near_the_cut_or_below_is_not(condition: float) -> None:
    assert positive_definite(of_condition(condition)) is None


@pytest.mark.parametrize("rank", [0, 1, SIDE // 2, SIDE - 1])
def test_a_singular_matrix_is_not(rank: int) -> None:
    rows = normal(rank, SIDE)
    assert positive_definite(rows.T @ rows) is None


def test_pivots_do_not_show_the_smallest_eigenvalue() -> None:
    """Kahan's triangle has pivots within 1,000 of each other and a condition beyond 1e12."""
    sine = 0.99
    cosine = math.sqrt(1 - sine**2)
    powers = sine ** torch.arange(SIDE, dtype=torch.float64)
    kahan = torch.eye(SIDE).double() - cosine * torch.ones(SIDE, SIDE).double().triu(1)
    root = (powers[:, None] * kahan).T
    pivots = root.diagonal().square()
    assert pivots.max() / pivots.min() < 1e3
    assert symmetric_eigen(root @ root.T).spectrum[-1] < 1e-12
    assert positive_definite(root @ root.T) is None


def test_small_sides_and_float32_take_the_eigenpairs() -> None:
    assert positive_definite(torch.eye(255).double()) is None
    assert positive_definite(torch.eye(256).double()) is not None
    assert positive_definite(torch.eye(256)) is None


@pytest.mark.parametrize("side", [1, 2, 31, 33, 300])
def test_the_largest_eigenvalue(side: int) -> None:
    rows = normal(side + 3, side, seed=1)
    matrix = rows.T @ rows
    found = largest_eigenvalue(lambda vector: matrix @ vector, matrix[0])
    assert float(found) == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]), rel=1e-6)


@pytest.mark.parametrize("units", [1.0, 1e9])
@pytest.mark.parametrize("q", [1, 40, SIDE])
def test_the_factor_gives_what_the_eigenpairs_give(q: int, units: float, request) -> None:
    units = torch.logspace(0, math.log10(units), SIDE, dtype=torch.float64)
    within = of_condition(100.0) * units[:, None] * units
    factor = torch.linalg.qr(normal(SIDE, q, seed=2))[0] * units[:, None]
    spread, digits = spread_within(within), 1e-12 if float(units[-1]) == 1 else 1e-9
    found = canonical(spread, factor)
    assert spread.definite is not None
    assert (spread.scales is None) == (float(units[-1]) == 1)
    request.getfixturevalue("by_eigenpairs")
    wanted = canonical(spread_within(within), factor)

    def agree(one: Tensor, other: Tensor) -> None:
        size = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0, atol=digits * size)

    agree(found.residual, wanted.residual)
    agree(found.solution * units[:, None], wanted.solution * units[:, None])
    agree(found.spread_root.T @ found.spread_root, wanted.spread_root.T @ wanted.spread_root)
    agree(found.odds_root.T @ found.odds_root, wanted.odds_root.T @ wanted.odds_root)
    assert found.rank == wanted.rank == SIDE
    assert found.cut == pytest.approx(wanted.cut, rel=1e-6)
    assert spread.cut == pytest.approx(rank_cut(spread.eigen.spectrum[0], SIDE), rel=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e-6])
@pytest.mark.usefixtures("_any_side")
def test_ill_conditioned_spread_against_fifty_digits(size: float) -> None:
    within, factor = size**2 * of_condition(1e7, side=6), normal(6, 3, seed=2)
    spread = spread_within(within)
    assert spread.definite is not None
    r, c = mp.matrix(within.tolist()), mp.matrix(factor.tolist())
    exact = (mp.eye(3) - c.T * mp.inverse(r + c * c.T) * c).tolist()
    for row, wanted in zip(canonical(spread, factor).residual.tolist(), exact, strict=True):
        assert row == pytest.approx([float(value) for value in wanted], rel=1e-7, abs=0)


@pytest.fixture
def _any_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric, "_LEAST_SIDE", 1)
