"""Warnings: when they are there, what they say, and when they are not."""

from typing import Any

import pytest
import torch

import ncscope
from ncscope.math.entropy import EntropyEstimate
from ncscope.math.frames import simplex_etf
from ncscope.metrics.information import Entropies
from ncscope.metrics.reliability import LARGEST_ERROR, error_of_ratio


def noise(n: int, d: int, k: int = 10, **options: Any) -> ncscope.Report:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=generator)
    return ncscope.measure(features, torch.arange(n) % k, **options)


def test_noise_in_many_dimensions_is_warned_about_first() -> None:
    report = noise(200, 512, weight=torch.randn(10, 512), groups=["nc1", "nc4", "information"])
    assert report["vci"] < 1e-6
    assert report["ncc_accuracy"] > 0.9
    assert report.warnings[0] == (
        "200 samples are few for dimension 512: random labels give a vci of about 0, and a high "
        "ncc_accuracy, mir, mir_centered. Compare with the chance level (baseline), or "
        "measure 2,560 samples."
    )


@pytest.mark.parametrize(("n", "d"), [(500, 200), (700, 200), (300, 100)])
def test_the_chance_level_of_vci_is_the_one_said(n: int, d: int) -> None:
    report = noise(n, d)
    said = float(report.warnings[0].partition("about ")[2].partition(",")[0])
    assert said == pytest.approx(report["vci"], abs=0.03)


def test_samples_enough_are_not_warned_about() -> None:
    assert noise(20_000, 16).warnings == []
    assert noise(80, 16, k=2).warnings == []
    assert noise(79, 16, k=2).warnings != []
    assert noise(200, 512, groups=["pfc"]).warnings == []


def test_classes_of_few_samples_are_named() -> None:
    labels = torch.tensor([0] * 30 + [1] * 9 + [2] * 30 + [3] * 4)
    features = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(0))
    (warning,) = ncscope.measure(features, labels).warnings
    assert warning.startswith("classes 1, 3 have fewer than 10 samples (the fewest: 4)")
    (warning,) = ncscope.measure(features[:39], labels[:39]).warnings
    assert warning.startswith("class 1 has fewer than 10 samples")


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (20.0, True)])
def test_logits_far_from_one_hot_are_of_another_loss(scale: float, warned: bool) -> None:
    etf = simplex_etf(4, dim=4)
    report = ncscope.measure(etf.repeat(20, 1), torch.arange(4).repeat(20), scale * etf)
    said = [line for line in report.warnings if "mse_nc1, mse_nc23, mse_off_path" in line]
    assert bool(said) == warned
    if warned:
        assert "exceeds that of a constant output, 0.38" in said[0]


def test_the_error_of_an_estimate_is_relative_to_the_smaller_entropy() -> None:
    joint = EntropyEstimate(3.0, 0.1, 8, 20, 5000)
    error = error_of_ratio(Entropies(2.0, 4.0, joint))
    assert error == pytest.approx(0.05)
    assert error > LARGEST_ERROR
