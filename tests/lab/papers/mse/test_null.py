"""Null tests: claims hold by chance in at most 4 of 40 draws of values that mean nothing."""

from collections import Counter
from collections.abc import Callable
from math import exp
from random import Random
from typing import Any

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.mse.collapse import GROUPS
from ncscope.lab.papers.mse.training import MSETraining, paper_runs
from ncscope.lab.runs.recipe import Recipe
from tests.lab.papers.mse import (
    test_collapse,
    test_decomposition,
    test_loss_comparison,
    test_robustness,
)

DRAWS, MOST = 40, 4
NOISE = 0.05
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]

EXCEPTIONAL = MSETraining(
    runs={n: r for n, r in paper_runs(("mse",), GROUPS).items() if r.data in ("stl10", "mnist")}
)
MADE: dict[str, tuple[Recipe, Any, Results]] = {
    "collapse": (test_collapse.RECIPE, test_collapse.CONFIG, test_collapse.results()),
    "exceptions": (test_collapse.RECIPE, EXCEPTIONAL, test_collapse.results({}, EXCEPTIONAL)),
    "decomposition": (
        *(test_decomposition.RECIPE, test_decomposition.CONFIG, test_decomposition.results()),
    ),
    "loss-comparison": (
        *(test_loss_comparison.RECIPE, test_loss_comparison.CONFIG, test_loss_comparison.results()),
    ),
    "robustness": (test_robustness.RECIPE, test_robustness.CONFIG, test_robustness.results()),
}
"""Recipes with results for which all claims hold."""
PARTS = ("mse_nc1", "mse_nc23", "mse_off_path")
"""Metrics that are compared with each other, and so exchanged with each other."""


def noisy(row: Observation, key: str, value: float, random: Random) -> Observation:
    """The row with another value, but for a few per cent; shares stay shares."""
    changed = value * exp(random.gauss(0, NOISE))
    return row.with_values({key: min(changed, 1.0) if key in ("accuracy", "fooled") else changed})


def exchanged(results: Results, random: Random) -> Results:
    """Every metric's values exchanged among epochs, runs and kinds of samples."""
    rows = list(results)
    keys = {key for row in rows for key in row.values}
    for group in [PARTS, *((key,) for key in sorted(keys.difference(PARTS)))]:
        places = [(at, key) for at, row in enumerate(rows) for key in group if key in row]
        values = [float(rows[at][key]) for at, key in places]
        random.shuffle(values)
        for (at, key), value in zip(places, values, strict=True):
            rows[at] = noisy(rows[at], key, value, random)
    return Results(rows)


def untrained(results: Results, random: Random) -> Results:
    """Every value as before the first epoch, but for a few per cent."""
    first: dict[tuple[str, str], Observation] = {}
    rows = []
    for row in results:
        start = first.setdefault((row.part, row.split), row)
        for key in list(row.values):
            row = noisy(row, key, float(start[key]), random)
        rows.append(row)
    return Results(rows)


@pytest.mark.parametrize("change", [exchanged, untrained])
@pytest.mark.parametrize("name", MADE)
def test_claims_seldom_hold_by_chance(
    name: str, change: Callable[[Results, Random], Results]
) -> None:
    recipe, config, real = MADE[name]
    held = Counter(
        claim.text
        for draw in range(DRAWS)
        for claim in recipe.claims(config, change(real, Random(draw)))
        if claim.held
    )
    assert max(held.values(), default=0) <= MOST, held
