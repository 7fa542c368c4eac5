"""What TensorBoard reads back of a run's rows."""

import pytest

from ncscope.lab.runs import event_log
from ncscope.lab.runs.event_log import EventLog

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

ROW = {"step": 3, "epoch": 1, "split": "train", "layer": "last", "nc1": 0.25}


def read(folder):
    events = event_accumulator.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_numbers_stand_by_split_layer_and_key(tmp_path):
    for start in (0.5, 0.25):  # the second start replaces the first
        log = EventLog(tmp_path / "events")
        log.add([{}, ROW | {"nc1": start}])
    assert read(tmp_path / "events") == {"train/last/nc1": [(3, 0.25)]}


def test_points_of_a_curve_are_no_history(tmp_path):
    log = EventLog(tmp_path / "events")
    curves = [ROW | {"split": "line", "t": 0.5}, ROW | {"split": "spectrum", "index": 1}]
    log.add([*curves, ROW])
    assert list(read(tmp_path / "events")) == ["train/last/nc1"]


def test_without_tensorboard_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "find_spec", lambda name: None)
    log = EventLog(tmp_path / "events")
    log.add([ROW])
    assert not (tmp_path / "events").exists()
