"""The straight line: rows, claims that can fail, a figure."""

import math

import pytest
from lab.tests.observed import experiment_results

from ncscope_lab.experiments.models.geodesic import EXPERIMENT, GeodesicConfig
from ncscope_lab.observations import Results

SMALL = {"num_classes": 4, "dim": 6, "per_class": 10, "points": 21}


def run(**settings: object) -> tuple[GeodesicConfig, Results]:
    config = GeodesicConfig(**(SMALL | settings))
    assert len(EXPERIMENT.parts(config)) == 1
    return config, experiment_results(EXPERIMENT, config)


@pytest.mark.parametrize("orientation", ["nearest", "random", "opposite"])
def test_theorems_hold_on_the_line(orientation: str):
    config, rows = run(orientation=orientation)
    first, second, _ = EXPERIMENT.judge(config, rows)
    assert first.held
    assert second.held
    assert rows[-1]["pfc1"] < 1e-20
    assert rows[-1]["pfc3"] == 1
    (drawing,) = EXPERIMENT.draw(config, rows)
    assert len(drawing.figure.axes) == 3


def test_nearest_is_aligned_and_opposite_is_its_reverse():
    _, near = run()
    _, far = run(orientation="opposite")
    assert near[0]["alignment"] > 0
    assert near[0]["alignment"] == pytest.approx(-far[0]["alignment"])
    assert far[0]["pfc1_falls_from"] > 0 == near[0]["pfc1_falls_from"]


def test_metrics_rise_before_and_fall_after_the_stated_place():
    _, rows = run(orientation="opposite", points=201)
    for key in ("pfc1", "pfc2"):
        after = [row[key] for row in rows if row["t"] >= row[f"{key}_falls_from"]]
        before = [row[key] for row in rows if row["t"] < row[f"{key}_falls_from"]]
        assert after == sorted(after, reverse=True)
        assert before[-2] < before[-1]


def test_spread_is_left_in_the_last_layer():
    config, rows = run(spread=0.5)
    assert rows[-1]["pfc1"] > 0.01
    assert [claim.text for claim in EXPERIMENT.judge(config, rows)] == [
        "PFC3 does not fall along the line"
    ]


def test_the_largest_settings_can_be_run():
    config, rows = run(size=1e6, spread=1e6)
    assert all(math.isfinite(row["pfc1"]) for row in rows)
    (drawing,) = EXPERIMENT.draw(config, rows)
    drawing.figure.canvas.draw()
