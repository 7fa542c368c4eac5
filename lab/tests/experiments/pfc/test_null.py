"""Null tests: of permuted or untrained results a claim of PFC holds in at most 4 of 40 draws."""

from collections.abc import Callable
from dataclasses import replace
from math import exp
from random import Random

import pytest
from lab.tests.experiments.chance import not_held, often_held
from lab.tests.experiments.pfc.courses import EXPERIMENT, SMALL, made

from ncscope.measurement.records import GeodesicRecord
from ncscope_lab.observations import Observation, Results

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_signatures")]
CURVES = ("pfc1", "pfc2", "pfc3")
KEYS = (*CURVES, "straightness", "remaining_pfc1", "energy_constant")


def with_lines(results: Results, change: Callable[[list[float]], list[float]]) -> Results:
    """The results with the curves of every straight line changed."""

    def changed(line: GeodesicRecord) -> GeodesicRecord:
        return replace(
            line, **{key: change(getattr(line, key)) for key in ("pfc1", "pfc2", "pfc3")}
        )

    measurements = [
        replace(
            each,
            model_record=replace(each.model_record, geodesic=changed(each.model_record.geodesic)),
        )
        for each in results.measurements
        if each.model_record.geodesic is not None
    ]
    return Results(list(results), measurements)


def permuted(random: Random) -> Results:
    """Values exchanged among epochs, layers, seeds, and runs with and without decay.

    Each line's points are exchanged, and each cosine is that of class means in a random order.
    """
    results = made()
    rows = [
        row.with_values({"alignment_cosine": random.gauss(0, 0.3)})
        if "alignment_cosine" in row
        else row
        for row in results
    ]
    for network in ("digits", "patterns", "mnist-5k"):
        for key in KEYS:
            own = [i for i, row in enumerate(rows) if row.part.startswith(network) and key in row]
            moved = [rows[index][key] for index in own]
            random.shuffle(moved)
            for index, value in zip(own, moved, strict=True):
                rows[index] = rows[index].with_values({key: value})
    return with_lines(
        Results(rows, results.measurements), lambda curve: random.sample(curve, len(curve))
    )


def place(row: Observation, key: str) -> tuple[str, ...]:
    return (row.part, key, row.layer) if key == "energy_constant" else (row.part, key)


def untrained(random: Random) -> Results:
    """All values as before training, of PFC1-3 in the first layer, up to a few per cent."""
    results = made()
    starts: dict[tuple[str, ...], float] = {}
    for row in results:
        for key in KEYS:
            if key in row:
                starts.setdefault(place(row, key), float(row[key]))

    def changed(row: Observation) -> Observation:
        own = [key for key in KEYS if key in row]
        return row.with_values({key: starts[place(row, key)] * near() for key in own})

    def near() -> float:
        return exp(random.gauss(0, 0.05)) * 0.9

    rows = Results(map(changed, results), results.measurements)
    return with_lines(rows, lambda curve: [curve[0] * near() for _ in curve])


@pytest.mark.parametrize("drawn", [permuted, untrained])
def test_claims_seldom_hold_of_nothing(drawn: Callable[[Random], Results]) -> None:
    assert often_held(lambda random: EXPERIMENT.judge(SMALL, drawn(random))) == {}


def test_the_results_bear_out_every_claim() -> None:
    assert not_held(EXPERIMENT.judge(SMALL, made())) == []
