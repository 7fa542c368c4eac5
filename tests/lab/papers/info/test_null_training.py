"""Null tests: of permuted or untrained results a claim of INFO holds in at most 4 of 40 draws.

Every test begins with results of which all claims hold. Training accuracies that claims take for
granted stay as they are, because without them a claim is undecided whatever the other values.
"""

from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import Any

import pytest

from ncscope.lab.experiments.info import training
from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.info import connectivity, grokking
from ncscope.lab.runs.recipe import Recipe
from ncscope.report.claims import Claim
from tests.lab.papers.chance import not_held, often_held
from tests.lab.papers.info.test_connectivity import TOLD, made_up
from tests.lab.papers.info.test_grokking import CONFIG, made
from tests.lab.papers.info.test_sweeps import over_training

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
RATIOS = ("mir", "hdr", "mir_batch", "hdr_batch")
KEYS = ("accuracy", *RATIOS)
SMALL = {
    connectivity: connectivity.RECIPE.scales["small"],
    training: training.EXPERIMENT.scales["small"],
}


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


def trained() -> Results:
    """Results of `info/training` of which all claims hold, in batches as exactly."""
    rows = over_training(lambda share, values: {})
    return Results(
        row.with_values({"mir_batch": row["mir"], "hdr_batch": row["hdr"]}) for row in rows
    )


@pytest.mark.parametrize(
    ("recipe", "config", "results"),
    [
        (training.EXPERIMENT, SMALL[training], trained),
        (connectivity.RECIPE, SMALL[connectivity], lambda: made_up(TOLD)),
        (grokking.RECIPE, CONFIG, made),
    ],
    ids=lambda given: getattr(given, "id", ""),
)
def test_the_results_bear_out_every_claim(
    recipe: Recipe, config: Any, results: Callable[[], Results]
) -> None:
    assert not_held(recipe.judge(config, results())) == []


def test_training_of_permuted_epochs() -> None:
    rows = list(trained())

    def claims(random: Random) -> list[Claim]:
        drawn = exchanged(rows, KEYS, lambda row: row.part, random)
        return training.EXPERIMENT.judge(SMALL[training], drawn)

    assert often_held(claims) == {}


def test_training_of_untrained_networks() -> None:
    rows = trained()
    start = {key: float(rows[0][key]) for key in KEYS}

    def claims(random: Random) -> list[Claim]:
        drawn = Results(
            row.with_values({key: start[key] * exp(random.gauss(0, 0.02)) for key in KEYS})
            for row in rows
        )
        return training.EXPERIMENT.judge(SMALL[training], drawn)

    assert often_held(claims) == {}


def test_connectivity_of_permuted_networks_and_rates() -> None:
    rows = made_up(TOLD)
    runs = [row for row in rows if "omega" not in row]
    others = [row for row in rows if "omega" in row]

    def claims(random: Random) -> list[Claim]:
        drawn = [*runs, *exchanged(others, KEYS, lambda row: "all", random)]
        return connectivity.RECIPE.judge(SMALL[connectivity], Results(drawn))

    assert often_held(claims) == {}


def test_connectivity_of_untrained_networks_between_trained_runs() -> None:
    """All networks between the runs are alike, and guess.

    So the claim that accuracy falls to random guessing is true of them: the test of permuted
    networks and rates is its null test.
    """
    flat = {"accuracy": 0.1, "mir": 0.05, "hdr": 0.9, "mir_batch": 0.3, "hdr_batch": 0.9}

    def changed(row: Observation, random: Random) -> Observation:
        values = {key: flat[key] * exp(random.gauss(0, 0.02)) for key in KEYS if key in row}
        return row.with_values(values) if 0 < float(row.get("omega", 0)) < 1 else row

    def claims(random: Random) -> list[Claim]:
        drawn = Results(changed(row, random) for row in made_up(TOLD))
        return connectivity.RECIPE.judge(SMALL[connectivity], drawn)

    assert [text for text in often_held(claims) if "random guessing" not in text] == []


def test_grokking_of_permuted_steps() -> None:
    """Accuracies are exchanged too, but those of training pairs are known by heart at step 100."""
    rows = list(made())

    def claims(random: Random) -> list[Claim]:
        by_run = exchanged(rows, RATIOS, lambda row: (row.part, row.split), random)
        order = {part: random.sample(range(6), 6) for part in {row.part for row in rows}}
        accuracies = {
            part: [row["accuracy"] for row in rows if (row.part, row.split) == (part, "test")]
            for part in order
        }
        steps = {part: sorted({row.step for row in rows if row.part == part}) for part in order}
        drawn = Results(
            row.with_values({"accuracy": accuracies[row.part][order[row.part][index]]})
            if row.split == "test"
            else row
            for row in by_run
            for index in [steps[row.part].index(row.step)]
        )
        return grokking.RECIPE.judge(CONFIG, drawn)

    assert often_held(claims) == {}


def test_grokking_of_permuted_ratios() -> None:
    """The accuracies of runs that learn the rule, with ratios exchanged among steps."""
    rows = list(made())

    def claims(random: Random) -> list[Claim]:
        drawn = exchanged(rows, RATIOS, lambda row: (row.part, row.split), random)
        return grokking.RECIPE.judge(CONFIG, drawn)

    assert [text for text in often_held(claims) if "MIR" in text or "HDR" in text] == []


def test_grokking_of_untrained_ratios() -> None:
    """The accuracies of runs that learn the rule, with ratios that stay as before training."""
    flat = {"mir": 0.5, "hdr": 0.8, "mir_batch": 0.7, "hdr_batch": 0.8}

    def claims(random: Random) -> list[Claim]:
        drawn = Results(
            row.with_values(
                {key: flat[key] * exp(random.gauss(0, 0.02)) for key in RATIOS if key in row}
            )
            for row in made()
        )
        return grokking.RECIPE.judge(CONFIG, drawn)

    found = often_held(claims)
    assert [text for text in found if "MIR" in text or "HDR" in text] == []
    assert len(found) == 3  # the claims on accuracies, which are those of the runs


def test_grokking_of_untrained_accuracies() -> None:
    """Training pairs are known by heart, and held-out accuracies stay as before training."""

    def claims(random: Random) -> list[Claim]:
        drawn = Results(
            row.with_values({"accuracy": 0.04 * exp(random.gauss(0, 0.02))})
            if row.split == "test"
            else row
            for row in made()
        )
        return grokking.RECIPE.judge(CONFIG, drawn)

    # True of them: the test of permuted steps is the null test of this claim.
    kept = "held-out accuracy exceeds chance by less"
    of_accuracy = [text for text in often_held(claims) if "MIR" not in text and "HDR" not in text]
    assert [text for text in of_accuracy if kept not in text] == []
