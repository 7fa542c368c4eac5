"""Robustness past zero error and under either loss: claims both ways, and training undisturbed."""

from functools import partial

import pytest
from lab.tests.experiments.mse.histories import Columns, history_of, small, tiny
from lab.tests.observed import gathered, results_of

from ncscope_lab.experiments.mse.networks import BOTH
from ncscope_lab.experiments.mse.robustness import (
    ATTACKED,
    EXPERIMENT,
    MSERobustness,
    measure_robustness,
)
from ncscope_lab.observations import Observation, Results
from ncscope_lab.runs.resources import Resources
from ncscope_lab.training.supervised import training_events

CONFIG = MSERobustness(runs=small(*BOTH).runs)
FOOLED = {"fooled": (1, 1, 1, 1)}
GROWING = {"robustness": (0.1, 0.2, 0.3, 0.6)} | FOOLED
LOWER = {"robustness": (0.1, 0.1, 0.2, 0.3)} | FOOLED


def results(mse: Columns = GROWING, last: Columns = GROWING, train: Columns = FOOLED) -> Results:
    """Of three networks under MSE, the last with other numbers, and under cross-entropy."""
    found = []
    for name, one in CONFIG.runs.items():
        own = last if "warped" in name else mse
        chosen = own if one.loss == "mse" else LOWER
        found += history_of(name, train, attacked=chosen)
    return Results(found)


def failing(found: Results) -> set[int]:
    return {index for index, one in enumerate(EXPERIMENT.judge(CONFIG, found)) if not one.held}


LEAST = {"robustness": (0.1, 0.2, 0.25, 0.2)} | FOOLED
LITTLE = {"robustness": (0.1, 0.2, 0.58, 0.6)} | FOOLED


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (results(), set()),
        (results(last=LEAST), set()),  # one network may lose
        (results(train={"accuracy": (0, 0, 0, 0.9)}), {0, 1}),
        (results(last=GROWING | {"fooled": (0.9, 0.9, 1, 1)}), set()),
        (results(last=GROWING | {"fooled": (1, 1, 1, 0.99)}), {0}),
        (results(mse=LITTLE), {1}),
        (results(mse=GROWING | {"robustness": (0.1, 0.2, 0.7, 0.6)}), {1}),
        (results(GROWING | {"robustness": (0.1, 0.1, 0.1, 0.31)}), {2}),
    ],
)
def test_each_claim_both_ways(found: Results, expected: set[int]) -> None:
    assert len(EXPERIMENT.judge(CONFIG, found)) == 3
    assert failing(found) == expected


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
