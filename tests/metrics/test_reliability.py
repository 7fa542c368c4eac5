"""Warnings: when they are there, what they say, and when they are not."""

from typing import Any

import numpy as np
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
        "200 samples are few for dimension 512: random labels give a vci of about 0 and a high "
        "ncc_accuracy, mir, mir_centered. Compare with the chance level (baseline), or "
        "measure 2,560 samples."
    )


@pytest.mark.parametrize("groups", [None, ["nc4"]])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_means_that_all_coincide_have_no_nearest(groups: Any, value: float) -> None:
    features, labels = torch.full((60, 5), value), torch.arange(60) % 3
    report = ncscope.measure(features, labels, torch.randn(3, 5), groups=groups)
    (said,) = [one for one in report.warnings if "nc4_disagreement" in one]
    assert said == (
        "all class means coincide, and the first of them counts as the nearest to every sample, "
        "which says nothing: ncc_accuracy, nc4_disagreement"
    )
    assert not [one for one in report.warnings if "spread of the class means" in one]


def apart(n: int, d: int, k: int, **options: Any) -> ncscope.Report:
    """Classes far from each other, whose means no noise moves."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % k
    features = torch.randn(n, d, generator=generator) + 100 * torch.eye(d)[labels]
    return ncscope.measure(features, labels, **options)


@pytest.mark.parametrize(("n", "d"), [(500, 200), (700, 200), (300, 100)])
def test_the_chance_level_of_vci_is_the_one_said(n: int, d: int) -> None:
    report = noise(n, d)
    said = float(report.warnings[0].partition("about ")[2].split()[0])
    assert said == pytest.approx(report["vci"], abs=0.03)


def test_samples_enough_are_not_warned_about() -> None:
    assert noise(20_000, 16).warnings == []
    assert apart(80, 16, k=2).warnings == []
    assert apart(79, 16, k=2).warnings != []
    assert apart(200, 512, k=2, groups=["pfc"]).warnings == []


def test_few_samples_for_many_classes_have_the_chance_level_said() -> None:
    report = noise(2000, 60, k=500, groups=["nc1"])
    assert report.warnings[0].startswith("2,000 samples are few for 500 classes: random labels")
    said = float(report.warnings[0].partition("about ")[2].split(".")[1])
    assert said / 100 == pytest.approx(report["vci"], abs=0.03)


@pytest.mark.parametrize("groups", [["nc4"], ["pfc"], ["information"]])
def test_noise_is_warned_about_whatever_is_measured(groups: list[str]) -> None:
    assert noise(200, 512, weight=torch.randn(10, 512), groups=groups).warnings


def test_noise_in_the_class_means_is_the_share_by_which_ratios_are_too_low() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30 * 4) % 4
    shares, values = [], []
    for _ in range(40):
        features = torch.randn(len(labels), 16, generator=generator) + torch.eye(16)[labels]
        report = ncscope.measure(features, labels, groups=["pfc"])
        (said,) = [line for line in report.warnings if "of the spread of the class means" in line]
        shares.append(float(said.partition("%")[0]) / 100)
        values.append(report["nc1_quotient"])
    true = 16 / 0.75  # the trace within classes over that of unit vectors' spread
    assert np.mean(shares) == pytest.approx(1 - np.mean(values) / true, abs=0.04)


@pytest.mark.slow
def test_what_is_no_better_than_chance_is_named() -> None:
    warning = noise(200, 512, groups=["nc1"], baseline=True).warnings[0]
    assert warning.startswith("no sign of collapse, permuted labels come as close: nc1, ")
    assert "vci" in warning
    assert not any("permuted" in line for line in apart(400, 4, k=2, baseline=True).warnings)


def test_nc2_is_compared_with_chance_where_it_can_differ() -> None:
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    line = 10 * torch.tensor([[-1.0], [0.0], [1.0]])[labels] * torch.eye(4)[0]
    features = line + torch.randn(300, 4, generator=draws)
    three = ncscope.measure(features, labels, groups=["nc2"], baseline=True)
    assert three["nc2_etf"] > three.baseline["nc2_etf"]
    assert three.warnings == ["no sign of collapse, permuted labels come as close: nc2_etf"]
    # Two centred means are a simplex with any labels.
    two = ncscope.measure(features, labels % 2, groups=["nc2"], baseline=True)
    assert max(two["nc2_etf"], two.baseline["nc2_etf"]) < 1e-9
    assert two.warnings == []


@pytest.mark.parametrize(("k", "warned"), [(5, False), (6, True)])
def test_more_classes_than_a_simplex_has_room_for_are_warned_about(k: int, warned: bool) -> None:
    features = torch.randn(40 * k, 4, generator=torch.Generator().manual_seed(0))
    features += 30 * torch.randn(k, 4, generator=torch.Generator().manual_seed(1)).repeat(40, 1)
    report = ncscope.measure(features, torch.arange(40 * k) % k)
    said = [line for line in report.warnings if "no simplex" in line]
    assert bool(said) == warned
    if warned:
        assert said[0].startswith(
            "6 class means in 4 dimensions are no simplex: nc2_etf is at least"
        )
        bound = float(said[0].partition("at least ")[2].partition(";")[0])
        assert bound == pytest.approx(rank_bound(6, 4), abs=5e-4)
        assert report["nc2_etf"] >= bound


def rank_bound(k: int, rank: int) -> float:
    """Distance of a projector inside the centred space to the simplex: the least of this rank."""
    simplex = torch.eye(k, dtype=torch.float64) - 1 / k
    frame = torch.linalg.eigh(simplex).eigenvectors[:, k - rank :]
    projector = frame @ frame.T
    return float((projector / projector.norm() - simplex / simplex.norm()).norm())


def test_a_decay_is_no_error_of_the_logits() -> None:
    labels = torch.arange(80) % 4
    features = torch.eye(4)[labels] + 0.01 * torch.randn(80, 4)
    report = ncscope.measure(features, labels, torch.eye(4), weight_decay=0.5)
    assert report["mse_loss"] > 0.9
    assert report.warnings == []


def test_classes_of_few_samples_are_named() -> None:
    labels = torch.tensor([0] * 30 + [1] * 9 + [2] * 30 + [3] * 4)
    features = torch.randn(len(labels), 2, generator=torch.Generator().manual_seed(0))
    features[:, 0] += 50 * labels
    (warning,) = ncscope.measure(features, labels, groups=["nc1"]).warnings
    assert warning.startswith("classes 1, 3 have fewer than 10 samples (the fewest: 4)")
    (warning,) = ncscope.measure(features[:39], labels[:39]).warnings
    assert warning.startswith("class 1 has fewer than 10 samples")


FREQUENT, RARE = [310] * 20, [1, 1, 2, 2, 3, 3, 4, 4]


def unequal(counts: list[int], **options: Any) -> ncscope.Report:
    """Orthonormal class means and a deviation of 0.1: at equal counts NC1 is 0.01 (K - 1)."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.repeat_interleave(torch.arange(28), torch.tensor(counts))
    noise = 0.1 * torch.randn(len(labels), 32, generator=generator)
    features = torch.eye(32)[labels] + noise
    return ncscope.measure(features, labels, groups=["nc1"], num_classes=28, **options)


