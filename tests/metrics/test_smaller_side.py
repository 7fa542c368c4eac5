"""Products of K x K numbers taken from the smaller side, against the whole products."""

import pytest
import torch
from torch import Tensor

import ncscope
from ncscope.metrics import duality


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("k", [3, 8, 9, 40])
@pytest.mark.parametrize("scale", [1.0, 2.0**60])
def test_the_norm_of_the_logits_of_the_means(k: int, scale: float) -> None:
    weight, frame = scale * normal(k, 8), normal(k, 8, seed=1) / scale
    found = duality._product_norm(weight, frame)
    assert float(found) == pytest.approx(float((weight @ frame.T).norm()), rel=1e-13)


@pytest.mark.parametrize("common", [1e-6, 1e-4, 1e-2, 1.0])
def test_a_head_almost_orthogonal_to_the_means_keeps_its_digits(common: float) -> None:
    weight, frame = normal(40, 8), normal(40, 8, seed=1)
    weight[:, 4:] *= common
    frame[:, :4] = 0
    expected = float((weight @ frame.T).norm())
    turn = torch.linalg.qr(normal(8, 8, seed=2))[0]
    found = duality._product_norm(weight @ turn, frame @ turn)
    assert float(found) == pytest.approx(expected, rel=1e-13 / common, abs=0)


@pytest.mark.parametrize("k", [10, 11, 13, 14, 60])
@pytest.mark.parametrize("units", [1.0, 1e4])
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_loss_of_many_classes_is_that_of_the_samples(
    k: int, units: float, with_bias: bool
) -> None:
    """The head is nearly the best one, so that no term is much larger than the sum."""
    d, labels = 5, torch.arange(7 * k) % k
    features = normal(k, d)[labels] + 0.1 * normal(7 * k, d, seed=1)
    features = features * torch.logspace(0, 1, d).double() ** torch.tensor(units).log10()
    one_hot = torch.nn.functional.one_hot(labels).double()
    wide = torch.cat([features, torch.ones(7 * k, 1).double()], 1) if with_bias else features
    best = torch.linalg.lstsq(wide, one_hot).solution.T * 1.01
    weight, bias = (best[:, :d], best[:, d]) if with_bias else (best, None)
    missed = features @ weight.T + (0 if bias is None else bias) - one_hot
    found = ncscope.measure(features, labels, weight, bias, groups=["mse"])
    loss = float(missed.square().sum(1).mean() / 2)
    assert found["mse_loss"] == pytest.approx(loss, rel=1e-11)
    parts = found["mse_nc1"] + found["mse_nc23"] + found["mse_off_path"]
    assert parts == pytest.approx(loss, rel=1e-11)
