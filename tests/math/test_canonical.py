"""The residual 1 - nu: against direct inverses, singular matrices, and 50 digits near collapse."""

import math

import pytest
import torch
from torch import Tensor

from ncscope.math.canonical import Canonical, canonical, spread_within

from ..reference.exact import mp


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def spread(d: int, rank: int | None = None) -> Tensor:
    rows = normal(d if rank is None else rank, d, seed=1)
    return rows.T @ rows + (0.1 * torch.eye(d, dtype=torch.float64) if rank is None else 0)


def plain(within: Tensor, factor: Tensor) -> Canonical:
    return canonical(spread_within(within), factor)


def decayed(within: Tensor, factor: Tensor) -> Canonical:
    """The same, half of the least eigenvalue given as decay."""
    decay = float(torch.linalg.eigvalsh(within)[0]) / 2
    rest = within - decay * torch.eye(len(within), dtype=torch.float64)
    return canonical(spread_within(rest), factor, decay)


def odds_of(found: Canonical) -> Tensor:
    return torch.linalg.eigvalsh(found.odds_root.T @ found.odds_root)


def assert_close(found: Tensor, expected: Tensor, atol: float = 1e-11) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize(("d", "q"), [(6, 3), (6, 1), (4, 4), (3, 5), (1, 1)])
@pytest.mark.parametrize("solve", [plain, decayed])
def test_non_singular_spread_as_by_direct_inversion(d: int, q: int, solve) -> None:
    within, factor = spread(d), normal(d, q, seed=2)
    total = within + factor @ factor.T
    found = solve(within, factor)
    solution = torch.linalg.solve(total, factor)
    assert_close(found.solution, solution)
    assert_close(found.residual, torch.eye(q, dtype=torch.float64) - factor.T @ solution)
    assert_close(found.residual_root @ found.residual_root.T, found.residual)
    odds = torch.linalg.eigvalsh(factor.T @ torch.linalg.solve(within, factor))
    torch.testing.assert_close(odds_of(found), odds)


@pytest.mark.parametrize(
    ("d", "q", "rank"), [(6, 3, 4), (6, 3, 0), (6, 3, 2), (8, 2, 7), (5, 5, 3)]
)
def test_singular_spread_as_by_the_pseudo_inverse(d: int, q: int, rank: int) -> None:
    within, factor = spread(d, rank), normal(d, q, seed=2)
    total = within + factor @ factor.T
    found = plain(within, factor)
    inverse = torch.linalg.pinv(total, rtol=1e-12, hermitian=True)
    expected = torch.eye(q, dtype=torch.float64) - factor.T @ inverse @ factor
    assert_close(found.residual, expected, 1e-10)
    assert_close(found.solution, inverse @ factor, 1e-10)
    assert found.rank == int(torch.linalg.matrix_rank(total, hermitian=True))
    # one direction is lost to nu = 1 for each that the factor has outside the range of R
    outside = min(q, d - rank)
    assert found.residual_root.shape == (q, q - outside)


def test_spread_and_factor_in_a_common_subspace() -> None:
    basis = torch.linalg.qr(normal(9, 4))[0]
    within, factor = basis @ spread(4) @ basis.T, basis @ normal(4, 2, seed=2)
    inside = plain(spread(4), normal(4, 2, seed=2))
    found = plain(within, factor)
    assert_close(found.residual, inside.residual)
    assert_close(found.solution, basis @ inside.solution)
    assert found.rank == spread_within(within).eigen.rank == 4


def test_nothing_at_all() -> None:
    found = plain(torch.zeros(3, 3).double(), torch.zeros(3, 0).double())
    assert found.residual.shape == (0, 0)
    assert found.solution.shape == (3, 0)
    assert found.rank == 0


def test_without_spread_the_residual_is_zero() -> None:
    found = plain(torch.zeros(4, 4).double(), normal(4, 2))
    assert found.residual.abs().max() == 0
    assert found.odds_root.shape == (0, 0)


def exact_residual(within: Tensor, factor: Tensor) -> list[list[object]]:
    """I - C^T (R + C C^T)^-1 C in 50 digits."""
    r, c = mp.matrix(within.tolist()), mp.matrix(factor.tolist())
    return (mp.eye(c.cols) - c.T * mp.inverse(r + c * c.T) * c).tolist()


