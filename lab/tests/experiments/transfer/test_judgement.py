"""Qualities of a score's order against scipy and slow references, and their intervals."""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from lab.tests.experiments.transfer.made_cells import cell_of, cells_on
from scipy import stats

from ncscope.transfer.records import BASELINES, Score
from ncscope_lab.experiments.transfer.cells import TUNED_ACCURACY, Cell
from ncscope_lab.experiments.transfer.judgement import (
    Quality,
    bootstrap_gain,
    gains,
    group_cells,
    judge_score,
    mean_quality,
    quality_interval,
    residual_correlation,
)

UP, DOWN = Score("up", 1), Score("down", -1)
TARGETS = ("first", "second", "third")


def random_cells(count: int, seed: int, digits: int = 8) -> list[Cell]:
    """Return networks on three targets with truth, a score and facts; few digits make ties."""
    draws = np.random.default_rng(seed)
    facts = draws.random((2, count)).round(digits).tolist()
    cells = []
    for target in TARGETS:
        truth, score, past = draws.random((3, count)).round(digits).tolist()
        columns = {"accuracy": truth, "score": score, "other_sets": past}
        columns |= {"parameters": facts[0], "source_accuracy": facts[1]}
        cells += cells_on(target, **columns)
    return cells


def column(cells: Sequence[Cell], target: str, key: str) -> list[float]:
    return [cell.value(key) for cell in cells if cell.target == target]


def slow_ranks(values: Sequence[float]) -> list[float]:
    """Rank by counting: values below, and half of the others that are equal."""
    return [
        1 + sum(other < value for other in values) + (values.count(value) - 1) / 2
        for value in values
    ]


def slow_residual(
    score: Sequence[float], truth: Sequence[float], facts: Sequence[Sequence[float]]
) -> float:
    """Correlate what least squares leave of the ranks, one variable at a time."""
    base = np.array([[1.0] * len(truth), *map(slow_ranks, facts)]).T
    left = []
    for values in (score, truth):
        ranked = np.array(slow_ranks(list(values)))
        left.append(ranked - base @ np.linalg.lstsq(base, ranked, rcond=None)[0])
    return float(np.corrcoef(left)[0, 1])


@pytest.mark.parametrize("better", [1, -1])
@pytest.mark.parametrize(("seed", "digits"), [(0, 8), (1, 8), (2, 1)])
def test_qualities_are_those_of_scipy(seed, digits, better):
    cells = random_cells(9, seed, digits)
    found = judge_score(cells, "score", Score("", better))
    assert list(found) == list(TARGETS)
    for target, judged in found.items():
        truth = np.array(column(cells, target, "accuracy"))
        score = better * np.array(column(cells, target, "score"))
        assert judged.weighted_tau == pytest.approx(stats.weightedtau(score, truth).statistic)
        assert judged.tau == pytest.approx(stats.kendalltau(score, truth).statistic)
        first = truth[score == score.max()]
        assert judged.regret == pytest.approx(truth.max() - first.mean())
        facts = [column(cells, target, key) for key in BASELINES]
        known = slow_residual(score.tolist(), truth.tolist(), facts)
        assert judged.residual == pytest.approx(known, abs=1e-9)


@pytest.mark.parametrize("score", [UP, DOWN])
def test_a_perfect_score_has_1_and_no_regret_and_its_opposite_has_minus_1(score):
    cells = [
        cell.with_values({"score": score.better * math.exp(cell.value("accuracy"))})
        for cell in random_cells(9, 3)
    ]
    for judged in judge_score(cells, "score", score).values():
        assert judged == pytest.approx(Quality(1, 1, 0, 1))
    for target, judged in judge_score(cells, "score", Score("", -score.better)).items():
        truth = column(cells, target, "accuracy")
        assert judged == pytest.approx(Quality(-1, -1, max(truth) - min(truth), -1))


@pytest.mark.parametrize("better", [1, -1])
@pytest.mark.parametrize("value", [0.1, math.nan, None])
def test_a_score_that_orders_nothing_has_0_and_the_mean_regret(value, better):
    cells = random_cells(7, 4)
    if value is not None:
        cells = [cell.with_values({"constant": value}) for cell in cells]
    for target, judged in judge_score(cells, "constant", Score("", better)).items():
        truth = np.array(column(cells, target, "accuracy"))
        assert judged == pytest.approx(Quality(0, 0, truth.max() - truth.mean(), 0))


