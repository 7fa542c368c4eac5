"""Null tests: claims hold by chance in at most 4 of 40 draws of values that mean nothing."""

from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import Any

import pytest
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.experiments.mse import (
    test_collapse,
    test_decomposition,
    test_loss_comparison,
    test_robustness,
)

from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.mse.collapse import PAPER
from ncscope_lab.experiments.mse.networks import EXCEPTIONS, MSETrainings
from ncscope_lab.observations import Observation, Results

NOISE = 0.05
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]

EXCEPTIONAL = MSETrainings(
    runs={name: run for name, run in PAPER.runs.items() if run.data in ("stl10", "mnist")}
)
SLOW = {name: {"nc1": (4, 3, 2, 1.9)} for name in EXCEPTIONS}
"""Courses of the networks that the paper excepts, whose NC1 falls late and little."""
MADE: dict[str, tuple[Experiment[Any], Any, Results]] = {
    name: (module.EXPERIMENT, module.CONFIG, module.results())
    for name, module in (
        ("collapse", test_collapse),
        ("decomposition", test_decomposition),
        ("loss-comparison", test_loss_comparison),
        ("robustness", test_robustness),
    )
}
"""Experiments with results for which all claims hold."""
MADE["exceptions"] = (
    test_collapse.EXPERIMENT,
    EXCEPTIONAL,
    test_collapse.results(SLOW, EXCEPTIONAL),
)
PARTS = ("mse_nc1", "mse_nc23", "mse_off_path")
"""Metrics that are compared with each other, and so exchanged with each other."""
PREMISES = (
    "every network has zero training error before the last epoch",
    "every perturbation of DeepFool changes the decision",
)
"""Ends of the claims on values that stay, which have a test of their own."""
Where = tuple[int, str]
"""Index of a row and key of a metric in it."""


def is_kept(row: Observation, key: str) -> bool:
    """Return whether a value stays: without zero training error nothing past it is judged."""
    return (row.split, key) == ("train", "accuracy") or key == "fooled"


def noisy(value: float, key: str, random: Random) -> float:
    """Change a value by a few per cent; shares stay shares."""
    changed = value * exp(random.gauss(0, NOISE))
    return min(changed, 1.0) if key in ("accuracy", "fooled") else changed


def places(rows: list[Observation], keys: Sequence[str]) -> list[Where]:
    """List the values of these metrics that do not stay."""
    return [
        (at, key)
        for at, row in enumerate(rows)
        for key in keys
        if key in row.values and not is_kept(row, key)
    ]


def exchanged(results: Results, random: Random) -> Results:
    """Every metric's values exchanged among epochs, runs and kinds of samples."""
    rows = list(results)
    keys = {key for row in rows for key in row.values}
    for group in [PARTS, *((key,) for key in sorted(keys.difference(PARTS)))]:
        where = places(rows, group)
        values = random.sample([float(rows[at][key]) for at, key in where], len(where))
        for (at, key), value in zip(where, values, strict=True):
            rows[at] = rows[at].with_values({key: noisy(value, key, random)})
    return Results(rows)


def untrained(results: Results, random: Random) -> Results:
    """Every value as before the first epoch, but for a few per cent."""
    first: dict[tuple[str, str], Observation] = {}
    rows = list(results)
    for at, key in places(rows, sorted({key for row in rows for key in row.values})):
        start = first.setdefault((rows[at].part, rows[at].split), rows[at])
        value = noisy(float(start[key]), key, random)
        rows[at] = rows[at].with_values({key: value})
    return Results(rows)


@pytest.mark.parametrize("name", MADE)
def test_the_results_bear_out_every_claim(name: str) -> None:
    experiment, config, real = MADE[name]
    assert not_held(experiment.judge(config, real)) == []


@pytest.mark.parametrize("change", [exchanged, untrained])
@pytest.mark.parametrize("name", MADE)
def test_claims_seldom_hold_by_chance(
    name: str, change: Callable[[Results, Random], Results]
) -> None:
    experiment, config, real = MADE[name]
    found = often_held(lambda random: experiment.judge(config, change(real, random)))
    assert not {text: n for text, n in found.items() if not text.endswith(PREMISES)}


@pytest.mark.parametrize("name", MADE)
def test_premises_seldom_hold_by_chance(name: str) -> None:
    """Training accuracies and fooling perturbations are exchanged among epochs and runs."""
    experiment, config, real = MADE[name]

    def changed(random: Random) -> Results:
        rows = list(real)
        for key in ("accuracy", "fooled"):
            own = [at for at, row in enumerate(rows) if key in row and is_kept(row, key)]
            values = random.sample([float(rows[at][key]) for at in own], len(own))
            for at, value in zip(own, values, strict=True):
                rows[at] = rows[at].with_values({key: noisy(value, key, random)})
        return Results(rows)

    found = often_held(lambda random: experiment.judge(config, changed(random)))
    assert not {text: n for text, n in found.items() if text.endswith(PREMISES)}
