"""The recipe of INFO table 1: its claims, table and figures, and the paper's settings."""

import math
from typing import Any

import pytest

from ncscope.lab.observations import Results, together
from ncscope.lab.papers.info.few_labels import METHODS, SemiSupervised, by_setting, errors, summary
from ncscope.lab.papers.info.semi_supervised import PAIRS, RECIPE
from ncscope.lab.runs.resources import Resources
from ncscope.lab.training.semi_supervised.run import few_labels_events
from ncscope.models.networks.catalogue import NAMES
from tests.data.on_disk import WRITERS
from tests.lab.observed import gathered, observed, those
from tests.lab.training.semi_supervised.runs import short

SMALL, PAPER = RECIPE.scales["small"], RECIPE.scales["paper"]
ERRORS = {
    "supervised": 0.4,
    "FixMatch": 0.3,
    "FreeMatch": 0.2,
    "FreeMatch + MI": 0.1,
    "FreeMatch + ED": 0.15,
}


def made(changed: dict[str, float] | None = None, labels: int = 20) -> Results:
    """Results of the small scale's runs, some methods' errors changed at one number of labels."""
    found: list[dict[str, Any]] = []
    for setting, methods in by_setting(SMALL).items():
        for method, names in methods.items():
            own = ERRORS | (changed or {} if setting.labels == labels else {})
            for seed, name in enumerate(names):
                for epoch, factor in ((0, 2.0), (10, 1.0)):
                    error = factor * own[method] + 0.01 * seed
                    where = {"part": name, "epoch": epoch, "split": "test", "layer": "last"}
                    found.append(where | {"error": error, "mir": 0.5, "hdr": 0.1})
                    if method != "supervised":
                        found.append(
                            {"part": name, "epoch": epoch, "split": "unlabelled", "layer": "all"}
                            | {"threshold": 0.5, "mask_rate": 0.9, "pseudo_label_accuracy": 0.8}
                            | {f"{key}_{k}": 0.1 for key in ("threshold", "histogram")
                               for k in range(10)}
                        )  # fmt: skip
    return observed(found)


def failing(results: Results) -> list[str]:
    return [claim.text for claim in RECIPE.claims(SMALL, results) if not claim.held]


def test_all_claims_hold_in_the_papers_order() -> None:
    assert len(RECIPE.claims(SMALL, made())) == 3 * len(PAIRS)
    assert failing(made()) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"FixMatch": 0.41}, "unlabelled images help"),
        ({"FreeMatch": 0.31}, "FreeMatch errs less than FixMatch"),
        ({"FreeMatch + MI": 0.21}, "maximising mutual information"),
        ({"FreeMatch + ED": 0.2}, "minimising the entropy difference"),
    ],
)
def test_a_method_that_is_no_better_turns_one_claim(changed: dict[str, float], words: str) -> None:
    (claim,) = failing(made(changed))
    assert claim.startswith("digits, 20 labels: ")
    assert words in claim


def test_the_table_is_means_and_standard_errors_in_per_cent() -> None:
    (table,) = RECIPE.tables(SMALL, made())
    assert list(table.lines) == list(METHODS)
    assert table.columns == [f"digits, {labels} labels" for labels in (10, 20, 40)]
    error = 100 * math.sqrt(0.00025 / 5)  # of 0, 1, .. 4 per cent
    assert table.lines["FixMatch"] == [f"32.00 ± {error:.2f}"] * 3
    one = {setting: {"FixMatch": by["FixMatch"][:1]} for setting, by in by_setting(SMALL).items()}
    found = [summary(errors(made(), by["FixMatch"])) for by in one.values()]
    assert [(round(mean, 9), math.isnan(spread)) for mean, spread in found] == [(30, True)] * 3


def test_what_was_not_measured_is_unknown_and_claims_nothing() -> None:
    results = those(made(), lambda row: "seed 3" not in row.part)
    assert len(failing(results)) == len(RECIPE.claims(SMALL, results))
    assert {cell for line in RECIPE.tables(SMALL, results)[0].lines.values() for cell in line} == {
        "unknown"
    }
    assert len(RECIPE.drawings(SMALL, Results())) == 3


def test_figures_have_a_curve_a_method() -> None:
    figures = {drawing.name: drawing.figure for drawing in RECIPE.drawings(SMALL, made())}
    thresholds, trusted, right, classes = figures["pseudo-labels"].axes[:4]
    assert [len(axes.get_lines()) for axes in (thresholds, trusted, right)] == [4 + 10, 4, 4]
    (image,) = classes.get_images()
    assert image.get_array().shape == (10, 2)
    assert [len(axes.get_lines()) for axes in figures["information"].axes] == [5] * 6


def test_a_short_run_has_the_numbers_that_figures_and_claims_read() -> None:
    runs = {"a": short(mutual_information=0.1, groups=("nc4", "information")), "b": short()}
    config = SemiSupervised(runs=runs)
    events = list(few_labels_events(runs["a"], Resources()))
    results = together([gathered(events, "a"), gathered(events, "b")])
    assert 0 < errors(results, ["a"])[0] < 100
    (claim,) = RECIPE.claims(config, results)
    assert not claim.held  # the same error is no lower one
    assert "in the mean over seeds, and less in 0 of 1 seeds" in claim.evidence


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
    assert [tuple(setting) for setting in by_setting(PAPER)] == list(settings)
    assert len(RECIPE.parts(PAPER)) == len(settings) * len(METHODS) * 3
    for run in PAPER.runs.values():
        assert (run.network, run.fairness_weight) == settings[run.data, run.labels]
        assert run.network in NAMES
        chosen = run.optimisation
        assert chosen.epochs * run.steps_per_epoch == 2**20
        assert (chosen.batch_size, run.ratio, chosen.average, run.memory) == (64, 7, 0.999, 0.999)
        assert (chosen.learning_rate, chosen.weight_decay, chosen.momentum) == (0.03, 5e-4, 0.9)
        assert (chosen.optimiser, chosen.schedule) == ("nesterov", "cosine-7/16")
        assert (run.views, run.threshold) == ("randaugment", 0.95)
