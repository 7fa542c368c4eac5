"""The straight line: its ends, and from where metrics fall."""

import pytest
from lab.tests.observed import experiment_results

from ncscope_lab.experiments.models.geodesic import EXPERIMENT, GeodesicConfig
from ncscope_lab.observations import Results

SMALL = {"num_classes": 4, "dim": 6, "per_class": 10, "points": 21}


def run(**settings: object) -> tuple[GeodesicConfig, Results]:
    config = GeodesicConfig(**(SMALL | settings))
    assert len(EXPERIMENT.parts(config)) == 1
    return config, experiment_results(EXPERIMENT, config)


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
