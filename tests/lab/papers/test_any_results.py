"""Whatever a run's rows hold, its claims and figures come out: the run is paid for."""

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

from ncscope.lab.catalogue import EXPERIMENTS, experiment
from ncscope.lab.runs.resources import Resources
from ncscope.lab.runs.running import rendered
from ncscope.probing.records import Row

PAPERS = ("mse/", "pfc/", "vci/", "xufm/")
RECIPES = {
    name: experiment(name)
    for name in EXPERIMENTS
    if name.startswith(PAPERS) and "runs" in experiment(name).config.model_fields
}
pytestmark = [
    pytest.mark.usefixtures("unchecked_signatures"),  # most of the time, otherwise
    pytest.mark.slow,
]
Rows = list[Row]
Change = Callable[[Rows], Rows]


def with_runs(config: Any, **update: Any) -> Any:
    """The settings with something changed in every run."""
    runs = {name: run.model_copy(update=update) for name, run in config.runs.items()}
    return config.model_copy(update={"runs": runs})


@cache
def measured(name: str) -> tuple[Row, ...]:
    """Rows of a real epoch of the recipe's first run, as if of all its runs; and of its models."""
    small = RECIPES[name].scales["small"]
    first = next(iter(small.runs.values()))
    brief = {"epochs": 1, "warmup_epochs": 0, "batch_size": 64}
    short = first.optimisation.model_copy(update=brief)
    config = with_runs(small, optimisation=short, balanced=200)
    few = {"steps": 20, "images": 10, "downstream": ("warped-digits-5-9",)}
    run, *others = RECIPES[name].parts(config.model_copy(update=few))
    rows = [row for row in run.run(Resources()) if row]
    models = [one for one in others if one.name not in config.runs]
    return (
        *({"part": part} | row for part in config.runs for row in rows),
        *({"part": one.name} | row for one in models for row in one.run(Resources()) if row),
    )


def at(value: float, key: str | None = None) -> Change:
    """One metric of every network, or all of them, at a value."""

    def changed(row: Row) -> Row:
        own = {name for name, old in row.items() if isinstance(old, float)} - {"t"}
        return row | dict.fromkeys(own if key is None else own & {key}, value)

    return lambda rows: [row if "objective" in row else changed(row) for row in rows]


def without(key: str) -> Change:
    return lambda rows: [{k: v for k, v in row.items() if k != key} for row in rows]


def past_zero_error(change: Change) -> Change:
    return lambda rows: at(1.0, "accuracy")(change(rows))


def untrained(rows: Rows) -> Rows:
    return [row for row in rows if row.get("epoch", 0) == 0]


def last_layer(rows: Rows) -> Rows:
    """No other layers, lines or spectra."""
    return [row for row in rows if row["layer"] in ("head input", "input", "H1", "H2")]


CHANGES: Mapping[str, Change] = {
    "zeros": at(0.0),
    "zeros past zero error": past_zero_error(at(0.0)),
    "constants": at(1.0),
    "untrained": untrained,
    "the last layer alone": last_layer,
}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "squared error": {"loss": "mse"},
    "cross-entropy": {"loss": "cross-entropy"},
    "another network": {"network": "small-vit"},
    "another data set": {"data": "moons"},
}


@pytest.mark.parametrize("name", RECIPES)
def test_claims_of_any_numbers(name: str) -> None:
    recipe, rows = RECIPES[name], list(measured(name))
    config = recipe.scales["small"]
    texts = [claim["claim"] for claim in recipe.claims(config, rows)]
    assert texts
    for label, change in CHANGES.items():
        found = recipe.claims(config, change(rows))
        assert all(claim["evidence"] for claim in found), label
        assert label == "the last layer alone" or [one["claim"] for one in found] == texts, label


@pytest.mark.parametrize("name", RECIPES)
def test_claims_of_what_was_not_measured_do_not_hold(name: str) -> None:
    recipe, rows = RECIPES[name], list(measured(name))
    config = recipe.scales["small"]
    assert not any(claim["held"] for claim in recipe.claims(config, at(math.nan)(rows)))
    keys = {key for row in rows for key, value in row.items() if isinstance(value, float)} - {"t"}
    for key in keys:
        for change in (at(0.0, key), at(math.nan, key), without(key)):
            for own in (change, past_zero_error(change)):
                told = recipe.claims(config, own(rows))
                assert not [c for c in told if c["held"] and "nan" in c["evidence"]], key


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("label", SETTINGS)
def test_claims_of_other_settings(name: str, label: str) -> None:
    config = with_runs(RECIPES[name].scales["small"], **SETTINGS[label])
    assert RECIPES[name].claims(config, list(measured(name)))


@pytest.mark.parametrize("name", RECIPES)
def test_figures_of_zeros_and_of_what_was_not_measured(name: str) -> None:
    recipe, rows = RECIPES[name], list(measured(name))
    config = recipe.scales["small"]
    first = next(iter(config.runs))
    mixed = [row for row in at(0.0)(rows) if row["part"] == first]
    mixed += [row for row in at(math.nan)(rows) if row["part"] != first]
    expected = [drawing.name for drawing in recipe.drawings(config, rows)]
    assert [drawing.name for drawing in recipe.drawings(config, mixed)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("label", [*CHANGES, "not measured", *SETTINGS])
def test_every_figure_can_be_written(name: str, label: str) -> None:
    change = {**CHANGES, "not measured": at(math.nan)}.get(label, list)
    config = with_runs(RECIPES[name].scales["small"], **SETTINGS.get(label, {}))
    drawings = RECIPES[name].drawings(config, change(list(measured(name))))
    assert drawings
    for drawing in drawings:
        assert len(rendered(drawing, "svg")) > 1000
