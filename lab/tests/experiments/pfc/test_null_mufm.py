"""Null tests of MUFM: claims seldom hold of results exchanged or of random features.

The results come from a short run on little data. Its descent on MUFM, unlike the real one, does not
arrive at the minimum, so the objective is set to one that does. Both scalings share the claims'
code; the plain one is tested, because with the printed scaling no descent ends within the steps of
the real run either.
"""

from collections.abc import Callable, Iterator
from math import exp
from random import Random

import pytest
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.observed import results_of

from ncscope_lab.experiments.pfc import mufm
from ncscope_lab.experiments.pfc.mufm import DISTANCE, EXPERIMENT, PFC, PFCConfig
from ncscope_lab.observations import Observation, Results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
CONFIG = PFCConfig(
    seeds=5, steps=2500, every=2500, transports=(1e-6, 0.03), small_transports=(1e-9, 1e-6)
)
EXCHANGED = (
    ("pfc1", "data_pfc1"),
    ("pfc2", "data_pfc2"),
    ("pfc3",),
    (DISTANCE,),
    ("objective",),
    ("unread_norm",),
)
"""Metrics that are compared with each other, and so exchanged with each other."""
SMALL = {"K": 3, "D": 6, "N": 20, "WEIGHT_DECAY": 0.02, "RATE": 2.0, "SCALINGS": ("plain",)}


@pytest.fixture(scope="module", autouse=True)
def _small_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(mufm, name, value)
        yield


@pytest.fixture(scope="module")
def real(_small_model: None) -> Results:
    results = results_of(*EXPERIMENT.parts(CONFIG))
    least = {
        row.part.removeprefix("minima, "): float(row["objective"])
        for row in results
        if row.get("model") == "MUFM"
    }

    def arrived(row: Observation) -> Observation:
        model, draw = row.part.split(", ", 1)
        if model != "MUFM" or not row.step:
            return row
        return row.with_values({"objective": 1.001 * least[draw]})

    return Results(map(arrived, results))


def test_the_results_bear_out_every_claim(real: Results) -> None:
    claims = EXPERIMENT.judge(CONFIG, real)
    assert len(claims) == 19
    assert not_held(claims) == []


def moved(results: Results, random: Random) -> Results:
    """Each metric's values exchanged among steps, models, draws and prices.

    Zeros, such as the distance of the data from itself, stay: they have no ratio.
    """
    rows = list(results)
    for group in EXCHANGED:
        where = [
            (at, key)
            for at, row in enumerate(rows)
            for key in group
            if key in row and row[key] != 0
        ]
        values = random.sample([float(rows[at][key]) for at, key in where], len(where))
        for (at, key), value in zip(where, values, strict=True):
            rows[at] = rows[at].with_values({key: value})
    return Results(rows)


def untrained(results: Results, random: Random) -> Results:
    """All models' features as at the start of descent, but for a few per cent."""
    return at_the_start(results, random, lambda row: row.get("model") != "data")


def untrained_with_data(results: Results, random: Random) -> Results:
    """The features as at the start where they are tied to data; without data they collapse."""
    free = ("UFM",)
    return at_the_start(
        results,
        random,
        lambda row: row.get("model", row.part.split(",")[0]) not in (*free, "data"),
    )


def at_the_start(
    results: Results, random: Random, chosen: Callable[[Observation], bool]
) -> Results:
    start = next(row for row in results if row.part.startswith("UFM"))
    first = next(row for row in results if row.part.startswith("MUFM") and row.layer == "H")
    first = first.with_values({"unread_norm": start["unread_norm"]})
    keys = (*PFC, DISTANCE, "objective", "unread_norm")

    def changed(row: Observation) -> Observation:
        if not chosen(row):
            return row
        own = {key: float(first[key]) * exp(random.gauss(0, 0.05)) for key in keys if key in row}
        return row.with_values(own)

    return Results(map(changed, results))


@pytest.mark.parametrize("change", [moved, untrained, untrained_with_data])
def test_claims_seldom_hold_of_nothing(
    real: Results, change: Callable[[Results, Random], Results]
) -> None:
    found = often_held(lambda random: EXPERIMENT.judge(CONFIG, change(real, random)))
    of_free = ("takes UFM", "shrink UFM")
    kept = [
        text
        for text in found
        if change is untrained_with_data and any(words in text for words in of_free)
    ]
    assert list(found) == kept
