"""The experiment on perturbed features: the law's first correction."""

import math

import pytest
import torch

from ncscope_lab.experiments.models.perturbed import (
    PerturbedConfig,
    first_correction,
)
from ncscope_lab.surrogates.perturbed import PerturbedUFM


@pytest.mark.slow
def test_first_correction_is_the_mean_of_what_the_first_order_leaves():
    config = PerturbedConfig(num_classes=3, dim=12, noise=0.2)
    n, left = 100, []
    for seed in range(800):
        model = PerturbedUFM(3, 12, n, config.weight_decay, config.feature_decay, 0.2, seed)
        (weight,) = model.minimiser().point
        target = model.unperturbed
        means = math.sqrt(config.weight_decay / config.feature_decay) * target.mT
        labels = torch.eye(3, dtype=torch.float64)[model.labels]
        ridge = torch.eye(12, dtype=torch.float64)
        cross = (model.features @ labels).mT / (3 * n)
        gram = model.features @ model.features.mT / (3 * n) + config.weight_decay * ridge
        inverse = torch.linalg.inv(means @ means.mT / 3 + (0.04 + config.weight_decay) * ridge)
        limit = means.mT @ inverse / 3
        # Linear in what is averaged, and so of mean zero; without it the spread is far smaller.
        moved = gram - torch.linalg.inv(inverse)
        first = (cross - means.mT / 3 - limit @ moved) @ inverse
        rest = weight - limit - first
        left.append(float((rest * target).sum() / target.square().sum()))
    found = torch.tensor(left) * n
    error = float(found.std()) / math.sqrt(len(left))
    assert error < 0.1 * abs(first_correction(config))
    assert abs(float(found.mean()) - first_correction(config)) < 4 * error
