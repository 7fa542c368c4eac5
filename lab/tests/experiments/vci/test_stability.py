"""Sweeps of the cut and of noise: exact values, explosion, and what the table shows."""

import math
from collections.abc import Iterable

import pytest
import torch
from lab.tests.experiments.vci.courses import made, with_sweeps

from ncscope.metrics.discriminants import discriminants
from ncscope.metrics.variability import fuzziness, vci
from ncscope.models.taps import HEAD_INPUT
from ncscope.stats.moments import ClassMoments
from ncscope.stats.statistics import ClassStatistics, finish
from ncscope_lab.experiments.vci.training import (
    RANGES,
    SIZES,
    SMALL,
    claim_stability,
    departure,
    sweep_cuts,
    sweep_noise,
    tabulate_stability,
)
from ncscope_lab.observations import Observation, Results
from ncscope_lab.quantities import Runs
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.supervised import measure_images, prepare_bench


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
    for row in (sweep_cuts(stats)[0], sweep_noise(stats)[0]):
        assert row["fuzziness_exact"] == pytest.approx(float(fuzziness(stats, found)), rel=1e-9)
        assert row["vci_exact"] == pytest.approx(float(vci(stats, found)), rel=1e-9)


@pytest.mark.parametrize("sweep", [sweep_cuts, sweep_noise])
def test_fuzziness_explodes_where_its_zeros_are_counted(sweep) -> None:
    rows = {row["size"]: row for row in sweep(statistics())}
    assert tuple(rows) == SIZES
    worst = max(abs(row["fuzziness"] / row["fuzziness_exact"]) for row in rows.values())
    assert worst > 1e3
    for size in (1e-12, 1e-8):
        assert rows[size]["vci"] == pytest.approx(rows[size]["vci_exact"], rel=1e-4)


def test_a_cut_above_rounding_keeps_fuzziness() -> None:
    rows = {row["size"]: row for row in sweep_cuts(statistics())}
    assert rows[1e-5]["fuzziness"] == pytest.approx(rows[1e-5]["fuzziness_exact"], rel=1e-4)


def test_without_directions_off_signal_nothing_explodes() -> None:
    """With more classes than features Sigma_B has no zero eigenvalues."""
    for row in sweep_cuts(statistics(classes=20, dim=5))[:10]:
        assert row["fuzziness"] == pytest.approx(row["fuzziness_exact"], rel=1e-4)


def test_with_fewer_samples_than_features_vci_explodes_too() -> None:
    """Then Sigma_T has zero eigenvalues as Sigma_B has."""
    rows = sweep_cuts(statistics(dim=300))  # of 200 samples
    assert max(abs(row["vci"] / row["vci_exact"] - 1) for row in rows[:6]) > 10


def test_only_the_stated_range_counts() -> None:
    runs = Runs.of({}, with_sweeps(made(["a"]), ["a"], fuzziness=12.0, vci=0.42))
    for sweep in RANGES:
        assert departure(runs[0], sweep, "fuzziness") == pytest.approx(2.0)
        assert departure(runs[0], sweep, "vci") == pytest.approx(0.05)
    assert math.isnan(departure(runs.find("b"), "cut", "vci"))


@pytest.mark.parametrize("sweep", RANGES)
@pytest.mark.parametrize(("index", "key", "departs"), [(0, "vci", 0.5), (1, "fuzziness", 4.5)])
def test_a_claim_on_stability_fails_by_the_cut_alone_and_by_noise_alone(
    sweep: str, index: int, key: str, departs: float
) -> None:
    claim = claim_stability()[index]

    def judge(rows: Iterable[Observation]) -> str:
        value = claim.quantity(Runs.of({}, Results(rows))[0])
        return claim.region.verdict(value, value)

    rows = [row for row in with_sweeps(made(["a"]), ["a"]) if row.split in RANGES]
    own = [row for row in rows if row["size"] <= RANGES[row.split]]
    assert judge(own) == "held"
    assert (
        judge(row.with_values({key: departs}) if row.split == sweep else row for row in own)
        == "not held"
    )


def test_the_table_has_the_largest_changes_of_each_setting() -> None:
    runs = ["a, seed 0", "a, seed 1", "b, seed 0"]
    results = with_sweeps(made(runs), runs[:1], fuzziness=12.0, vci=0.42)
    with_sweeps(results, runs[1:2], fuzziness=36.0, vci=0.48)
    table = tabulate_stability(Runs.of({}, results))
    assert list(table.columns) == ["fuzziness, cut", "VCI, cut", "fuzziness, noise", "VCI, noise"]
    assert table.lines == {"a": ["4", "0.1"] * 2, "b": ["nan"] * 4}


@pytest.mark.slow
def test_untrained_features_explode_too() -> None:
    """The claims on it are on the metrics, and say nothing about training."""
    bench = prepare_bench(SMALL.runs["step decay, seed 10"], Resources())
    # More than 384 images, or Sigma_T has zero eigenvalues too.
    images = bench.data.train.draw_balanced(1000)
    stats = measure_images(bench, bench.learner.evaluated, images).statistics[HEAD_INPUT]
    rows = [row for row in sweep_cuts(stats) if row["size"] <= RANGES["cut"]]
    worst = {
        key: max(abs(row[key] / row[f"{key}_exact"] - 1) for row in rows)
        for key in ("fuzziness", "vci")
    }
    assert worst["fuzziness"] > 10
    assert worst["vci"] < 0.1
