"""Texts and tables of a page: first and last values, all values, notes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import LayerRecord, Measurement, ProbeRecord
from ncscope.report.labels import (
    Label,
    by_group,
    collapsed_at,
    distinct_labels,
    key_in,
    key_metrics,
    label_of,
    value_of,
)
from ncscope.report.names import quoted
from ncscope.report.numbers import classes_text, interval_of, interval_title, listed, typeset
from ncscope.report.timeline import by_run, by_split, moment, step_text


@dataclass(frozen=True)
class Change:
    """A metric of the last layer on one split, at the first and at the last measurement."""

    first: str
    last: str
    trend: str


@dataclass(frozen=True)
class SummaryRow:
    """One metric of the summary: a change for each split, or None if it was not measured."""

    metric: Label
    collapsed: str
    changes: list[Change | None]


@dataclass(frozen=True)
class RunChanges:
    """First and last values of one run, with a row for each metric and a column for each split."""

    run: str
    splits: list[str]
    rows: list[SummaryRow]


@dataclass(frozen=True)
class Cell:
    """A metric at one layer, as text; empty where it is unknown."""

    value: str
    interval: str = ""
    chance: str = ""
    interval_title: str = ""


@dataclass(frozen=True)
class DetailRow:
    """One metric of the details table, with its value at collapse and at each layer."""

    metric: Label
    collapsed: str
    cells: list[Cell]


@dataclass(frozen=True)
class Details:
    """All metrics of one measurement, by group, and notes with the layers that they concern."""

    caption: str
    layers: list[LayerRecord]
    groups: dict[str, list[DetailRow]]
    notes: list[str]

    @property
    def interval_title(self) -> str:
        """Heading of the intervals."""
        return interval_title(self.layers[-1])

    def any(self, part: str) -> bool:
        """Return whether a cell has a part: ``interval`` or ``chance``."""
        cells = (cell for rows in self.groups.values() for row in rows for cell in row.cells)
        return any(getattr(cell, part) for cell in cells)


def changes_by_run(measurements: Sequence[Measurement]) -> list[RunChanges]:
    """Compare the last layer's key metrics at the first and last step, run by run."""
    return [_run_changes(name, of_run) for name, of_run in by_run(measurements).items()]


def _run_changes(name: str, measurements: Sequence[Measurement]) -> RunChanges:
    splits = by_split(measurements)
    rows = []
    measured = {key for each in measurements for key in each.probe.layers[-1].metrics}
    for metric in map(label_of, key_metrics(measured)):
        changes = [_change(metric, each[0].probe, each[-1].probe) for each in splits.values()]
        if any(changes):
            last = measurements[-1].probe.layers[-1]
            rows.append(SummaryRow(metric, collapsed_text(metric, last), changes))
    return RunChanges(name, list(splits), rows)


def _change(metric: Label, first: ProbeRecord, last: ProbeRecord) -> Change | None:
    start = value_of(first.layers[-1].metrics, metric.key)
    end = value_of(last.layers[-1].metrics, metric.key)
    if start is None or end is None:
        return None
    return Change(typeset(start), typeset(end), _trend(metric, start, end))


def _trend(metric: Label, start: float, end: float) -> str:
    if start == end or not metric.better:
        return ""
    rose = end > start
    if not rose and not end < start:
        return ""
    if metric.two_sided:
        return "↑" if rose else "↓"
    towards = rose == (metric.better == "high")
    arrow = "↑" if rose else "↓"
    return f"{arrow} {'towards' if towards else 'away from'} collapse"


Write = Callable[[float, int], str]
"""Function that writes a number with some significant digits."""


def details(probe: ProbeRecord, caption: str, write: Write = typeset) -> Details:
    """Collect all metrics of one measurement at each layer, and its notes."""
    metrics = distinct_labels(key for record in probe.layers for key in record.metrics)
    groups = {
        title: [_detail_row(probe, metric, write) for metric in group]
        for title, group in by_group(metrics).items()
    }
    return Details(caption, list(probe.layers), groups, notes(probe))


def _detail_row(probe: ProbeRecord, metric: Label, write: Write) -> DetailRow:
    cells = [cell_of(record, metric, write) for record in probe.layers]
    return DetailRow(metric, collapsed_text(metric, probe.layers[-1], write), cells)


def cell_of(record: LayerRecord, metric: Label, write: Write = typeset) -> Cell:
    """Write a metric at one layer with its standard error, interval and value at chance level."""
    key = key_in(record.metrics, metric.key)
    if key is None:
        return Cell("")
    value, ends = write(record.metrics[key], 4), interval_of(record, key)
    if ends is not None:
        value = f"{value} ± {write(record.standard_errors[key], 2)}"
    interval = "" if ends is None else " to ".join(write(end, 3) for end in ends)
    chance = record.baseline.get(key)
    title = interval_title(record, key) if interval else ""
    return Cell(value, interval, "" if chance is None else write(chance, 3), title)


