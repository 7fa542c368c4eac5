"""Eigenpairs of matrices with prescribed spectra; sums of products by blocks."""

import pytest
import torch
from torch import Tensor

from ncscope.math.symmetric import (
    add_gram_,
    comparable_scales,
    factor_eigen,
    find_gram,
    frobenius_of_gram,
    mirror_upper,
    rank_cut,
    rescale,
    share_gram,
    symmetric_eigen,
)

EPS = 2.0**-52


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def rotation(d: int, seed: int = 0) -> Tensor:
    return torch.linalg.qr(normal(d, d, seed=seed))[0]


def with_spectrum(values: list[float]) -> Tensor:
    turn = rotation(len(values))
    matrix = turn * torch.tensor(values, dtype=torch.float64) @ turn.T
    return (matrix + matrix.T) / 2


def assert_eigenpairs(matrix: Tensor, values: Tensor, vectors: Tensor) -> None:
    scale = float(values.max()) if len(values) else 1.0
    identity = torch.eye(len(values), dtype=torch.float64)
    torch.testing.assert_close(vectors.T @ vectors, identity, rtol=0, atol=1e-9)
    torch.testing.assert_close(matrix @ vectors, vectors * values, rtol=0, atol=1e-12 * scale)


def test_a_gram_matrix_is_shared_for_rows_that_are_said_to_stay() -> None:
    rows = share_gram(normal(9, 4))
    assert find_gram(rows) is find_gram(rows)
    torch.testing.assert_close(find_gram(rows), rows @ rows.mT)
    with torch.inference_mode():
        torch.testing.assert_close(find_gram(share_gram(2 * rows)), 4 * rows @ rows.mT)


def test_rows_of_a_user_may_change_and_have_gradients() -> None:
    rows = normal(9, 4)
    before = frobenius_of_gram(rows)
    rows.data.mul_(2)
    torch.testing.assert_close(frobenius_of_gram(rows), 4 * before)
    weight = normal(9, 4).requires_grad_()
    with torch.no_grad():
        frobenius_of_gram(weight)
    assert find_gram(share_gram(weight)) is None
    for _ in range(2):
        weight.grad = None
        frobenius_of_gram(weight).backward()
        norm = torch.linalg.matrix_norm(weight.detach() @ weight.detach().mT)
        gradient = 2 * (weight @ weight.mT @ weight).detach() / norm
        torch.testing.assert_close(weight.grad, gradient)


