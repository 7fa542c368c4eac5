"""Sweeps of the cut and of noise: exact values, explosion, and what the claims read."""

import math

import pytest
import torch

from ncscope.lab.papers.vci.stability import (
    RANGES,
    SIZES,
    departure,
    stability_claims,
    sweep_of_cuts,
    sweep_of_noise,
)
from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import fuzziness, vci
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish
from tests.lab.papers.vci.courses import made, with_sweeps


def statistics(classes: int = 4, dim: int = 12) -> ClassStatistics:
    """Statistics of normal features around class means."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(50)
    means = 3 * torch.randn(classes, dim, generator=draws, dtype=torch.float64)
    rows = means[labels] + torch.randn(len(labels), dim, generator=draws, dtype=torch.float64)
    moments = ClassMoments(classes, dim)
    moments.update(rows, labels)
    return finish(moments)


def test_the_exact_values_are_the_library_s() -> None:
    stats = statistics()
    found = discriminants(stats)
    for row in (sweep_of_cuts(stats)[0], sweep_of_noise(stats)[0]):
        assert row["fuzziness_exact"] == pytest.approx(float(fuzziness(stats, found)), rel=1e-9)
        assert row["vci_exact"] == pytest.approx(float(vci(stats, found)), rel=1e-9)


@pytest.mark.parametrize("sweep", [sweep_of_cuts, sweep_of_noise])
def test_fuzziness_explodes_where_its_zeros_are_counted(sweep) -> None:
    rows = {row["size"]: row for row in sweep(statistics())}
    assert tuple(rows) == SIZES
    worst = max(abs(row["fuzziness"] / row["fuzziness_exact"]) for row in rows.values())
    assert worst > 1e3
    for size in (1e-12, 1e-8):
        assert rows[size]["vci"] == pytest.approx(rows[size]["vci_exact"], rel=1e-4)


def test_a_cut_above_rounding_keeps_fuzziness() -> None:
    rows = {row["size"]: row for row in sweep_of_cuts(statistics())}
    assert rows[1e-5]["fuzziness"] == pytest.approx(rows[1e-5]["fuzziness_exact"], rel=1e-4)


def test_without_directions_off_signal_nothing_explodes() -> None:
    """With more classes than features Sigma_B has no zero eigenvalues."""
    for row in sweep_of_cuts(statistics(classes=20, dim=5))[:10]:
        assert row["fuzziness"] == pytest.approx(row["fuzziness_exact"], rel=1e-4)


def test_only_the_stated_range_counts() -> None:
    results = with_sweeps(made(["a"]), ["a"], fuzziness=12.0, vci=0.42)
    for sweep in RANGES:
        assert departure(results, "a", sweep, "fuzziness") == pytest.approx(2.0)
        assert departure(results, "a", sweep, "vci") == pytest.approx(0.05)
    assert math.isnan(departure(results, "b", "cut", "vci"))


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        ({"fuzziness": 1e5, "vci": 0.41}, ["held"] * 4),
        ({"fuzziness": 8.0, "vci": 0.8}, ["not held"] * 4),
    ],
)
def test_explosion_and_stability_are_judged_by_seed(values, verdicts) -> None:
    runs = ["a, seed 0", "a, seed 1"]
    results = with_sweeps(made(runs), runs, **values)
    claims = stability_claims(results, [runs[:1], runs[1:]], "VCI")
    assert [claim.verdict for claim in claims] == verdicts
    assert [claim.verdict for claim in stability_claims(results, [runs], "VCI")] == [
        "undecided"
    ] * 4