def test_rare_classes_make_nc1_too_large_and_the_remedies_do_not() -> None:
    report = unequal(FREQUENT + RARE)
    assert report["nc1"] > 30 * 0.27
    assert report.warnings[0] == (
        "nc1 and fuzziness are too large: 99% is due to 8 rare classes with 0.32% of the samples; "
        "read nc1_quotient, or leave classes 20, 21, 22, 23, 24, 25, 26, 27 out with ignore_index"
    )
    equal = unequal([221] * 28)
    assert equal["nc1"] == pytest.approx(0.27, rel=0.02)
    assert report["nc1_quotient"] == pytest.approx(equal["nc1_quotient"], rel=0.02)
    rest = unequal(FREQUENT + RARE, ignore_index=range(20, 28))
    assert rest["nc1"] == pytest.approx(0.19, rel=0.02)
    assert not any("too large" in line for line in [*equal.warnings, *rest.warnings])


def test_rare_classes_of_many_samples_are_weighted_alike_instead() -> None:
    counts = [20 * count for count in FREQUENT + RARE]
    (warning,) = unequal(counts).warnings
    assert warning.endswith("read nc1_quotient, or weight all classes alike with prior='uniform'")
    alike = unequal(counts, prior="uniform")
    assert alike["nc1"] == pytest.approx(0.27, rel=0.02)
    assert alike.warnings == []


