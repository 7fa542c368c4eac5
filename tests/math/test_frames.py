"""Frames have the Gram matrices that define them."""

import pytest
import torch

from ncscope.errors import InputError
from ncscope.math.frames import orthogonal_frame, simplex_basis, simplex_etf

SIZES = [(2, 1), (2, 5), (3, 2), (4, 4), (10, 9), (10, 30), (100, 99)]


def gram_of_simplex(k: int) -> torch.Tensor:
    return (k * torch.eye(k, dtype=torch.float64) - 1) / (k - 1)


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("k", "dim"), SIZES)
@pytest.mark.parametrize("seed", [None, 0])
def test_simplex_has_unit_vectors_at_equal_angles(k: int, dim: int, seed: int | None) -> None:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    vectors = simplex_etf(k, dim, generator)
    assert vectors.shape == (k, dim)
    assert vectors.dtype == torch.float64
    assert_equal(vectors @ vectors.T, gram_of_simplex(k))
    assert_equal(vectors.sum(0), torch.zeros(dim, dtype=torch.float64))
    # tight: the frame operator is a multiple of the projector on the span
    operator = vectors.T @ vectors * (k - 1) / k
    assert_equal(operator @ operator, operator)


@pytest.mark.parametrize(("k", "dim"), [(1, 1), (3, 3), (3, 8), (20, 20)])
@pytest.mark.parametrize("seed", [None, 0])
def test_orthogonal_frame_is_orthonormal(k: int, dim: int, seed: int | None) -> None:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    vectors = orthogonal_frame(k, dim, generator)
    assert vectors.shape == (k, dim)
    assert_equal(vectors @ vectors.T, torch.eye(k, dtype=torch.float64))


def test_known_frames() -> None:
    triangle = simplex_etf(3)
    expected = torch.tensor([[3**0.5, 1], [-(3**0.5), 1], [0, -2]], dtype=torch.float64) / 2
    assert_equal(triangle, expected)
    assert_equal(simplex_etf(2), torch.tensor([[1.0], [-1.0]], dtype=torch.float64))
    assert orthogonal_frame(2, 3).tolist() == [[1.0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("k", [2, 3, 17])
def test_simplex_basis_is_an_orthonormal_basis_of_the_contrasts(k: int) -> None:
    basis = simplex_basis(k)
    assert_equal(basis.T @ basis, torch.eye(k - 1, dtype=torch.float64))
    assert_equal(basis @ basis.T, torch.eye(k, dtype=torch.float64) - 1 / k)


def test_default_dimensions_are_the_smallest() -> None:
    assert simplex_etf(7).shape == (7, 6)
    assert orthogonal_frame(7).shape == (7, 7)


@pytest.mark.parametrize("build", [simplex_etf, orthogonal_frame])
def test_rotations_come_from_the_generator_alone(build) -> None:
    frames = [build(4, 6, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(frames[0], frames[1])
    assert not torch.allclose(frames[0], frames[2])
    state = torch.get_rng_state()
    build(4, 6, torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("build", "k", "dim", "found"),
    [
        (simplex_etf, 1, None, "k=1, dim=0"),
        (simplex_etf, 4, 2, "k=4, dim=2"),
        (orthogonal_frame, 4, 3, "k=4, dim=3"),
        (orthogonal_frame, 0, None, "k=0, dim=0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(build, k: int, dim: int | None, found: str) -> None:
    with pytest.raises(InputError, match=found):
        build(k, dim)