@pytest.mark.parametrize("better", [1, -1])
def test_a_network_without_the_score_comes_last(better):
    truth = [0.9, 0.8, 0.7, 0.6, 0.5]
    scores = [better * value for value in (math.nan, 2.0, 1.0, -1.0, -2.0)]
    lowest = [better * value for value in (-99.0, 2.0, 1.0, -1.0, -2.0)]
    cells = cells_on("first", accuracy=truth, score=scores, lowest=lowest)
    found = judge_score(cells, "score", Score("", better))["first"]
    assert found == judge_score(cells, "lowest", Score("", better))["first"]
    assert found.tau == pytest.approx((6 - 4) / 10)
    assert found.regret == pytest.approx(0.1)


@pytest.mark.parametrize("missing", [math.nan, None])
def test_cells_without_the_truth_are_left_out(missing):
    cells = random_cells(8, 5)
    lost = {"score": 99.0} if missing is None else {"score": 99.0, "accuracy": missing}
    known = judge_score(cells, "score", UP)
    extra = [cell_of("b 0", target, lost) for target in (*TARGETS, "fourth")]
    assert judge_score([*extra, *cells], "score", UP) == known


def test_the_truth_is_the_one_asked_for():
    cells = [
        cell.with_values({TUNED_ACCURACY: -cell.value("accuracy")}) if number % 2 else cell
        for number, cell in enumerate(random_cells(8, 6))
    ]
    tuned = [cell for cell in cells if TUNED_ACCURACY in cell.values]
    found = judge_score(cells, "score", UP, TUNED_ACCURACY)
    by_probe, turned = (judge_score(tuned, "score", each) for each in (UP, DOWN))
    for target in TARGETS:
        assert found[target].tau == pytest.approx(turned[target].tau)
        assert found[target].tau == pytest.approx(-by_probe[target].tau)
    assert any(abs(each.tau) > 0.1 for each in found.values())


def test_a_target_needs_three_networks():
    cells = random_cells(3, 7)
    assert set(judge_score(cells, "score", UP)) == set(TARGETS)
    fewer = [cell for cell in cells if (cell.network, cell.target) != ("a 1", "second")]
    assert set(judge_score(fewer, "score", UP)) == {"first", "third"}
    assert [cell.network for cell in group_cells(cells)["second"]] == ["a 0", "a 1", "a 2"]


def test_a_score_that_is_a_fact_leaves_nothing():
    cells = [cell.with_values({"copy": cell.value("parameters")}) for cell in random_cells(9, 8)]
    facts = [np.array(column(cells, "first", key)) for key in BASELINES]
    truth = np.array(column(cells, "first", "accuracy"))
    assert math.isnan(residual_correlation(facts[0], truth, facts))
    assert math.isnan(residual_correlation(truth, facts[0], facts))
    # A monotone map keeps the ranks.
    assert math.isnan(residual_correlation(np.exp(3 * facts[0]), truth, facts))
    assert {each.residual for each in judge_score(cells, "copy", UP).values()} == {0.0}