def test_prescribed_spectrum_comes_back() -> None:
    values = [5.0, 3.0, 3.0, 1e-3, 0.0, 0.0]
    eigen = symmetric_eigen(with_spectrum(values))
    assert eigen.rank == 4
    expected = torch.tensor(values, dtype=torch.float64)
    torch.testing.assert_close(eigen.spectrum, expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(eigen.values, expected[:4], rtol=0, atol=1e-14)
    assert (eigen.spectrum >= 0).all()
    assert_eigenpairs(with_spectrum(values), eigen.values, eigen.vectors)


def test_the_cut_is_epsilon_times_dimension_times_the_largest() -> None:
    cut = EPS * 4 * 8.0
    eigen = symmetric_eigen(torch.diag(torch.tensor([8.0, 1.01 * cut, cut, 0.5 * cut]).double()))
    assert eigen.cut == cut == rank_cut(torch.tensor(8.0, dtype=torch.float64), 4)
    assert eigen.rank == 2
    assert rank_cut(torch.tensor(8.0), 4) == 2.0**-23 * 4 * 8
    assert rank_cut(torch.tensor(-1.0), 4) == 0


def test_limit_keeps_the_leading_ones() -> None:
    eigen = symmetric_eigen(with_spectrum([4.0, 3.0, 2.0]), limit=2)
    torch.testing.assert_close(eigen.values, torch.tensor([4.0, 3.0], dtype=torch.float64))
    assert len(eigen.spectrum) == 3


@pytest.mark.parametrize("d", [0, 1, 3])
def test_a_zero_matrix_has_no_pairs(d: int) -> None:
    eigen = symmetric_eigen(torch.zeros(d, d, dtype=torch.float64))
    assert eigen.rank == 0
    assert eigen.vectors.shape == (d, 0)
    assert eigen.spectrum.tolist() == [0] * d


@pytest.mark.parametrize(("d", "k"), [(9, 4), (4, 9), (5, 5), (1, 3), (3, 1)])
def test_factor_has_the_pairs_of_both_products(d: int, k: int) -> None:
    factor = normal(d, k)
    eigen, right = factor_eigen(factor, limit=min(d, k))
    assert eigen.rank == min(d, k) == len(eigen.spectrum)
    assert_eigenpairs(factor @ factor.T, eigen.values, eigen.vectors)
    assert_eigenpairs(factor.T @ factor, eigen.values, right)
    # matching: A v = sqrt(lambda) u
    torch.testing.assert_close(factor @ right, eigen.vectors * eigen.values.sqrt())


@pytest.mark.parametrize(("d", "k"), [(9, 4), (4, 9)])
def test_factor_of_lower_rank(d: int, k: int) -> None:
    factor = normal(d, 2) @ normal(2, k, seed=1)
    eigen, right = factor_eigen(factor, limit=4)
    assert eigen.rank == right.shape[1] == 2
    assert eigen.cut == pytest.approx(EPS * d * float(eigen.values[0]), rel=1e-12, abs=0)
    assert_eigenpairs(factor @ factor.T, eigen.values, eigen.vectors)
    assert factor_eigen(factor, limit=1)[0].rank == 1


@pytest.mark.parametrize(("size", "kept"), [(0.5, 1), (1.5, 2)])
def test_the_cut_of_a_factor_is_that_of_its_longer_side(size: float, kept: int) -> None:
    """Both products have the same eigenvalues; the cut is that of d, whichever was decomposed."""
    d, cut = 64, EPS * 64
    factor = torch.zeros(d, 2, dtype=torch.float64)
    factor[0, 0], factor[1, 1] = 1, (size * cut) ** 0.5
    assert size * cut > EPS * 2  # above the cut of the 2 x 2 product
    assert factor_eigen(factor, limit=2)[0].rank == kept


def test_scales_bring_deviations_within_a_thousand() -> None:
    assert comparable_scales(torch.tensor([1.0, 2.0**-19.5, 0.0])) is None
    assert comparable_scales(torch.zeros(3)) is None
    variances = torch.tensor(
        [3.0, 3 * 2.0**-20, 3 * 2.0**-39, 3 * 2.0**-61, 0.0], dtype=torch.float64
    )
    scales = comparable_scales(variances)
    assert scales.tolist() == [1, 2**10, 2**10, 2**30, 1]
    # exact, and far beyond what a product of the scales could hold
    wide = torch.tensor([1e300, 1e-300], dtype=torch.float64)
    matrix = rescale(wide.diag(), comparable_scales(wide))
    assert 2.0**-20 < matrix[1, 1] / matrix[0, 0] <= 1


@pytest.mark.parametrize(("k", "d"), [(3, 8), (8, 3), (1, 1)])
def test_frobenius_norm_of_the_gram_matrix(k: int, d: int) -> None:
    rows = normal(k, d)
    expected = torch.linalg.matrix_norm(rows @ rows.T)
    torch.testing.assert_close(frobenius_of_gram(rows), expected)


@pytest.mark.parametrize("d", [1, 7, 255, 256, 257, 301])
def test_products_by_blocks_add_up(d: int) -> None:
    first, second = normal(5, d), normal(3, d, seed=1)
    total = torch.zeros(d, d, dtype=torch.float64)
    add_gram_(total, first)
    add_gram_(total, second)
    expected = first.T @ first + second.T @ second
    torch.testing.assert_close(mirror_upper(total), expected)
    torch.testing.assert_close(total.triu(), expected.triu())


def test_wide_products_leave_the_lower_blocks_alone() -> None:
    total = torch.zeros(300, 300, dtype=torch.float64)
    add_gram_(total, normal(5, 300))
    assert not total[225:, :75].any()


def test_mirrored_reads_the_upper_triangle_only() -> None:
    matrix = torch.tensor([[1.0, 2.0], [torch.nan, 3.0]])
    assert mirror_upper(matrix).tolist() == [[1, 2], [2, 3]]


@pytest.mark.parametrize(("d", "k"), [(9, 4), (4, 9)])
def test_small_eigenvalues_of_a_factor_keep_their_digits(d: int, k: int) -> None:
    singular = torch.tensor([1.0, 1e-2, 1e-5, 1e-6], dtype=torch.float64)
    factor = rotation(d)[:, :4] * singular @ rotation(k, seed=1)[:, :4].T
    eigen, right = factor_eigen(factor, limit=4)
    torch.testing.assert_close(eigen.values.sqrt(), singular, rtol=1e-9, atol=0)
    for vectors in (eigen.vectors, right):
        torch.testing.assert_close(vectors.norm(dim=0), torch.ones(4).double(), rtol=1e-12, atol=0)
    torch.testing.assert_close(eigen.spectrum, eigen.values, rtol=0, atol=0)


@pytest.mark.parametrize("scale", [1.0, 2.0**-10, 2.0**300])
@pytest.mark.parametrize("turned", [False, True])
def test_the_norm_of_a_gram_matrix_by_hand(scale: float, turned: bool) -> None:
    rows = torch.tensor([[1.0, 2.0], [0.0, 2.0], [2.0, 0.0]], dtype=torch.float64)
    rows = scale * (rows.T if turned else rows)
    square = 5**2 + 4**2 + 4**2 + 2 * (4**2 + 2**2)  # of the side of three
    assert square == 5**2 + 8**2 + 2 * 2**2  # and of the side of two
    assert float(frobenius_of_gram(rows)) == pytest.approx(scale**2 * square**0.5, rel=1e-14, abs=0)


def test_the_gram_matrix_of_zeros_has_norm_0() -> None:
    assert float(frobenius_of_gram(torch.zeros(3, 2, dtype=torch.float64))) == 0
