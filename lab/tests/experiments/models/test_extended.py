"""The experiment on the extended model: rows, claims that can fail, figures."""

import math
from typing import Any

import pytest
from lab.tests.observed import changed, experiment_results

from ncscope.errors import InputError
from ncscope_lab.experiments.models.extended import (
    EXPERIMENT,
    ExtendedConfig,
    separate_levels,
)
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs
from ncscope_lab.runs.settings import check_settings

SMALL: dict[str, Any] = {
    "num_classes": 3,
    "dim": 12,
    "per_class": 3,
    "weight_decays": (0.05, 0.05),
    "feature_decay": 0.02,
    "rate": 0.5,
    "steps": 3000,
    "every": 500,
    "seed": 1,
}


def run(**given: Any) -> tuple[ExtendedConfig, Results]:
    config = ExtendedConfig(**SMALL | given)
    return config, experiment_results(EXPERIMENT, config)


@pytest.fixture(scope="module")
def whole() -> tuple[ExtendedConfig, Results]:
    return run()


def held(config: ExtendedConfig, rows: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in EXPERIMENT.judge(config, rows)}


def test_theorems_hold_of_a_small_run(whole: tuple[ExtendedConfig, Results]):
    verdicts = held(*whole)
    assert len(verdicts) == 13
    assert [claim for claim, kept in verdicts.items() if not kept] == []


@pytest.mark.parametrize(
    ("part", "layer", "key", "value", "lost"),
    [
        ("linear", "H2", "objective", 0.9, 1),
        ("linear", "H1", "nc1", 0.5, 1),
        ("relu", "H2", "nc2_of", 0.5, 1),
        ("relu", "H2", "nc3_alignment", 0.5, 1),
        ("relu", "H2", "nuclear_cost", 1e-5, 1),
        ("relu", "H1", "nc2_of", 1e-9, 1),
    ],
)
def test_claims_can_fail(
    whole: tuple[ExtendedConfig, Results],
    part: str,
    layer: str,
    key: str,
    value: float,
    lost: int,
):
    config, rows = whole
    last = [row for row in rows if row.part == part and row.layer == layer][-1]
    wrong = Results(changed(row, **{key: value}) if row is last else row for row in rows)
    assert sum(not kept for kept in held(config, wrong).values()) == lost


def test_levels_that_move_together_are_not_separated(whole: tuple[ExtendedConfig, Results]):
    path = [row for row in whole[1] if row.part == "linear"]
    same = Results(changed(row, nc1=0.1) for row in path)
    tenfold = Results(changed(row, nc1=0.1 if row.layer == "H1" else 0.01) for row in path)
    assert separate_levels(Runs.of({}, same)[0]) == 0
    assert separate_levels(Runs.of({}, tenfold)[0]) == pytest.approx(1)


@pytest.mark.slow
def test_activations_and_depths():
    config, rows = run(activation="linear", weight_decays=(0.03, 0.03, 0.03), steps=300)
    assert {row.layer for row in rows} == {"H1", "H2", "H3"}
    assert all("ReLU" not in claim for claim in held(config, rows))
    config, rows = run(activation="relu", weight_decays=(0.03, 0.03, 0.03), steps=300)
    assert [row.layer for row in rows[:5]] == ["H1", "W1 H1", "H2", "W2 H2", "H3"]
    config, rows = run(weight_decays=(1.0, 1.0), feature_decay=1.0, steps=300)
    assert list(held(config, rows).values()) == [True, True]


def test_one_sample_a_class_is_at_its_mean_from_the_start():
    config, rows = run(per_class=1, steps=20, every=20, activation="linear")
    assert [claim for claim in held(config, rows) if "collapses to its class means" in claim] == []
    assert len(held(config, rows)) == 4
    (drawing,) = EXPERIMENT.draw(config, rows)
    drawing.figure.canvas.draw()


@pytest.mark.parametrize(
    "wrong", [{"weight_decays": (-1,)}, {"weight_decays": (0.1, math.nan)}, {"rate": math.inf}]
)
def test_settings_out_of_bounds_are_named(wrong: dict[str, Any]):
    with pytest.raises(InputError, match=next(iter(wrong))):
        check_settings(ExtendedConfig, wrong)


def test_figures_are_drawn(whole: tuple[ExtendedConfig, Results]):
    (drawing,) = EXPERIMENT.draw(*whole)
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert titles[:4] == titles[4:]
    assert drawing.figure.axes[5].get_legend_handles_labels()[1] == [
        "H1", "W1 H1, before ReLU", "H2",
    ]  # fmt: skip
    drawing.figure.canvas.draw()


def test_columns_are_in_the_rows(whole: tuple[ExtendedConfig, Results]):
    assert set(EXPERIMENT.columns) <= {key for row in whole[1] for key in row.as_line()}
