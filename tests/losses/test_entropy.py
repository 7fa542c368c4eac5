"""The entropy of a Gram matrix, and why its gradient leaves the null space out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from ncscope.errors import InputError
from ncscope.losses import batch_entropy, entropy, matrix_entropy
from ncscope.math.frames import orthogonal_frame, simplex_etf
from ncscope.math.symmetric import Eigen, symmetric_eigen
from tests.losses import brute_force
from tests.losses.batches import Batch


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def entropy_and_gradient(matrix: Tensor) -> tuple[Tensor, Tensor]:
    leaf = matrix.clone().requires_grad_()
    value = matrix_entropy(leaf, len(matrix))
    value.backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def hadamard(left: Tensor, right: Tensor) -> Tensor:
    return (left @ left.T) * (right @ right.T)


def low_rank_path(product: bool):
    """K(t) of rank at most 2 (4 for the product) at t = 0, of full rank beyond."""
    low, move = normal(8, 2) @ normal(2, 9, seed=1), normal(8, 9, seed=2)
    other, other_move = normal(8, 2, seed=3) @ normal(2, 9, seed=4), normal(8, 9, seed=5)

    def path(t: float) -> Tensor:
        rows, others = low + t * move, other + t * other_move
        return hadamard(rows, others) if product else rows @ rows.T

    step = 1e-4  # entries are polynomials of degree 4: no rounding to speak of, error O(step^2)
    return path, (path(step) - path(-step)) / (2 * step)


@pytest.mark.parametrize("product", [False, True], ids=["gram", "hadamard"])
def test_null_eigenvalues_do_not_move_to_first_order(product):
    path, slope = low_rank_path(product)
    values, vectors = torch.linalg.eigh(path(0))
    null = vectors[:, values < 1e-10 * values[-1]]
    assert null.shape[1] == (4 if product else 6)
    assert (null.T @ slope @ null).abs().max() < 1e-5
    assert (vectors.T @ slope @ vectors).abs().max() > 1


@pytest.mark.parametrize("product", [False, True], ids=["gram", "hadamard"])
def test_gradient_is_the_derivative_along_a_path_that_leaves_the_null_space(product):
    path, slope = low_rank_path(product)
    start, gradient = entropy_and_gradient(path(0))
    linear = (gradient * slope).sum()
    steps = (1e-3, 1e-5, 1e-7)
    quotients = [(matrix_entropy(path(t), 8) - start) / t for t in steps]
    errors = [float((q - linear).abs()) for q in quotients]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert errors[2] < 1e-3 * abs(linear)


def test_gradient_is_zero_on_the_null_space():
    path, _ = low_rank_path(product=False)
    _, gradient = entropy_and_gradient(path(0))
    values, vectors = torch.linalg.eigh(path(0))
    null = vectors[:, values < 1e-10 * values[-1]]
    assert (gradient @ null).abs().max() < 1e-12


def test_gradient_of_a_full_rank_matrix():
    factor = normal(5, 8)
    matrix = (factor @ factor.T).requires_grad_()
    assert gradcheck(lambda m: matrix_entropy((m + m.T) / 2, 5), matrix)


def test_second_derivative_is_refused():
    rows = normal(3, 4).requires_grad_()
    (gradient,) = torch.autograd.grad(batch_entropy(rows), rows, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivative only"):
        gradient.square().sum().backward()


def test_value(batch: Batch):
    for rows in (batch.features, batch.heads):
        expected = brute_force.entropy(brute_force.gram(rows.numpy()))
        assert float(batch_entropy(rows)) == pytest.approx(expected, abs=1e-10)


@pytest.mark.usefixtures("unchecked_signatures")  # hundreds of calls of the same sizes
def test_gradcheck(batch: Batch):
    for rows in (batch.features, batch.heads):
        assert gradcheck(batch_entropy, rows.clone().requires_grad_())


def test_matrix_of_either_side_has_the_same_entropy():
    rows = torch.nn.functional.normalize(normal(6, 4))
    large, small = matrix_entropy(rows @ rows.T, 6), matrix_entropy(rows.T @ rows, 6)
    assert float(large) == pytest.approx(float(small), abs=1e-12)


@pytest.mark.parametrize(("shape", "side"), [((12, 4), 4), ((6, 9), 6)])
def test_eigenproblem_is_on_the_smaller_side(shape, side, monkeypatch):
    sizes = []

    def spy(matrix: Tensor) -> Eigen:
        sizes.append(len(matrix))
        return symmetric_eigen(matrix)

    monkeypatch.setattr(entropy, "symmetric_eigen", spy)
    batch_entropy(normal(*shape))
    assert sizes == [side]


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_equal_eigenvalues(rank):
    assert float(batch_entropy(orthogonal_frame(rank).repeat(3, 1))) == pytest.approx(
        math.log(rank), abs=1e-12
    )


def test_simplex():
    assert float(batch_entropy(simplex_etf(10))) == pytest.approx(math.log(9), abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 8), d=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_range_and_invariance(n, d, seed):
    rows = normal(n, d, seed=seed)
    turn = orthogonal_frame(d, generator=torch.Generator().manual_seed(seed))
    scale = normal(n, 1, seed=seed + 1).exp()
    value = float(batch_entropy(rows))
    assert -1e-12 <= value <= math.log(min(n, d)) + 1e-12
    assert float(batch_entropy(scale * rows @ turn)) == pytest.approx(value, abs=1e-10)


def test_gradient_is_tangent_to_every_row(batch: Batch):
    rows = batch.features.clone().requires_grad_()
    batch_entropy(rows).backward()
    assert rows.grad is not None
    assert (rows.grad * batch.features).sum(1).abs().max() < 1e-10


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_length_of_the_rows_does_not_matter(scale):
    rows = normal(5, 3)
    assert float(batch_entropy(scale * rows)) == pytest.approx(
        float(batch_entropy(rows)), abs=1e-12
    )


@pytest.mark.parametrize("rows", [torch.zeros(0, 3), torch.zeros(1, 3)])
def test_fewer_than_two_rows_have_none(rows):
    leaf = rows.requires_grad_()
    value = batch_entropy(leaf)
    value.backward()
    assert value.item() == 0
    assert leaf.grad is not None
    assert not leaf.grad.any()


def test_rows_without_direction_are_named():
    rows = torch.ones(4, 2)
    rows[[1, 3]] = 0
    with pytest.raises(InputError, match=r"direction, found 2 that are zero \(row 1, 3\)"):
        batch_entropy(rows)
    rows[2, 0] = torch.inf
    with pytest.raises(InputError, match="found 1 that are NaN or infinite"):
        batch_entropy(rows[[0, 2]])


@pytest.mark.usefixtures("unchecked_signatures")
def test_no_matrix_is_refused():
    with pytest.raises(InputError, match=r"vectors of shape \(n, d\), found shape \(3,\)"):
        batch_entropy(torch.ones(3))
