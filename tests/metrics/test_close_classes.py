"""Classes whose means nearly coincide: the parts of the MSE loss still add up to it."""

import pytest
import torch
from torch import Tensor

import ncscope

K, N = 8, 2


def features(d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two means 1e-4 apart, spread of 0.05."""
    draws = torch.Generator().manual_seed(seed)
    means = torch.randn(K, d, generator=draws, dtype=torch.float64)
    means[1] = means[0] + 1e-4 * torch.randn(d, generator=draws, dtype=torch.float64)
    labels = torch.arange(K).repeat_interleave(N)
    spread = torch.randn(K * N, d, generator=draws, dtype=torch.float64).view(K, N, d)
    spread = (spread - spread.mean(1, keepdim=True)).view(K * N, d)
    return means[labels] + 0.05 * spread, labels


def least_loss(rows: Tensor, labels: Tensor, decay: float) -> float:
    """The minimum of the regularised MSE loss over weight and bias, by least squares."""
    n, size = len(rows), rows.shape[1] + 1
    extended = torch.cat([rows, torch.ones(n, 1).double()], 1)
    decays = (decay * n) ** 0.5 * torch.eye(size).double()
    targets = torch.eye(K).double()[labels]
    system, sides = torch.cat([extended, decays]), torch.cat([targets, torch.zeros(size, K)])
    weight = torch.linalg.lstsq(system, sides, driver="gelsd").solution
    missed = (extended @ weight - targets).square().sum() / (2 * n)
    return float(missed + decay / 2 * weight.square().sum())


@pytest.mark.parametrize(("d", "decay"), [(K - 1, 0.0), (K + 3, 1e-5)])
def test_parts_of_the_loss_add_up(d: int, decay: float) -> None:
    for seed in range(10):
        rows, labels = features(d, seed)
        found = ncscope.measure(
            rows, labels, torch.ones(K, d), torch.zeros(K), groups=["mse"], weight_decay=decay
        )
        parts = found["mse_nc1"] + found["mse_nc23"]
        assert parts == pytest.approx(least_loss(rows, labels, decay), rel=1e-10), seed