def test_small_classes_lower_cdnv_by_the_share_said() -> None:
    report = unequal(FREQUENT + RARE)
    (said,) = [line for line in report.warnings if line.endswith(": cdnv")]
    share = float(said.partition("by about ")[2].partition("%")[0]) / 100
    assert share == pytest.approx(1 - report["cdnv"] / unequal([221] * 28)["cdnv"], abs=0.04)


def test_what_rare_classes_raise_is_not_called_too_low() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.repeat_interleave(torch.arange(6), torch.tensor([40] * 5 + [1]))
    features = torch.eye(16)[labels] + torch.randn(201, 16, generator=generator)
    warnings = ncscope.measure(features, labels, groups=["nc1"]).warnings
    (low,) = [line for line in warnings if "of the spread of the class means" in line]
    assert low.endswith("too low by about as much: nc1_quotient, cdnv")
    assert any(line.startswith("nc1 and fuzziness are too large") for line in warnings)


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (20.0, True)])
def test_logits_far_from_one_hot_are_of_another_loss(scale: float, warned: bool) -> None:
    etf = simplex_etf(4, dim=4)
    report = ncscope.measure(etf.repeat(20, 1), torch.arange(4).repeat(20), scale * etf)
    said = [line for line in report.notes if line.startswith("mse_nc1, mse_nc23, mse_off_path")]
    assert not any("mse_nc1" in line for line in report.warnings)
    assert bool(said) == warned
    if warned:
        assert "exceeds that of a constant output (0.38)" in said[0]


def test_the_error_of_an_estimate_is_relative_to_the_smaller_entropy() -> None:
    joint = EntropyEstimate(3.0, 0.1, 8, 20, 5000)
    error = error_of_ratio(Entropies(2.0, 4.0, joint))
    assert error == pytest.approx(0.05)
    assert error > LARGEST_ERROR


@pytest.mark.parametrize("groups", [None, ["spectra"], ["key:rankme"]])
def test_ranks_that_the_samples_bound_are_warned_of_with_labels_too(groups: list | None) -> None:
    features = torch.randn(8, 30, generator=torch.Generator().manual_seed(0))
    for labels in (None, torch.arange(8) % 2):
        report = ncscope.measure(features, labels, groups=groups)
        assert any("8 samples span at most 8 of 30" in line for line in report.warnings)
    wide = ncscope.measure(features.mT, torch.arange(30) % 2, groups=groups)
    assert not any("span at most" in line for line in wide.warnings)
    assert not ncscope.measure(features, torch.arange(8) % 2, groups=["nc2_etf"]).warnings[1:]


def test_the_least_distance_to_the_simplex_in_few_dimensions_is_attained() -> None:
    """Orthonormal directions of the centred means come as near to the simplex as any."""
    draws = torch.Generator().manual_seed(0)
    columns = torch.cat([torch.ones(6, 1), torch.randn(6, 3, generator=draws)], 1).double()
    labels = torch.arange(60) % 6
    report = ncscope.measure(torch.linalg.qr(columns).Q[labels, 1:], labels, groups=["nc2"])
    assert any(f"nc2_etf is at least {report['nc2_etf']:.3f};" in each for each in report.warnings)
