"""What TensorBoard reads back of a run's rows."""

import math

import pytest

from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope_lab.observations import ITERATION, Observation
from ncscope_lab.runs import event_log
from ncscope_lab.runs.event_log import EventLog

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

LAST = Observation(3, 1, layer="last", values={"nc1": 0.25, "label": "odd"})


def read(folder):
    events = event_accumulator.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_numbers_stand_by_split_layer_and_key(tmp_path):
    for start in (0.5, 0.25):  # the second start replaces the first
        log = EventLog(tmp_path / "events")
        log.add([LAST.with_values({"nc1": start, "nc2": math.nan})])
    assert read(tmp_path / "events") == {"train/last/nc1": [(3, 0.25)]}


def test_points_of_a_curve_are_no_history(tmp_path):
    """A measurement is logged layer by layer; its geodesic and its spectra are not."""
    geodesic = GeodesicRecord([0.5], [7.0], [7.0], [7.0], alignment=7.0, transport_cost=7.0)
    spectra = {"between": [7.0], "total": [7.0]}
    layers = tuple(
        LayerRecord(name, {"nc1": nc1}, (), num_classes=2, num_samples=4, dim=3, spectra=spectra)
        for name, nc1 in (("stem", 0.5), ("last", 0.25))
    )
    probe = ModelRecord(layers, geodesic=geodesic)
    log = EventLog(tmp_path / "events")
    log.add([Measurement(probe, step=1, values={ITERATION: 3})])
    expected = {"train/stem/nc1": [(3, 0.5)], "train/last/nc1": [(3, 0.25)]}
    assert read(tmp_path / "events") == expected


def test_without_tensorboard_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "find_spec", lambda name: None)
    log = EventLog(tmp_path / "events")
    log.add([LAST])
    assert not (tmp_path / "events").exists()
