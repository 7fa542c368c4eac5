"""Measurement of a surrogate model at a point, such as one of a descent."""

from collections.abc import Collection

import torch

from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.measurement.samples import measure_samples
from ncscope_lab.surrogates.problem import Point, Problem

GROUPS = ("nc1", "nc2", "nc3", "pfc")


def measure_solution(
    problem: Problem, point: Point, step: int, groups: Collection[str] = GROUPS
) -> Measurement:
    """Measure every level at one point, from shallow to deep.

    Args:
        problem: Surrogate model.
        point: Point to measure.
        step: Steps taken. Every step uses all samples, so a step is an epoch.
        groups: Groups of metrics; metrics of a classifier are measured only at the last level.

    Returns:
        Measurement with one record per level, and ``objective`` and ``gradient_norm`` of the
        point.
    """
    weight, bias = problem.head(point)
    levels, labels = problem.levels(point), problem.labels
    slopes = torch.cat([slope.reshape(-1) for slope in problem.gradient(point)])
    whole = {"objective": float(problem.objective(point)), "gradient_norm": float(slopes.norm())}
    records = []
    for name, features in levels.items():
        head = (weight, bias) if name == list(levels)[-1] else (None, None)
        available = [
            group for group in groups if head[0] is not None or group not in ("nc3", "nc4")
        ]
        record, _ = measure_samples(
            name, features.mT, labels, problem.num_classes, *head, groups=available
        )
        records.append(record)
    return Measurement(ModelRecord(tuple(records)), step, values=whole)
