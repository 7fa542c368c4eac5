"""Robustness past zero error and under either loss: claims both ways, and training undisturbed."""

from functools import partial

import pytest
from lab.tests.experiments.mse.histories import small, tiny
from lab.tests.observed import gathered, results_of

from ncscope_lab.experiments.mse.networks import BOTH
from ncscope_lab.experiments.mse.robustness import (
    ATTACKED,
    EXPERIMENT,
    MSERobustness,
    measure_robustness,
)
from ncscope_lab.observations import Observation
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.supervised import training_events

CONFIG = MSERobustness(runs=small(*BOTH).runs)


@pytest.mark.slow
def test_it_runs_and_training_goes_on_as_if_not_attacked() -> None:
    config = tiny(CONFIG).model_copy(update={"images": 10})
    found = results_of(*EXPERIMENT.parts(config))
    assert [row.epoch for row in found if row.split == ATTACKED] == [0, 1, 0, 1]
    assert all(float(row["robustness"]) > 0 for row in found if row.split == ATTACKED)
    name, one = next(iter(config.runs.items()))
    undisturbed = list(gathered(training_events(one, Resources()), name))
    disturbed = [row for row in found if row.part == name and row.split != ATTACKED]
    assert disturbed == undisturbed


def test_the_paper_attacks_a_hundred_images_of_the_same_choice_every_time() -> None:
    assert EXPERIMENT.scales["paper"].images == 100
    _, one = next(iter(tiny(CONFIG).runs.items()))
    chosen: list[Observation] = []

    def twice(bench: object, end: object) -> list[Observation]:
        for _ in range(2):
            chosen.extend(measure_robustness(bench, end, 10))  # type: ignore[arg-type]
        return []

    next(training_events(one, Resources(), partial(twice)))
    assert chosen[0] == chosen[1]