@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("solve", [plain, decayed])
def test_near_collapse_keeps_nine_digits(size: float, solve) -> None:
    """Spread `size` of the factor: the residual is about its square."""
    within, factor = size**2 * spread(6), normal(6, 3, seed=2)
    found: Canonical = solve(within, factor)
    expected = exact_residual(within, factor)
    for row, wanted in zip(found.residual.tolist(), expected, strict=True):
        assert row == pytest.approx([float(value) for value in wanted], rel=1e-9, abs=0)
    # 1 minus the correlations would have lost them
    if size == 1e-6:
        lost = torch.eye(3, dtype=torch.float64) - factor.T @ found.solution
        assert float(lost[0, 0]) != pytest.approx(float(expected[0][0]), rel=1e-6, abs=0)


DECAYS = [1e-3, 1.0, 1e3]


@pytest.mark.parametrize(
    ("d", "q", "rank"), [(6, 3, 6), (6, 3, 2), (5, 5, 3), (4, 5, 2), (3, 2, 0)]
)
@pytest.mark.parametrize("decay", DECAYS)
def test_decay_as_by_direct_inversion(d: int, q: int, rank: int, decay: float) -> None:
    within, factor = spread(d, rank), normal(d, q, seed=2)
    total = within + decay * torch.eye(d, dtype=torch.float64) + factor @ factor.T
    solution = torch.linalg.solve(total, factor)
    found = canonical(spread_within(within), factor, decay)
    assert_close(found.solution, solution)
    assert_close(found.residual, torch.eye(q, dtype=torch.float64) - factor.T @ solution)


@pytest.mark.parametrize(("d", "q", "rank"), [(6, 3, 6), (6, 3, 2), (5, 4, 3), (3, 2, 0)])
@pytest.mark.parametrize("decay", DECAYS)
def test_a_constant_feature_as_by_direct_inversion(d: int, q: int, rank: int, decay: float) -> None:
    within, factor, mean = spread(d, rank), normal(d, q, seed=2), normal(d, seed=3)
    with_constant = torch.block_diag(factor, torch.ones(1, 1).double())
    with_constant[:d, -1] = mean
    total = torch.block_diag(within, torch.zeros(1, 1).double()) + with_constant @ with_constant.T
    total += decay * torch.eye(d + 1, dtype=torch.float64)
    solution = torch.linalg.solve(total, with_constant)
    found = canonical(spread_within(within), factor, decay, mean)
    assert_close(found.solution, solution[:d])
    identity = torch.eye(q + 1, dtype=torch.float64)
    assert_close(found.residual, identity - with_constant.T @ solution)


@pytest.mark.parametrize("decay", [1e-10, 1e-17, 1e-30, 1e-300])
def test_outside_the_range_of_the_spread_any_decay_counts(decay: float) -> None:
    """R varies along one axis, the factor along both: F = 1 / (1 + 4 / (1 + decay) + 9 / decay)."""
    within, factor = torch.diag(torch.tensor([1.0, 0.0]).double()), torch.tensor([[2.0], [3.0]])
    found = canonical(spread_within(within), factor.double(), decay)
    assert float(found.residual) == pytest.approx(decay / 9, rel=6 * decay + 1e-14, abs=0)


@pytest.mark.parametrize("ratio", [1e3, 1e6, 1e12, 1e100])
def test_units_of_the_coordinates_do_not_matter(ratio: float) -> None:
    within, factor = spread(5, 40), normal(5, 3, seed=2)
    units = torch.logspace(0, math.log10(ratio), 5, dtype=torch.float64)
    plainly = plain(within, factor)
    found = plain(within * units[:, None] * units, factor * units[:, None])
    torch.testing.assert_close(found.residual, plainly.residual, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.solution * units[:, None], plainly.solution)


def test_columns_of_zeros_have_all_of_the_residual() -> None:
    factor = torch.nn.functional.pad(normal(4, 2), (0, 1))
    for within in (spread(4), 1e-20 * spread(4), spread(4, 2), torch.zeros(4, 4).double()):
        residual = plain(within, factor).residual
        assert residual[2].tolist() == [0, 0, 1]
