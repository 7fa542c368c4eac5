"""Two projections onto the tangent space, on the manifold and off it."""

import pytest
import torch

from ncscope_lab.surrogates.dynamics.manifold import (
    constraint_derivative,
    oblique_adjoint,
    oblique_projection,
    orthogonal_projection,
)
from ncscope_lab.surrogates.dynamics.snr import random_features, renormalise, split

K, D, N = 3, 5, 4


@pytest.fixture
def point() -> torch.Tensor:
    return random_features(K, D, N, 2.0, torch.Generator().manual_seed(0))


def direction(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(D, K * N, dtype=torch.float64, generator=generator)


def off_the_manifold(point: torch.Tensor) -> torch.Tensor:
    return torch.diag(torch.linspace(0.5, 2, D, dtype=torch.float64)) @ point


@pytest.mark.parametrize("project", [orthogonal_projection, oblique_projection])
def test_projections_are_tangent_and_idempotent_at_any_covariance(project, point) -> None:
    for here in (point, off_the_manifold(point)):
        image = project(here, direction(1), K)
        assert constraint_derivative(here, image, K).norm() < 1e-13
        torch.testing.assert_close(project(here, image, K), image)
        assert (image - direction(1)).norm() > 0.1


@pytest.mark.parametrize("project", [orthogonal_projection, oblique_projection])
def test_on_the_manifold_they_are_the_short_formulas(project, point) -> None:
    z = direction(1)
    change = constraint_derivative(point, z, K) / 2
    part = split(point, K).within if project is orthogonal_projection else point
    torch.testing.assert_close(project(point, z, K), z - change @ part)


def test_one_is_self_adjoint_and_the_other_not(point) -> None:
    for here in (point, off_the_manifold(point)):
        z, w = direction(1), direction(2)
        first = (orthogonal_projection(here, z, K) * w).sum()
        torch.testing.assert_close(first, (z * orthogonal_projection(here, w, K)).sum())
    oblique = (oblique_projection(point, z, K) * w).sum()
    torch.testing.assert_close(oblique, (z * oblique_adjoint(point, w, K)).sum())
    assert (oblique - (z * oblique_projection(point, w, K)).sum()).abs() > 0.1


def test_the_oblique_one_is_the_derivative_of_renormalisation(point) -> None:
    z, step = direction(1), 1e-5
    z = z - z.mean(1, keepdim=True)
    moved = (renormalise(point + step * z, K) - renormalise(point - step * z, K)) / (2 * step)
    torch.testing.assert_close(moved, oblique_projection(point, z, K), rtol=1e-7, atol=1e-8)


def test_the_orthogonal_one_is_the_nearest_tangent_vector(point) -> None:
    """Against least squares over an explicit basis of the normal space."""
    size = D * K * N
    units = torch.eye(size, dtype=torch.float64).view(size, D, K * N)
    rows = torch.stack([constraint_derivative(point, unit, K).reshape(-1) for unit in units]).mT
    z = direction(1).reshape(-1)
    nearest = z - torch.linalg.pinv(rows, rtol=1e-10) @ (rows @ z)
    torch.testing.assert_close(
        orthogonal_projection(point, direction(1), K), nearest.view(D, K * N)
    )
