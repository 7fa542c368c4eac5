"""Null tests: of permuted or untrained results a claim of INFO holds in at most 4 of 40 draws."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import exp
from random import Random

import pytest

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.info import connectivity, grokking, training
from ncscope.lab.runs.recipe import Recipe
from tests.lab.papers.info.test_connectivity import TOLD, made_up
from tests.lab.papers.info.test_grokking import CONFIG, made
from tests.lab.papers.info.test_sweeps import over_training

DRAWS, MOST = 40, 4
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
RATIOS = ("mir", "hdr", "mir_batch", "hdr_batch")
KEYS = ("accuracy", *RATIOS)
SMALL = {module: module.RECIPE.scales["small"] for module in (connectivity, training)}


def exchanged(
    rows: Sequence[Observation],
    keys: Sequence[str],
    group: Callable[[Observation], object],
    random: Random,
) -> Results:
    """Exchange the values of each metric among the rows of a group, and change them a little."""
    found = list(rows)
    for key in keys:
        groups: dict[object, list[int]] = {}
        for index, row in enumerate(rows):
            if key in row:
                groups.setdefault(group(row), []).append(index)
        for own in groups.values():
            moved = [float(rows[index][key]) for index in own]
            random.shuffle(moved)
            for index, value in zip(own, moved, strict=True):
                new = value * exp(random.gauss(0, 0.02))
                found[index] = found[index].with_values({key: new})
    return Results(found)


def seldom(recipe: Recipe, config: object, draw: Callable[[Random], Results]) -> None:
    held = Counter(
        claim.text
        for seed in range(DRAWS)
        for claim in recipe.claims(config, draw(Random(seed)))
        if claim.held
    )
    assert max(held.values(), default=0) <= MOST, held


def test_training_of_permuted_epochs() -> None:
    rows = over_training(lambda share, values: {})
    seldom(
        training.RECIPE,
        SMALL[training],
        lambda random: exchanged(rows, KEYS, lambda row: row.part, random),
    )


def test_training_of_untrained_networks() -> None:
    rows = over_training(lambda share, values: {})
    start = {key: float(rows[0][key]) for key in KEYS}

    def drawn(random: Random) -> Results:
        return Results(
            row.with_values({key: start[key] * exp(random.gauss(0, 0.02)) for key in KEYS})
            for row in rows
        )

    seldom(training.RECIPE, SMALL[training], drawn)


def test_connectivity_of_permuted_networks_and_rates() -> None:
    rows = made_up(TOLD)
    trained = [row for row in rows if "omega" not in row]
    others = [row for row in rows if "omega" in row]
    seldom(
        connectivity.RECIPE,
        SMALL[connectivity],
        lambda random: Results([*trained, *exchanged(others, KEYS, lambda row: "all", random)]),
    )


def test_connectivity_of_untrained_networks() -> None:
    """All networks between untrained runs are alike, and guess."""
    rows = made_up(TOLD, training=dict.fromkeys(TOLD, 0.1))

    def drawn(random: Random) -> Results:
        flat = {"accuracy": 0.1, "mir": 0.05, "hdr": 0.9, "mir_batch": 0.3, "hdr_batch": 0.9}
        return Results(
            row.with_values(
                {key: flat[key] * exp(random.gauss(0, 0.02)) for key in KEYS if key in row}
            )
            for row in rows
        )

    seldom(connectivity.RECIPE, SMALL[connectivity], drawn)


def test_grokking_of_permuted_steps() -> None:
    """Accuracies are exchanged too, but those of training pairs are known by heart at step 100."""
    rows = list(made())

    def drawn(random: Random) -> Results:
        by_run = exchanged(rows, RATIOS, lambda row: (row.part, row.split), random)
        order = {part: random.sample(range(6), 6) for part in {row.part for row in rows}}
        accuracies = {
            part: [row["accuracy"] for row in rows if (row.part, row.split) == (part, "test")]
            for part in order
        }
        steps = {part: sorted({row.step for row in rows if row.part == part}) for part in order}
        return Results(
            row.with_values({"accuracy": accuracies[row.part][order[row.part][index]]})
            if row.split == "test"
            else row
            for row in by_run
            for index in [steps[row.part].index(row.step)]
        )

    seldom(grokking.RECIPE, CONFIG, drawn)


def test_grokking_of_untrained_transformers() -> None:
    rows = list(made())

    def drawn(random: Random) -> Results:
        values = {"accuracy": 0.04, "mir": 0.5, "hdr": 0.8, "mir_batch": 0.7, "hdr_batch": 0.8}
        return Results(
            row.with_values(
                {key: values[key] * exp(random.gauss(0, 0.02)) for key in KEYS if key in row}
            )
            for row in rows
        )

    seldom(grokking.RECIPE, CONFIG, drawn)
