"""Observations, measurements and heartbeats: flat lines, plain events, results."""

import json
import math
from dataclasses import replace

import pytest

from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope_lab.observations import (
    ITERATION,
    Observation,
    Recorded,
    Results,
    event_of,
    flatten,
    observations_of,
    plain_event,
    together,
)

NAN, INF = math.nan, math.inf
ONE = Observation(7, 2, "test", "last", "a part", {"nc1": 0.25, "name": "odd", "count": 3})


def layer(name: str, **metrics: float) -> LayerRecord:
    spectra = {"between": [2.0, 0.0], "total": [3.0, INF]}
    gram = [[1.0, -1.0], [-1.0, NAN]]
    return LayerRecord(name, metrics, ("a note",), 2, 4, 3, spectra, gram)


GEODESIC = GeodesicRecord([0.0, 1.0], [2.0, INF], [0.5, NAN], [0.5, 1.0], 1.0, 2.0)
PROBE = ModelRecord(
    (layer("stem", nc1=2.0), layer("low", nc1=NAN), layer("last", nc1=INF, cdnv=INF)),
    ("low", "last"),
    (0.0, 1.0),
    GEODESIC,
    0.75,
)
MEASURED = Measurement(PROBE, 2, "train", values={ITERATION: 46, "loss": 0.5})


def test_values_and_coordinates_are_read_by_key() -> None:
    assert (ONE["nc1"], ONE["name"], ONE["count"]) == (0.25, "odd", 3)
    coordinates = [ONE[key] for key in ("part", "step", "epoch", "split", "layer")]
    assert coordinates == ["a part", 7, 2, "test", "last"]
    assert "nc1" in ONE
    assert "layer" in ONE
    assert "nc2" not in ONE
    assert (ONE.get("nc1"), ONE.get("step"), ONE.get("nc2"), ONE.get("nc2", 0)) == (
        0.25,
        7,
        None,
        0,
    )
    with pytest.raises(KeyError):
        ONE["nc2"]


def test_further_values_make_a_copy() -> None:
    other = ONE.with_values({"nc1": 0.5, "nc2": 1.0})
    assert other == replace(ONE, values={"nc1": 0.5, "name": "odd", "count": 3, "nc2": 1.0})
    assert ONE["nc1"] == 0.25


def test_a_line_is_flat_and_makes_the_observation_again() -> None:
    line = ONE.as_line()
    assert list(line) == ["part", "step", "epoch", "split", "layer", "nc1", "name", "count"]
    assert line["layer"] == "last"
    assert Observation.of_line(line) == ONE
    assert Observation.of_line(dict(reversed(line.items()))) == ONE
    assert Observation.of_line({"nc1": 1.0}) == Observation(0, 0, values={"nc1": 1.0})


EVENTS: list[Recorded] = [
    ONE,
    Observation(0, 0, values={"nan": NAN, "inf": INF, "low": -INF}),
    MEASURED,
    Measurement(ModelRecord((LayerRecord("only", {}, (), 2, 4, 3),)), 0.5, "test", "run"),
]


@pytest.mark.parametrize("event", EVENTS, ids=["numbers", "not finite", "measurement", "bare"])
def test_a_plain_event_makes_the_event_again(event: Recorded) -> None:
    plain = plain_event(event)
    assert json.loads(json.dumps(plain)) == plain or "nan" in repr(plain)
    for given in (plain, json.loads(json.dumps(plain))):
        again = event_of(given)
        assert type(again) is type(event)
        assert repr(plain_event(again)) == repr(plain)
    assert "(" not in repr(plain)  # no tuple, which a file has no form for


def test_a_measurement_is_an_observation_a_layer() -> None:
    stem, low, last = observations_of(replace(MEASURED, run="a part"))
    assert [each.layer for each in (stem, low, last)] == ["stem", "low", "last"]
    for each in (stem, low, last):
        assert (each.step, each.epoch, each.split, each.part) == (46, 2, "train", "a part")
        assert each["loss"] == 0.5
        assert ITERATION not in each
    assert stem.values == {"loss": 0.5, "nc1": 2.0}
    assert (low["relative_position"], last["relative_position"]) == (0.0, 1.0)
    assert last["cdnv"] == INF
    assert last["straightness"] == 0.75
    assert "straightness" not in low


def test_without_iterations_the_step_is_that_of_the_measurement() -> None:
    first, *_ = observations_of(Measurement(PROBE, 30))
    assert (first.step, first.epoch) == (30, 30)


def test_flattened_events_keep_their_order() -> None:
    names = [each.layer for each in flatten([ONE, MEASURED, ONE])]
    assert names == ["last", "stem", "low", "last", "last"]


def test_results_know_the_part_and_hold_both_forms() -> None:
    results = Results()
    results.add(ONE, "first")
    results.add(MEASURED, "second")
    assert [each.part for each in results] == ["first", *["second"] * 3]
    assert len(results) == 4
    assert results[0] == replace(ONE, part="first")
    assert [each.layer for each in results[1:]] == ["stem", "low", "last"]
    assert results.measurements == [replace(MEASURED, run="second")]


def test_observations_of_results_are_as_they_are_read_back() -> None:
    """What is not finite is null in metrics.jsonl, and NaN is all that can be read of that."""
    results = Results()
    results.add(MEASURED, "part")
    assert math.isnan(float(results[2]["nc1"]))
    assert math.isnan(float(results[2]["cdnv"]))
    assert results.measurements[0].model_record.layers[-1].metrics["cdnv"] == INF


def test_results_stand_together_in_order() -> None:
    first, second = Results([ONE]), Results([replace(ONE, step=9)], [MEASURED])
    whole = together([first, second])
    assert [each.step for each in whole] == [7, 9]
    assert whole.measurements == [MEASURED]
    assert (len(first), len(second)) == (1, 1)
