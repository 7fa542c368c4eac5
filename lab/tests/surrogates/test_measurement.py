"""Measurement of a point: of which level, with which metrics."""

import math

import pytest
import torch
from torch import Tensor

from ncscope_lab.observations import flatten
from ncscope_lab.surrogates.descent import gradient_descent
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.problem import Point
from ncscope_lab.surrogates.ufm import UFM

MODEL = UFM(3, 5, 4, 0.05, 0.05)


class TwoLevels(UFM):
    """The same features twice, the first time doubled."""

    def levels(self, point: Point) -> dict[str, Tensor]:
        return {"first": 2 * point[1], "last": point[1]}


def begin() -> Point:
    return MODEL.start(torch.Generator().manual_seed(0))


def test_measurements_are_the_metrics_of_the_descent() -> None:
    points = list(gradient_descent(MODEL, begin(), 0.1, [0, 10, 40]))
    rows = list(flatten([measure_solution(MODEL, point, step) for step, point in points]))
    assert [(row.step, row.epoch) for row in rows] == [(0, 0), (10, 10), (40, 40)]
    for row, (_, point) in zip(rows, points, strict=True):
        assert (row.split, row.layer) == ("train", "H")
        assert row["objective"] == float(MODEL.objective(point))
        slopes = [slope.square().sum() for slope in MODEL.gradient(point)]
        assert math.isclose(float(row["gradient_norm"]), float(sum(slopes)) ** 0.5, rel_tol=1e-12)
        weight, features = point
        means = features.unflatten(1, (3, 4)).mean(2)
        alignment = (weight / weight.norm() - means.mT / means.norm()).norm()
        assert math.isclose(float(row["nc3_alignment"]), float(alignment), rel_tol=1e-10)


def test_the_classifier_is_measured_at_the_last_level_only() -> None:
    measurement = measure_solution(TwoLevels(3, 5, 4, 0.05, 0.05), begin(), 7)
    first, last = measurement.model_record.layers
    assert (first.layer, last.layer, measurement.step) == ("first", "last", 7)
    shallow, deep = flatten([measurement])
    assert shallow["objective"] == deep["objective"] == measurement.values["objective"]
    assert first.metrics["nc1"] == pytest.approx(last.metrics["nc1"])
    assert "nc3_alignment" not in first.metrics
    assert "nc3_alignment" in last.metrics


def test_only_the_groups_asked_for() -> None:
    (record,) = measure_solution(MODEL, begin(), 0, groups=("nc2",)).model_record.layers
    assert "nc2_of" in record.metrics
    assert "nc1" not in record.metrics
