"""Claims, tables and figures on synthetic zoos, of which the right verdicts are known."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from lab.tests.experiments.transfer.made_cells import cells_on

from ncscope.report.tables import Summary
from ncscope.transfer.advice import FEW, FEW_OF_MANY, MANY, MORE_CLASSES, USUAL
from ncscope.transfer.records import BASELINES, SCORES, Score
from ncscope_lab.experiments.transfer.cells import A_FEW, ALL, TUNED_ACCURACY, Cell
from ncscope_lab.experiments.transfer.design import TransferZoo, list_networks, list_targets
from ncscope_lab.experiments.transfer.judgement import (
    FACT_SHARE,
    FACTS,
    MARGIN,
    PHRASES,
    PUBLISHED,
    ZOO_SCORES,
    Verdicts,
    add_fact,
    bootstrap_gain,
    group_cells,
    judge_claims,
    judge_score,
    mean_quality,
    quality_interval,
    select_half,
)
from ncscope_lab.experiments.transfer.scores import INDEX, VARIANTS
from ncscope_lab.experiments.transfer.tables import (
    cost_table,
    draw_figures,
    format_interval,
    format_number,
    group_by_condition,
    make_tables,
    order_scores,
    quality_table,
)
from ncscope_lab.findings import Finding
from ncscope_lab.intervals import Interval
from tests.pace import others_slow

pytestmark = pytest.mark.usefixtures("unchecked_signatures_of_module")

ZOO = TransferZoo(networks=3)
BEST = "log_me"
"""Published score with the least noise in the synthetic zoos."""

Draws = np.random.Generator
Change = Callable[[dict[str, float], Draws], None]


def exact(values: dict[str, float], draws: Draws) -> None:
    values[INDEX] = values["accuracy"]


def as_the_best(values: dict[str, float], draws: Draws) -> None:
    values[INDEX] = SCORES[BEST].better * values[BEST]


def nearly_as_the_best(values: dict[str, float], draws: Draws) -> None:
    as_the_best(values, draws)
    values[INDEX] += 0.01 * draws.normal()


def as_noise(values: dict[str, float], draws: Draws) -> None:
    values[INDEX] = draws.normal()


def as_past_results(values: dict[str, float], draws: Draws) -> None:
    values[INDEX] = values["other_sets"]


def without_the_index(values: dict[str, float], draws: Draws) -> None:
    pass


def without_published(values: dict[str, float], draws: Draws) -> None:
    exact(values, draws)
    for key in PUBLISHED:
        values.pop(key)


def without_fine_tuning(values: dict[str, float], draws: Draws) -> None:
    exact(values, draws)
    values.pop(TUNED_ACCURACY, None)


def never_defined(values: dict[str, float], draws: Draws) -> None:
    values[INDEX] = math.nan


def synthetic(change: Change) -> list[Cell]:
    """Return all cells of a zoo whose published scores are the truth with noise.

    Args:
        change: Function that sets the index in the values of a cell.
    """
    draws = np.random.default_rng(0)
    # A generator for each key, so that a new score changes no other's values.
    noises = {key: np.random.default_rng([*key.encode()]) for key in PUBLISHED}
    facts = [key for key in (*BASELINES, *FACTS) if key != "other_sets"]
    cells = []
    for name, training in list_networks(ZOO).items():
        own = dict(zip(facts, draws.random(len(facts)).tolist(), strict=True))
        for target in list_targets(training.data, ZOO.targets):
            for images in (ALL, A_FEW):
                values = {"accuracy": draws.random(), "other_sets": draws.random(), **own}
                values |= {"classes": 10.0, "dim": 32.0}
                truth = values["accuracy"]
                if images == ALL:
                    values[TUNED_ACCURACY] = truth + 0.05 * draws.normal()
                for key in PUBLISHED:
                    noise = 0.15 if key == BEST else 0.6
                    values[key] = ZOO_SCORES[key].better * (truth + noise * noises[key].normal())
                for key in VARIANTS:
                    values[key] = truth + 0.3 * draws.normal()
                change(values, draws)
                values = {key: float(value) for key, value in values.items()}
                cells.append(Cell(name, training.network, training.data, target, images, values))
    return cells


def judged(change: Change) -> Verdicts:
    return Verdicts(ZOO, select_half(ZOO, synthetic(change), "report"))


def better_claims(claims: Sequence[Finding]) -> list[Finding]:
    """Return the claims that the index is better: all images, few, and after fine-tuning."""
    return [claim for claim in claims if "better than the best published score, by" in claim.text]


def line(table: Summary, name: str) -> Sequence[str]:
    return table.lines[name]


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """The bootstrap, which has tests of its own, draws twenty times in place of a thousand."""
    few = partial(bootstrap_gain, resamples=20)
    monkeypatch.setattr("ncscope_lab.experiments.transfer.judgement.bootstrap_gain", few)


@pytest.fixture(scope="module")
def perfect() -> Verdicts:
    """A zoo where the index is the truth."""
    return judged(exact)


@pytest.fixture(scope="module")
def tables(perfect) -> Mapping[str, Summary]:
    """The tables of this zoo by title."""
    return {table.title: table for table in make_tables(perfect)}


def test_an_index_that_is_the_truth_is_better_than_noisy_scores(perfect):
    claims = judge_claims(perfect)
    assert len(claims) == 6
    better = better_claims(claims)
    assert [claim.verdict for claim in better] == ["held"] * 3
    for claim in better:
        assert f"over {SCORES[BEST].name}" in claim.evidence
        assert claim.interval is not None
        assert claim.interval.low > 0
        assert claim.interval.estimate >= MARGIN
    residual = [claim for claim in claims if "the rank correlation that is left" in claim.text]
    assert [claim.verdict for claim in residual] == ["held"] * 2


def test_the_claim_rests_on_the_gains_over_the_best_published_score(perfect):
    claim = judge_claims(perfect)[0]
    cells = [cell for cell in perfect.cells if cell.images == ALL]
    ours, best = (judge_score(cells, key, SCORES[key]) for key in (INDEX, BEST))
    values = [ours[target].weighted_tau - best[target].weighted_tau for target in ours]
    assert len(values) == len(ZOO.report_targets)
    assert claim.interval is not None
    assert claim.interval.estimate == pytest.approx(np.mean(values))
    listed = claim.evidence.rsplit("; by target: ", 1)[1]
    pairs = zip(ours, values, strict=True)
    assert listed == ", ".join(f"{target} {value:.3f}" for target, value in pairs)


@pytest.mark.parametrize(
    "change",
    others_slow(
        [as_the_best, nearly_as_the_best, as_noise, as_past_results, never_defined],
        as_the_best,
        as_past_results,
        never_defined,
    ),
)
def test_an_index_that_is_no_better_is_said_to_be_no_better(change):
    claims = judge_claims(judged(change))
    assert [claim.verdict for claim in better_claims(claims)] == ["not held"] * 3
    for claim in better_claims(claims):
        assert "mean gain" in claim.evidence


def with_the_worst_two_swapped(cells: Sequence[Cell]) -> list[Cell]:
    """Return cells whose best published score is the truth, but for the two worst networks."""
    found = []
    for own in group_cells(cells).values():
        ascending = sorted(own, key=lambda cell: cell.value("accuracy"))
        values = [cell.value("accuracy") for cell in ascending]
        values[:2] = values[1::-1]
        found += [
            cell.with_values({BEST: value}) for cell, value in zip(ascending, values, strict=True)
        ]
    return found


def test_a_gain_below_the_margin_does_not_count(perfect):
    cells = [cell for cell in perfect.cells if cell.images == ALL]
    claim = judge_claims(Verdicts(ZOO, with_the_worst_two_swapped(cells)))[0]
    assert claim.interval is not None
    assert 0 < claim.interval.low < claim.interval.estimate < MARGIN
    assert claim.verdict == "not held"


def test_a_large_gain_on_one_target_alone_is_undecided(perfect):
    cells = [cell for cell in perfect.cells if cell.target == "digits"]
    (claim, *_) = judge_claims(Verdicts(ZOO, cells))
    assert claim.verdict == "undecided"
    assert "over 1 targets" in claim.evidence


@pytest.mark.slow
def test_past_results_that_are_the_truth_are_better_than_published_scores():
    def past(values: dict[str, float], draws: Draws) -> None:
        exact(values, draws)
        values["other_sets"] = values["accuracy"]

    assert judge_claims(judged(past))[-1].verdict == "held"
    assert judge_claims(judged(exact))[-1].verdict == "not held"


@pytest.mark.parametrize("change", [without_the_index, without_published])
def test_without_the_numbers_the_claims_are_undecided(change):
    claims = judge_claims(judged(change))
    assert [claim.verdict for claim in better_claims(claims)] == ["undecided"] * 3
    assert {claim.evidence for claim in better_claims(claims)} == {"none measured"}


def test_without_fine_tuning_its_claim_alone_is_undecided():
    better = better_claims(judge_claims(judged(without_fine_tuning)))
    assert [claim.verdict for claim in better] == ["held", "held", "undecided"]


def without(cells: list[Cell], *keys: str) -> list[Cell]:
    return [
        replace(cell, values={k: v for k, v in cell.values.items() if k not in keys})
        for cell in cells
    ]


CUT: Mapping[str, Callable[[list[Cell]], list[Cell]]] = {
    "no cells": lambda cells: [],
    "one cell": lambda cells: cells[:1],
    "two networks": lambda cells: [
        c for c in cells if c.network in ("small-conv 0", "small-vgg 0")
    ],
    "all images only": lambda cells: [cell for cell in cells if cell.images == ALL],
    "one target": lambda cells: [cell for cell in cells if cell.target == "digits"],
    "no index": lambda cells: without(cells, INDEX),
    "no published score": lambda cells: without(cells, *PUBLISHED),
    "no truth": lambda cells: [
        cell.with_values({"accuracy": math.nan, TUNED_ACCURACY: math.nan}) for cell in cells
    ],
    "truth alone": lambda cells: [
        replace(cell, values={"accuracy": cell.value("accuracy")}) for cell in cells
    ],
}


@pytest.mark.parametrize("cut", others_slow(CUT, "no cells", "all images only"))
def test_claims_tables_and_figures_come_out_of_whatever_was_measured(cut):
    verdicts = Verdicts(ZOO, CUT[cut](select_half(ZOO, synthetic(exact), "report")))
    claims = judge_claims(verdicts)
    assert len(claims) == 6
    decided = {claim.verdict for claim in claims} - {"undecided"}
    assert bool(decided) == (cut in ("all images only", "no published score", "no index"))
    tables = make_tables(verdicts, {})
    assert len({table.title for table in tables}) == 8
    for table in tables:
        assert all(len(cells) == len(table.columns) for cells in table.lines.values())
    for drawing in draw_figures(verdicts):
        drawing.figure.draw_without_rendering()


def test_the_best_published_score_is_neither_ours_nor_a_users_nor_a_baseline():
    own = {"own:oracle": Score("oracle", 1)}
    cells = [
        cell.with_values(
            {"own:oracle": cell.value("accuracy"), "parameters": cell.value("accuracy")}
        )
        for cell in select_half(ZOO, synthetic(exact), "report")
    ]
    verdicts = Verdicts(ZOO, cells, own)
    for images in (ALL, A_FEW):
        assert verdicts.best_published(verdicts.qualities[images]) == BEST
    assert INDEX not in PUBLISHED
    assert "vci" not in PUBLISHED
    assert not set(PUBLISHED) & set(BASELINES)


def test_halves_have_their_targets_and_their_architectures():
    cells = synthetic(exact)
    report, design = select_half(ZOO, cells, "report"), select_half(ZOO, cells, "design")
    assert {cell.target for cell in report} == {*ZOO.report_targets}
    assert {cell.architecture for cell in report} == {*ZOO.architectures}
    assert {cell.target for cell in design} == {*ZOO.design_targets}
    assert {cell.architecture for cell in design} == {*ZOO.design_architectures}
    pairs = {(cell.network, cell.target, cell.images) for cell in cells}
    assert len(pairs) == len(cells)
    rest = len(cells) - len(report) - len(design)
    held_out = [cell for cell in cells if cell.architecture in ZOO.held_out_architectures]
    assert rest == sum(cell.target in ZOO.design_targets for cell in held_out)


def added(fact: Sequence[float], better: int = 1) -> list[float]:
    """Return the sums of index and fact for an index of 1, 2, 3, 4."""
    cells = cells_on("first", accuracy=[0.1] * 4, explained_entropy=[1, 2, 3, 4], fact=fact)
    found = add_fact(cells, "fact", Score("", better))
    return [cell.value("index_together") for cell in found]


@pytest.mark.parametrize("better", [1, -1])
def test_a_fact_is_added_with_its_share_and_sign(better):
    fact = [0.0, 0.0, 1.0, 1.0]
    index = (np.arange(4) - 1.5) / np.std(np.arange(4))
    known = index + better * FACT_SHARE * np.array([-1, -1, 1, 1])
    assert added(fact, better) == pytest.approx(known.tolist())


@pytest.mark.parametrize("better", [1, -1])
def test_a_network_without_the_fact_counts_as_the_worst(better):
    fact = [better * value for value in (5.0, 7.0, 6.0)]
    known = added([*fact, better * 5.0], better)
    assert added([*fact, math.nan], better) == pytest.approx(known)


def test_facts_are_standardised_by_target():
    cells = cells_on("first", accuracy=[0.1] * 3, explained_entropy=[1, 2, 3], fact=[1, 2, 4])
    moved = cells_on("second", accuracy=[0.1] * 3, explained_entropy=[10, 20, 30], fact=[2, 4, 8])
    found = add_fact([*cells, *moved], "fact", Score("", 1))
    values = {
        target: [cell.value("index_together") for cell in found if cell.target == target]
        for target in ("first", "second")
    }
    assert values["first"] == pytest.approx(values["second"])


def test_a_fact_added_to_the_index_gains_nothing_if_it_is_constant(perfect):
    cells = [cell.with_values({"mir": 0.3}) for cell in perfect.cells]
    found = Verdicts(ZOO, cells).ingredients(ALL)
    assert set(found) == {score.name for score in (*VARIANTS.values(), *FACTS.values())}
    assert found[FACTS["mir"].name] == pytest.approx([0.0] * len(ZOO.report_targets))
    assert min(found[FACTS["source_accuracy"].name]) >= 0
    assert np.mean(found[VARIANTS["index_fitted"].name]) > 0.1


def test_the_table_of_qualities_holds_means_and_intervals_best_first(perfect):
    table = quality_table(perfect, A_FEW)
    cells = [cell for cell in perfect.cells if cell.images == A_FEW]
    found = judge_score(cells, BEST, SCORES[BEST])
    interval = quality_interval(found)
    assert interval is not None
    mean = mean_quality(found)
    assert line(table, "LogME")[0] == f"{mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
    assert line(table, "LogME")[1] == f"{mean_quality(found, 'tau'):.3f}"
    assert line(table, "LogME")[2] == f"{100 * mean_quality(found, 'regret'):.1f}"
    assert list(table.lines)[:2] == ["explained entropy (ours)", "LogME"]
    few = perfect.qualities[A_FEW]
    means = [mean_quality(few[key]) for key in order_scores(few)]
    assert means == sorted(means, reverse=True)
    assert f"over {len(ZOO.report_targets)} targets" in table.caption


@pytest.mark.slow
def test_a_held_out_architecture_is_judged_by_its_own_networks(perfect, tables):
    table = tables[f"Held-out architectures, {PHRASES[ALL]}"]
    assert list(table.columns) == [*ZOO.held_out_architectures, "the three", "one left out"]
    cells = [cell for cell in perfect.cells if cell.images == ALL]
    own = [cell for cell in cells if cell.architecture in ZOO.held_out_architectures]
    assert line(table, "LogME")[3] == format_number(
        mean_quality(judge_score(own, BEST, SCORES[BEST]))
    )
    means = []
    for name in ZOO.architectures:
        rest = [cell for cell in cells if cell.architecture != name]
        means.append(mean_quality(judge_score(rest, BEST, SCORES[BEST])))
    assert line(table, "LogME")[4] == f"{format_number(min(means))} to {format_number(max(means))}"
    assert line(table, "explained entropy (ours)")[4] == "1.000 to 1.000"


def test_conditions_are_by_images_classes_and_features():
    cells = [
        cells_on("few", images=A_FEW, accuracy=[0.5], classes=[30], dim=[5])[0],
        *cells_on("all", accuracy=[0.5] * 4, classes=[10, 20, 20, 30], dim=[10, 19, 20, 40]),
    ]
    found = {name: [c.network for c in part] for name, part in group_by_condition(cells).items()}
    assert found == {
        USUAL: ["a 0", "a 1", "a 2", "a 3"],
        FEW: ["a 0"],
        MANY: ["a 1", "a 2", "a 3"],
        FEW_OF_MANY: ["a 0"],
        MORE_CLASSES: ["a 1"],
    }


def test_nothing_is_claimed_on_the_design_half():
    cells = select_half(ZOO, synthetic(exact), "design")
    assert Verdicts(ZOO, cells, half="design").claims == []
    assert [claim.verdict for claim in Verdicts(ZOO, cells).claims][:2] == ["held"] * 2


def test_the_table_of_costs_has_the_fastest_first(perfect):
    table = cost_table(perfect, {"probe": 0.5, BEST: 0.01, INDEX: 0.002})
    assert dict(table.lines) == {
        "explained entropy (ours)": ["2 ms", "250"],
        "LogME": ["10 ms", "50"],
        "probe": ["500 ms", "1"],
    }
    assert list(table.lines) == ["explained entropy (ours)", "LogME", "probe"]


def test_numbers_have_a_true_minus_and_unknown_ones_a_dash():
    assert format_number(-0.12345) == "−0.123"
    assert format_number(0.5, 1, signed=True) == "+0.5"
    assert format_number(math.nan) == format_number(math.inf) == "–"
    interval = Interval(estimate=0.5, low=-0.25, high=1.25, count=3, method="t", scale="plain")
    assert format_interval(interval, 0.5, signed=True) == "+0.500 [−0.250, 1.250]"
    assert format_interval(None, 0.5) == "0.500"
