"""The residual 1 - nu: against direct inverses, singular matrices, and 50 digits near collapse."""

import pytest
import torch
from torch import Tensor

from ncscope.math.canonical import Canonical, canonical, canonical_regularised

from ..reference.exact import mp


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def spread(d: int, rank: int | None = None) -> Tensor:
    rows = normal(d if rank is None else rank, d, seed=1)
    return rows.T @ rows + (0.1 * torch.eye(d, dtype=torch.float64) if rank is None else 0)


def assert_close(found: Tensor, expected: Tensor, atol: float = 1e-11) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("d", "q"), [(6, 3), (6, 1), (4, 4), (3, 5), (1, 1)])
@pytest.mark.parametrize("solve", [canonical, canonical_regularised])
def test_non_singular_spread_as_by_direct_inversion(d: int, q: int, solve) -> None:
    within, factor = spread(d), normal(d, q, seed=2)
    total = within + factor @ factor.T
    found = solve(within, factor)
    solution = torch.linalg.solve(total, factor)
    assert_close(found.solution, solution)
    assert_close(found.residual(), torch.eye(q, dtype=torch.float64) - factor.T @ solution)
    assert_close(found.residual_root() @ found.residual_root().T, found.residual())
    odds = torch.linalg.eigvalsh(factor.T @ torch.linalg.solve(within, factor))
    torch.testing.assert_close(torch.linalg.eigvalsh(found.odds), odds)


@pytest.mark.parametrize(
    ("d", "q", "rank"), [(6, 3, 4), (6, 3, 0), (6, 3, 2), (8, 2, 7), (5, 5, 3)]
)
def test_singular_spread_as_by_the_pseudo_inverse(d: int, q: int, rank: int) -> None:
    within, factor = spread(d, rank), normal(d, q, seed=2)
    total = within + factor @ factor.T
    found = canonical(within, factor)
    inverse = torch.linalg.pinv(total, rtol=1e-12, hermitian=True)
    expected = torch.eye(q, dtype=torch.float64) - factor.T @ inverse @ factor
    assert_close(found.residual(), expected, 1e-10)
    assert_close(found.solution, inverse @ factor, 1e-10)
    assert found.total.rank == int(torch.linalg.matrix_rank(total, hermitian=True))
    # one direction is lost to nu = 1 for each that the factor has outside the range of R
    outside = min(q, d - rank)
    assert found.finite.shape == (q, q - outside)


def test_spread_and_factor_in_a_common_subspace() -> None:
    basis = torch.linalg.qr(normal(9, 4))[0]
    within, factor = basis @ spread(4) @ basis.T, basis @ normal(4, 2, seed=2)
    inside = canonical(spread(4), normal(4, 2, seed=2))
    found = canonical(within, factor)
    assert_close(found.residual(), inside.residual())
    assert_close(found.solution, basis @ inside.solution)
    assert found.total.rank == found.within.rank == 4


def test_nothing_at_all() -> None:
    found = canonical(torch.zeros(3, 3).double(), torch.zeros(3, 0).double())
    assert found.residual().shape == (0, 0)
    assert found.solution.shape == (3, 0)
    assert found.total.rank == found.within.rank == 0


def test_without_spread_the_residual_is_zero() -> None:
    found = canonical(torch.zeros(4, 4).double(), normal(4, 2))
    assert found.residual().abs().max() == 0
    assert found.odds.shape == (0, 0)


def exact_residual(within: Tensor, factor: Tensor) -> list[list[object]]:
    """I - C^T (R + C C^T)^-1 C in 50 digits."""
    r, c = mp.matrix(within.tolist()), mp.matrix(factor.tolist())
    return (mp.eye(c.cols) - c.T * mp.inverse(r + c * c.T) * c).tolist()


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("solve", [canonical, canonical_regularised])
def test_near_collapse_keeps_nine_digits(size: float, solve) -> None:
    """Spread `size` of the factor: the residual is about its square."""
    within, factor = size**2 * spread(6), normal(6, 3, seed=2)
    found: Canonical = solve(within, factor)
    expected = exact_residual(within, factor)
    for row, wanted in zip(found.residual().tolist(), expected, strict=True):
        assert row == pytest.approx([float(value) for value in wanted], rel=1e-9, abs=0)
    # 1 minus the correlations would have lost them
    if size == 1e-6:
        lost = torch.eye(3, dtype=torch.float64) - factor.T @ found.solution
        assert float(lost[0, 0]) != pytest.approx(float(expected[0][0]), rel=1e-6, abs=0)