def test_a_fact_is_not_judged_by_what_is_left_of_itself():
    cells = random_cells(9, 9)
    others = [key for key in BASELINES if key != "parameters"]
    for target, judged in judge_score(cells, "parameters", UP).items():
        facts = [column(cells, target, key) for key in others]
        truth, score = (column(cells, target, key) for key in ("accuracy", "parameters"))
        assert judged.residual == pytest.approx(slow_residual(score, truth, facts), abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_correlation_that_is_left_is_that_of_residuals_of_ranks(seed):
    draws = np.random.default_rng(seed)
    score, truth, *facts = draws.integers(0, 6, (5, 12)).astype(float)
    known = slow_residual(score.tolist(), truth.tolist(), [fact.tolist() for fact in facts])
    assert residual_correlation(score, truth, facts) == pytest.approx(known, abs=1e-12)
    assert residual_correlation(-score, truth, facts) == pytest.approx(-known, abs=1e-12)
    assert residual_correlation(score**3, truth, facts) == pytest.approx(known, abs=1e-12)
    plain = residual_correlation(score, truth, [])
    assert plain == pytest.approx(stats.spearmanr(score, truth).statistic, abs=1e-12)


def judged_as(weighted: Sequence[float], regret: Sequence[float]) -> dict[str, Quality]:
    return {
        str(number): Quality(tau, 0.0, loss, 0.0)
        for number, (tau, loss) in enumerate(zip(weighted, regret, strict=True))
    }


def test_the_interval_over_targets_is_students():
    found = judged_as([0.1, 0.2, 0.3], [0.3, 0.35, 0.55])
    interval = quality_interval(found)
    assert interval is not None
    assert interval.estimate == pytest.approx(0.2) == mean_quality(found)
    # The standard error is 0.1/√3; the quantile is that of two degrees of freedom.
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert (interval.low, interval.high) == pytest.approx((0.2 - half, 0.2 + half))
    regrets = quality_interval(found, "regret")
    assert regrets is not None
    assert regrets.estimate == pytest.approx(0.4) == mean_quality(found, "regret")
    # Deviations -0.1, -0.05, 0.15: s² = 0.0175.
    assert regrets.high - 0.4 == pytest.approx(4.302652729911275 * math.sqrt(0.0175 / 3))


def test_an_interval_ends_where_the_quality_does():
    found = judged_as([0.9, 0.2, 0.9], [0.0, 0.0, 0.3])
    taus, regrets = quality_interval(found), quality_interval(found, "regret")
    assert taus is not None
    assert regrets is not None
    assert taus.high == 1
    assert taus.low < 0
    assert regrets.low == 0
    worst = quality_interval(judged_as([-0.9, -0.2, -0.9], [0.9, 0.3, 0.9]), "regret")
    assert worst is not None
    assert worst.high == 1


def test_one_target_has_no_interval_and_no_target_no_mean():
    assert quality_interval(judged_as([0.3], [0.0])) is None
    assert mean_quality(judged_as([0.3], [0.0])) == 0.3
    assert quality_interval({}) is None
    assert math.isnan(mean_quality({}))


def test_gains_are_differences_by_target():
    ours, theirs = judged_as([0.5, 0.1], [0.0, 0.2]), judged_as([0.2, 0.4], [0.1, 0.1])
    backwards = dict(reversed(theirs.items()))
    assert gains(ours, backwards) == pytest.approx([0.3, -0.3])


def architectures(count: int, seed: int, names: str = "abc") -> list[Cell]:
    """Return random cells of several architectures with as many networks each."""
    draws = np.random.default_rng(seed)
    values = draws.random((len(names) * count, len(TARGETS), 3))
    keys = ("accuracy", "score", "noise")
    return [
        cell_of(f"{name} {number}", target, dict(zip(keys, row, strict=True)))
        for (name, number), rows in zip(product(names, range(count)), values, strict=True)
        for target, row in zip(TARGETS, rows.tolist(), strict=True)
    ]


def gain_of(cells: Sequence[Cell]) -> float:
    found = [judge_score(cells, key, UP) for key in ("score", "noise")]
    return float(np.mean(gains(*found)))


SCORE, NOISE = ("score", UP), ("noise", UP)


def test_the_bootstrap_depends_on_its_seed_alone():
    cells = architectures(4, 0)
    once, again, other = (
        bootstrap_gain(cells, SCORE, NOISE, seed=seed, resamples=50) for seed in (0, 0, 1)
    )
    assert once == again
    assert once != other
    assert once[0] < gain_of(cells) < once[1]


def test_one_network_of_each_architecture_leaves_nothing_to_draw():
    cells = architectures(1, 4, names="abcdef")
    low, high = bootstrap_gain(cells, SCORE, NOISE, seed=0, resamples=20)
    assert low == pytest.approx(gain_of(cells)) == high


def test_networks_are_drawn_within_architectures_and_alike_on_all_targets():
    """With two networks of one architecture there are three samples: their ends are the ends."""
    alone, pair = architectures(1, 5, names="abcde"), architectures(2, 6, names="f")
    first, second = ([c for c in pair if c.network == name] for name in ("f 0", "f 1"))
    again = [[cell_of("f 9", c.target, c.values) for c in part] for part in (first, second)]
    possible = [
        gain_of([*alone, *drawn])
        for drawn in ([*first, *again[0]], [*first, *second], [*second, *again[1]])
    ]
    found = bootstrap_gain([*alone, *pair], SCORE, NOISE, seed=0, resamples=100)
    assert found == pytest.approx((min(possible), max(possible)))
