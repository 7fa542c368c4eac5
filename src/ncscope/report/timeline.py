"""Measurements in order: by run, by split and by step."""

from collections.abc import Iterable

from ncscope.measurement.records import Measurement, ProbeRecord


def by_split(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements by split, in order of their steps, the training split first."""
    splits: dict[str, list[Measurement]] = {}
    for measurement in sorted(measurements, key=lambda measurement: measurement.step):
        splits.setdefault(measurement.split, []).append(measurement)
    return dict(sorted(splits.items(), key=lambda item: (item[0] != "train", item[0])))


def by_run(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements by run, in order of first appearance."""
    runs: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        runs.setdefault(measurement.run, []).append(measurement)
    return runs


def step_text(step: float) -> str:
    """Write a step: thousands apart, no more digits than needed.

    Example:
        >>> step_text(12000), step_text(0.25)
        ('12,000', '0.25')
    """
    return f"{int(step):,}" if float(step).is_integer() else f"{step:.6g}"


def moment(measurement: Measurement, unit: str) -> str:
    """Name the step of a measurement, for example ``epoch 1,200``."""
    return f"{unit} {step_text(measurement.step)}"


def layer_names(probes: Iterable[ProbeRecord]) -> list[str]:
    """Every layer's name, in forward order of first appearance."""
    return list(dict.fromkeys(record.layer for probe in probes for record in probe.layers))
