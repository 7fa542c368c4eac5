"""Principal axes of features of wild scales, against arithmetic of 500 digits."""

import mpmath
import pytest
import torch

from ncscope.transfer.uneven_scales import uneven_eigen, uneven_svd, unit_scale


def exact_eigen(matrix):
    """Eigenvalues, descending, and eigenvectors as columns of a list of rows."""
    with mpmath.workdps(500):
        values, vectors = mpmath.eigsy(mpmath.matrix(matrix.tolist()))
        order = range(len(matrix))[::-1]
        return [values[i] for i in order], [[vectors[j, i] for i in order] for j in order[::-1]]


def known_to(found, exact):
    """The worst relative error of the sizes."""
    with mpmath.workdps(50):
        pairs = zip(found.flatten().tolist(), exact, strict=True)
        return max(float(abs(abs(mpmath.mpf(value)) / abs(known) - 1)) for value, known in pairs)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("orders", [0.5, 3, 8, 25])
def test_each_value_and_entry_is_known_to_its_own_precision(orders, seed):
    draws = torch.Generator().manual_seed(seed)
    rows, scales = (torch.randn(n, 5, generator=draws).double() for n in (40, 1))
    rows[:, 1] += 3 * rows[:, 0]
    rows = rows * 10 ** (orders * scales)
    values, vectors = uneven_eigen(rows.mT @ rows, limit=5)
    known_values, known_vectors = exact_eigen(rows.mT @ rows)
    # an ordinary decomposition, which does for scales close together, knows entries to 1 only
    assert known_to(values, known_values) <= 1e-12
    if orders > 1:
        assert known_to(vectors, [entry for row in known_vectors for entry in row]) <= 1e-10
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(5).double())


@pytest.mark.parametrize("scale", [1.0, 1e7, 1e30, 1e-30])
def test_the_rank_does_not_depend_on_units(scale):
    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(30, 3, generator=draws).double() * torch.tensor([scale, 1, 1]).double()
    rows = torch.cat([rows, rows[:, :1], 2 * rows[:, 1:2], torch.zeros(30, 1)], 1)
    assert len(uneven_eigen(rows.mT @ rows, limit=6)[0]) == 3
    assert len(uneven_eigen(rows.mT @ rows, limit=2)[0]) == 2


def test_of_nothing_there_are_no_axes():
    assert uneven_eigen(torch.zeros(3, 3).double(), limit=3)[1].shape == (3, 0)
    assert uneven_svd(torch.zeros(4, 0).double())[0].shape == (4, 0)


@pytest.mark.parametrize("scale", [1.0, 2.0**1000, 2.0**-1000])
def test_singular_values_are_those_of_the_matrix_of_any_size(scale):
    factor = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vectors, values = uneven_svd(scale * factor)
    torch.testing.assert_close(values / scale, torch.linalg.svdvals(factor))
    torch.testing.assert_close(vectors @ (vectors.mT @ factor), factor)


@pytest.mark.parametrize("number", [1.0, 1.999, 2.0, 3e-200, 7e250, 1e-310])
def test_the_power_brings_a_number_between_1_and_2(number):
    scaled = number * unit_scale(torch.tensor(number, dtype=torch.float64))
    assert 1 <= scaled < 2 or number < 1e-300  # there 2^1000 does not suffice, and is no more
    assert unit_scale(torch.tensor(0.0)) == 1


def test_a_power_of_two_changes_nothing():
    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 4, generator=draws).double() * torch.tensor([1e9, 1, 1e-5, 1]).double()
    values, vectors = uneven_eigen(rows.mT @ rows, limit=4)
    larger, same = uneven_eigen(2.0**400 * rows.mT @ (2.0**400 * rows), limit=4)
    assert torch.equal(same, vectors)
    assert torch.equal(larger, 2.0**800 * values)


@pytest.mark.parametrize(
    ("number", "power"),
    [
        (2.0**-1010, 2.0**1000),
        (2.0**-1000, 2.0**1000),
        (2.0**-999, 2.0**999),
        (2.0**999, 2.0**-999),
        (2.0**1000, 2.0**-1000),
        (2.0**1010, 2.0**-1000),
    ],
)
def test_the_power_ends_at_a_thousand(number, power):
    assert unit_scale(torch.tensor(number, dtype=torch.float64)) == power


@pytest.mark.parametrize(
    ("largest", "ratio", "rank"),
    [(1.0, 2.0**-899, 2), (1.0, 2.0**-900, 1), (2.0**-150, 2.0**-850, 2), (2.0**900, 2.0**-899, 2)],
)
def test_a_variance_of_any_share_above_its_least_has_an_axis(largest, ratio, rank):
    matrix = torch.tensor([largest * ratio, largest], dtype=torch.float64).diag()
    values, vectors = uneven_eigen(matrix, limit=2)
    assert values.tolist() == pytest.approx([largest, largest * ratio][:rank], rel=1e-12, abs=0)
    axes = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    torch.testing.assert_close(vectors.abs(), axes[:, :rank])


def test_of_no_columns_there_are_no_singular_values():
    assert uneven_svd(torch.zeros(4, 0).double())[1].shape == (0,)


def test_a_feature_too_small_beside_the_largest_counts_as_zero():
    """Columns of size 1, 2^-200 and 2^-475, the last a multiple of the first."""
    rows = torch.tensor([[1, 0, 2.0**-475], [0, 2.0**-200, 0]], dtype=torch.float64)
    values, vectors = uneven_eigen(rows.mT @ rows, limit=3)
    assert values.tolist() == pytest.approx([1, 2.0**-400], rel=1e-12, abs=0)
    assert vectors.abs().tolist() == [[1, 0], [0, 1], [0, 0]]