def collapsed_text(metric: Label, record: LayerRecord, write: Write = typeset) -> str:
    """Write the value of a metric at collapse, with an arrow towards it; empty if unknown."""
    value = collapsed_at(metric.key, record.k, record.dim)
    return "" if value is None else f"{write(value, 4)} {metric.arrow}".rstrip()


def warnings(probes: Mapping[str, ProbeRecord]) -> list[str]:
    """Return each warning once, with the measurements and layers that it concerns.

    Args:
        probes: Measurements by caption; with one, the caption is left out.
    """
    said = [
        f"{caption}: {warning}" if len(probes) > 1 else warning
        for caption, probe in probes.items()
        for warning in _shared(probe, "warnings")
    ]
    return list(dict.fromkeys(said))


def notes(probe: ProbeRecord) -> list[str]:
    """Return each note once, with its layers unless it concerns all layers."""
    return _shared(probe, "notes")


def _shared(probe: ProbeRecord, kind: str) -> list[str]:
    bearers: dict[str, list[str]] = {}
    for record in probe.layers:
        for sentence in getattr(record, kind):
            bearers.setdefault(sentence, []).append(record.layer)
    return [
        sentence
        if len(names) == len(probe.layers)
        else f"{listed(list(map(quoted, names)))}: {sentence}"
        for sentence, names in bearers.items()
    ]


def history_facts(measurements: Sequence[Measurement], unit: str) -> list[str]:
    """Describe the measurements in short phrases; layers and samples are those of the last run."""
    runs = by_run(measurements)
    last_run = next(reversed(runs.values()))
    last = last_run[-1].probe
    facts = [
        f"{len(last.layers)} layer{'s' * (len(last.layers) != 1)}",
        classes_text(last.layers[-1].num_classes, last.layers[-1].num_present),
    ]
    if len(runs) > 1:
        facts.insert(0, f"{len(runs)} runs")
    facts += [
        f"{at[-1].probe.layers[-1].num_samples:,} {name} samples"
        for name, at in by_split(last_run).items()
    ]
    steps = sorted({measurement.step for measurement in measurements})
    span = f"{unit} {step_text(steps[0])}"
    if len(steps) > 1:
        span = f"{unit}s {step_text(steps[0])} to {step_text(steps[-1])}"
    return [*facts, f"{span} ({len(steps)} measured)"]


def distinct_rows(tables: Iterable[Details]) -> list[DetailRow]:
    """Return a row for each metric that any of the tables holds, in order of first appearance."""
    rows = (row for table in tables for group in table.groups.values() for row in group)
    return list({row.metric.key: row for row in rows}.values())


def last_probes(measurements: Sequence[Measurement], unit: str) -> dict[str, ProbeRecord]:
    """Return the last measurement of each run and split, by caption."""
    return {
        ", ".join(filter(None, (run, split, moment(own[-1], unit)))): own[-1].probe
        for run, measured in by_run(measurements).items()
        for split, own in by_split(measured).items()
    }


def details_by_run(measurements: Sequence[Measurement], unit: str) -> list[Details]:
    """Return all metrics of the last measurement of each run and split."""
    return [details(probe, caption) for caption, probe in last_probes(measurements, unit).items()]


def origin_facts(origin: Provenance) -> list[str]:
    """Name model, weights, data and split, as far as they are known."""
    return [text for text in (origin.model, origin.weights, origin.data, origin.split) if text]


def probe_facts(probe: ProbeRecord) -> list[str]:
    """Describe the measurement in short phrases."""
    last = probe.layers[-1]
    facts = [
        f"{last.num_samples:,} samples",
        classes_text(last.num_classes, last.num_present),
        f"{last.dim:,} features",
    ]
    return facts if len(probe.layers) == 1 else [f"{len(probe.layers)} layers", *facts]


def shared_config(
    configs: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Split configurations into entries that all share and the other entries of each, as text.

    Args:
        configs: Configurations of one or more runs; with one, all entries are shared.

    Example:
        >>> shared_config([{"seed": 0, "steps": 9}, {"seed": 1, "steps": 9}])
        ({'steps': '9'}, [{'seed': '0'}, {'seed': '1'}])
    """
    flat = [flat_config(config) for config in configs]
    alike = {
        name: text
        for name, text in (flat[0] if flat else {}).items()
        if all(config.get(name) == text for config in flat)
    }
    others = [{name: text for name, text in one.items() if name not in alike} for one in flat]
    return alike, others


def flat_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten a nested configuration to dotted names and text."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= flat_config(value, f"{key}.")
        elif isinstance(value, list | tuple):
            flat[key] = ", ".join(map(str, value))
        else:
            flat[key] = str(value)
    return flat
