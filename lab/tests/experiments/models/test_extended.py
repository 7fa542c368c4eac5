"""The experiment on the extended model: separation of levels, activations, depths."""

from typing import Any

import pytest
from lab.tests.experiments.models.stories import EXTENDED as STORY
from lab.tests.experiments.models.stories import TWO_LEVELS
from lab.tests.observed import changed, experiment_results

from ncscope_lab.experiments.models.extended import (
    EXPERIMENT,
    ExtendedConfig,
    separate_levels,
)
from ncscope_lab.observations import Results
from ncscope_lab.quantities import Runs


def run(**given: Any) -> tuple[ExtendedConfig, Results]:
    config = TWO_LEVELS.model_copy(update=given)
    return config, experiment_results(EXPERIMENT, config)


def held(config: ExtendedConfig, rows: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in EXPERIMENT.judge(config, rows)}


def test_levels_that_move_together_are_not_separated():
    path = [row for row in STORY.tell() if row.part == "linear"]
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
