"""The experiment of INFO table 1: its claims, tables and figures, and the paper's settings."""

import math

import pytest
from lab.tests.experiments.info.stories import FEW_LABELS, few_labels
from lab.tests.observed import gathered, those

from ncscope.models.networks.catalogue import NAMES
from ncscope_lab.experiments.info.semi_supervised import (
    COMPARED,
    EXPERIMENT,
    METHODS,
    list_settings,
)
from ncscope_lab.experiments.info.semi_supervised import ERRORS as PRINTED
from ncscope_lab.observations import Results
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.semi_supervised.run import few_labels_events
from tests.data.on_disk import WRITERS

SMALL, PAPER = EXPERIMENT.scales["small"], EXPERIMENT.scales["paper"]


def test_the_tables_are_in_per_cent_beside_the_printed_values() -> None:
    changed = {"FreeMatch + MI": 0.17, "FreeMatch + ED": 0.21}
    errors, gains, weights = EXPERIMENT.summarise(FEW_LABELS, few_labels(changed))
    printed = [f"printed: cifar10, {labels} labels" for labels in (10, 40, 250)]
    assert errors.columns == [*(f"digits, {labels} labels" for labels in (10, 20, 40)), *printed]
    ours = ["32.00 ± 1.58 (5)"] * 3  # 0 to 4 per cent more
    assert errors.lines["FixMatch"] == [*ours, "24.79 ± 7.65", "7.47 ± 0.28", "5.07 ± 0.05"]
    assert errors.lines["FreeMatch"][0] == "22.00 ± 1.58 (5)"
    assert errors.lines["supervised"][3:] == [""] * 3
    assert errors.lines["VAT"] == ["not run"] * 3 + ["79.81 ± 1.17", "74.66 ± 2.12", "41.03 ± 1.79"]
    assert gains.lines["digits, 20 labels"] == ["3.00 ± 0.00", "-1.00 ± 0.00", "", ""]
    assert gains.lines["cifar10, 10 labels"] == ["not run", "not run", "+3.20", "+3.38"]
    assert gains.lines["stl10, 40 labels"][2:] == ["-1.05", "+0.63"]
    assert list(weights.lines) == [
        "FreeMatch",
        *(f"FreeMatch + {term}{weight}" for term in ("ED", "MI")
          for weight in ("", ", weight 0.01", ", weight 1")),
    ]  # fmt: skip
    ends = [f"{value} ± 1.00 (3)" for value in ("20.50", "18.00", "20.90")]
    assert weights.lines["FreeMatch + MI, weight 1"] == ends
    lacking = those(few_labels(), lambda row: "seed 101" not in row.part)
    lines = EXPERIMENT.summarise(FEW_LABELS, lacking)[0].lines
    assert {lines[method][0] for method in METHODS} == {"unknown (5)"}


@pytest.mark.slow
def test_the_gain_is_drawn_from_the_seeds_that_have_results_and_tells_their_number() -> None:
    lost = "digits, 20 labels, FreeMatch + MI, seed 101"
    *_, gain = EXPERIMENT.draw(FEW_LABELS, Results(r for r in few_labels() if r.part != lost))
    ours, printed = gain.figure.axes
    ticks = [label.get_text() for label in ours.get_xticklabels()]
    assert ticks == ["10\n5 of 5", "20\n4 of 5\n5 of 5", "40\n5 of 5"]
    assert len(ours.containers) == 6
    assert printed.get_title(loc="left") == "Gain on cifar10, as printed"


def test_the_papers_table_has_its_own_columns() -> None:
    tables = EXPERIMENT.summarise(PAPER, Results())
    assert [len(table.columns) for table in tables] == [6, 4, 4, 4]  # three sets, and the gains
    assert tables[2].columns[2:] == ["printed: stl10, 40 labels", "printed: stl10, 1000 labels"]
    assert tables[2].lines["FreeMatch + MI"][2:] == ["16.61 ± 1.19", "5.24 ± 0.17"]
    assert list(tables[0].lines) == ["supervised", *PRINTED]


def test_printed_errors_are_the_papers() -> None:
    assert len(PRINTED) == 16
    sums = {name: round(sum(cell.mean for cell in by.values()), 2) for name, by in PRINTED.items()}
    assert sums["Pi model"] == 452.61
    assert sums["FreeMatch"] == 103.49
    assert sums["FreeMatch + MI"] == 98.12
    assert sums["FreeMatch + ED"] == 97.25
    assert PRINTED["FlexMatch"]["cifar10", 10] == (13.85, 12.04)
    assert PRINTED["UDA"]["stl10", 40] == (37.42, 8.44)


def test_the_compared_methods_have_forty_seeds_and_the_others_eight() -> None:
    counts = dict.fromkeys(METHODS, 0)
    for name, run in SMALL.runs.items():
        if run.labels == 20 and "weight" not in name:
            counts[name.split(", ")[2]] += 1
    assert counts == {name: 40 if name in COMPARED else 8 for name in METHODS}
    assert min(run.seed for run in SMALL.runs.values()) >= 10  # others have been looked at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "run"),
    [
        ("cifar10", "cifar10, 10 labels, FreeMatch + MI, seed 0"),
        ("stl10", "stl10, 40 labels, FreeMatch + ED, seed 0"),
    ],
)
def test_a_step_at_the_papers_scale_on_real_files(data, run, tmp_path, monkeypatch) -> None:
    WRITERS[data](tmp_path, monkeypatch)
    settings = PAPER.runs[run]
    brief = settings.optimisation.model_copy(update={"batch_size": 2, "epochs": 1})
    few = {"optimisation": brief, "steps_per_epoch": 1, "measured": None, "labels": 10}
    resources = Resources(data=tmp_path)
    results = gathered(few_labels_events(settings.model_copy(update=few), resources))
    assert math.isfinite(results[-1]["loss"])
    assert results[-1]["mask_rate"] > 0


def test_the_papers_scale_is_the_papers() -> None:
    settings = {
        ("cifar10", 10): ("wrn-28-2-ssl", 0.01),
        ("cifar10", 40): ("wrn-28-2-ssl", 0.05),
        ("cifar10", 250): ("wrn-28-2-ssl", 0.05),
        ("cifar100", 400): ("wrn-28-8-ssl", 0.01),
        ("cifar100", 2500): ("wrn-28-8-ssl", 0.05),
        ("stl10", 40): ("wrn-37-2", 0.01),
        ("stl10", 1000): ("wrn-37-2", 0.05),
    }
    assert [tuple(setting) for setting in list_settings(PAPER)] == list(settings)
    assert len(EXPERIMENT.parts(PAPER)) == len(settings) * len(METHODS) * 3
    single = ("pi-model", "pseudo-label", "mean-teacher")
    for run in PAPER.runs.values():
        assert (run.network, run.fairness_weight) == settings[run.data, run.labels]
        assert run.network in NAMES
        chosen = run.optimisation
        assert chosen.epochs * run.steps_per_epoch == 2**20
        assert (chosen.batch_size, chosen.average, run.memory) == (64, 0.999, 0.999)
        assert run.ratio == (1 if run.method in single else 7)
        assert (chosen.learning_rate, chosen.weight_decay, chosen.momentum) == (0.03, 5e-4, 0.9)
        assert (chosen.optimiser, chosen.schedule) == ("nesterov", "cosine-7/16")
        assert (run.views, run.threshold) == ("randaugment", 0.8 if run.method == "uda" else 0.95)
