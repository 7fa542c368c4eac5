"""The linear probe's 97 strengths against one cold fit at the strength that is chosen."""

from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from benchmarks.measure import Row, compare
from ncscope.transfer import STRENGTHS, choose_probe, fit_logistic, logistic_path
from ncscope.transfer.probes.logistic import PATH_TOLERANCE, TOLERANCE
from ncscope.transfer.ranking import hold_out


def digits_path(device: str) -> list[Row]:
    """Measure the pixels of scikit-learn's digits, 64 features."""
    images, labels = load_digits(return_X_y=True)
    return _rows("digits", torch.from_numpy(images / 16), torch.from_numpy(labels), device)


def features_path(device: str) -> list[Row]:
    """5,000 x 512 in 50 classes: what a ResNet-18 gives on a downstream set."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(5000) % 50
    scale = torch.arange(1, 513) ** -0.35
    means = torch.randn(50, 512, generator=draws)
    features = torch.relu((means[labels] + 5 * torch.randn(5000, 512, generator=draws)) * scale)
    return _rows("5,000 x 512, K=50", features, labels, device)


def _rows(name: str, features: Tensor, labels: Tensor, device: str) -> list[Row]:
    """Wall time of the path and of single fits, and the passes over the samples that they take.

    The first single fit is at the path's own tolerance, the second at the default.
    """
    features, labels = features.to(device), labels.to(device)
    validation = hold_out(labels, seed=0)
    train = features[~validation], labels[~validation]
    chosen = choose_probe(*train, features[validation], labels[validation])
    path = partial(_exhausted, *train)
    rows = []
    for tolerance in (PATH_TOLERANCE, TOLERANCE):
        cold = partial(fit_logistic, *train, chosen.strength, tolerance=tolerance)
        work = (
            f"97 strengths of the probe, {name} ({chosen.passes:.0f} passes), against one cold fit "
            f"at the chosen {chosen.strength:.2g} to {tolerance:g} ({cold().passes:.0f} passes)"
        )
        rows.append(compare(work, path, cold, 5, device, rounds=2))
    return rows


def _exhausted(features: Tensor, labels: Tensor) -> None:
    for _ in logistic_path(features, labels, STRENGTHS):
        pass
