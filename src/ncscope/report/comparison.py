"""Reports and histories side by side, as a page and as a table for the terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import LayerRecord, Measurement, ProbeRecord
from ncscope.metrics.registry import METRICS
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
from ncscope.report.names import printable_probe
from ncscope.report.numbers import interval_of, plain, typeset
from ncscope.report.overview import Write, collapsed_text, details, warnings
from ncscope.report.page import HistoryView, printable_measurements, rendered_page
from ncscope.report.payload import history_payload, probe_payload
from ncscope.report.tables import plain_table
from ncscope.report.timeline import by_run, by_split, moment

_ALIKE = 2
"""Factor by which numbers of samples differ too much to compare their metrics."""

_IN_TERMINAL = 6
"""Most columns of numbers that an 80-column terminal shows."""


@dataclass(frozen=True)
class Compared:
    """One report or one history of a comparison.

    Attributes:
        name: Name on the page.
        measurements: Measurements; of a report, one.
        unit: Unit of the steps; empty for a report, which has no step.
        provenance: Origin of the measurements.
    """

    name: str
    measurements: Sequence[Measurement]
    unit: str
    provenance: Provenance


@dataclass(frozen=True)
class ComparedCell:
    """A value, its interval and chance level, and whether it is nearer to collapse than the others.

    Attributes:
        text: Value.
        best: True if the value is nearer to collapse than the others of its row.
        interval: 95 % interval; empty if unknown.
        chance: Value at chance level; empty if unknown.
    """

    text: str
    best: bool
    interval: str = ""
    chance: str = ""


@dataclass(frozen=True)
class ComparedRow:
    """A metric of all columns.

    Attributes:
        metric: Label of the metric.
        collapsed: Value at collapse; empty if unknown, or not the same for all columns.
        cells: One cell for each column.
        differs: True if the texts of the cells differ.
        difference: Second value minus first, if there are two.
    """

    metric: Label
    collapsed: str
    cells: Sequence[ComparedCell]
    differs: bool
    difference: str


@dataclass(frozen=True)
class ComparedFact:
    """A fact about what was measured, for all columns."""

    name: str
    cells: Sequence[str]
    differs: bool


@dataclass(frozen=True)
class Comparison:
    """Tables of a comparison, with a column for each report, and for each run and split.

    Attributes:
        columns: Names of the columns.
        groups: Rows by the title of their group.
        facts: Facts about what was measured.
    """

    columns: Sequence[str]
    groups: Mapping[str, Sequence[ComparedRow]]
    facts: Sequence[ComparedFact]

    @property
    def differences(self) -> bool:
        """True if the rows state differences: there are two columns."""
        return len(self.columns) == 2


@dataclass(frozen=True)
class _Column:
    name: str
    probe: ProbeRecord
    facts: Mapping[str, str]

    @property
    def last(self) -> LayerRecord:
        return self.probe.layers[-1]


def comparison_page(
    title: str, compared: Sequence[Compared], sections: Mapping[str, Any] = {}
) -> str:
    """Build one self-contained HTML page of several reports and histories.

    Args:
        title: Heading of the page.
        compared: Reports and histories; at least one.
        sections: Further variables of ``page.html.j2``, such as claims and figures of runs.
    """
    shown = [
        replace(
            each,
            name=printable(each.name),
            measurements=printable_measurements(each.measurements),
        )
        for each in compared
    ]
    columns = _columns(shown)
    probes = {column.name: column.probe for column in columns}
    content: dict[str, Any] = {
        "title": title,
        "facts": [f"{len(columns)} measurements side by side"],
        **sections,
        "warnings": [*_unlike_samples(columns), *warnings(probes)],
        "comparison": comparison(columns),
        "history": _view(shown),
        "details": [details(probe, name) for name, probe in probes.items()],
    }
    return rendered_page(**content)


def comparison_table(compared: Sequence[Compared]) -> Group:
    """Build a table of the key metrics at the last measurements, for the terminal.

    Args:
        compared: Reports and histories; at least one.

    Returns:
        Warnings, then a table that an 80-column terminal can show, with the names and sizes of its
        columns below.
    """
    columns = _columns(compared)
    probes = {printable(column.name): printable_probe(column.probe) for column in columns}
    said = [*_unlike_samples(columns), *warnings(probes)]
    lines = [Text(f"warning: {each}", style="yellow") for each in said]
    return Group(*lines, _comparison_table(columns))


def _comparison_table(columns: Sequence[_Column]) -> Table:
    shown = columns[:_IN_TERMINAL]
    table = plain_table()
    table.add_column("metric", no_wrap=True)
    table.add_column("collapsed\nat", justify="right", no_wrap=True)
    for number in range(1, len(shown) + 1):
        table.add_column(f"{number}", justify="right", no_wrap=True)
    if len(shown) == 2:
        table.add_column("2 − 1", justify="right", no_wrap=True)
    measured = {key for column in shown for key in column.last.metrics}
    for metric in map(label_of, key_metrics(measured)):
        if any(value_of(column.last.metrics, metric.key) is not None for column in shown):
            row = _row(metric, shown, plain, 3)
            cells = [Text(cell.text, style="bold" if cell.best else "") for cell in row.cells]
            further = [row.difference] if len(shown) == 2 else []
            style = "" if row.differs else "dim"
            table.add_row(metric.key, row.collapsed, *cells, *further, style=style)
    named = [
        f"{number}: {column.name} (n = {column.last.num_samples:,}, "
        f"{_classes_of(column.last)}, d = {column.last.dim:,})"
        for number, column in enumerate(shown, start=1)
    ]
    if len(columns) > len(shown):
        named.append(f"{len(columns) - len(shown)} more are on the page")
    table.caption = Text("\n".join(map(printable, named)))
    return table


def _classes_of(record: LayerRecord) -> str:
    return f"K = {record.num_classes:,}" if record.num_classes else "no labels"


def comparison(columns: Sequence[_Column]) -> Comparison:
    """Compare the last layers of all columns, and what was measured in them."""
    metrics = distinct_labels(key for column in columns for key in column.last.metrics)
    groups = {
        title: [_row(metric, columns, typeset, 4) for metric in group]
        for title, group in by_group(metrics).items()
    }
    names = dict.fromkeys(name for column in columns for name in column.facts)
    cells = {name: [column.facts.get(name, "") for column in columns] for name in names}
    facts = [ComparedFact(name, own, len(set(own)) > 1) for name, own in cells.items()]
    return Comparison([column.name for column in columns], groups, facts)


def _columns(compared: Sequence[Compared]) -> list[_Column]:
    """Return the last measurement of every report, and of every run and split."""
    columns = []
    for each in compared:
        for run, measured in by_run(each.measurements).items():
            splits = by_split(measured)
            for split, own in splits.items():
                when = moment(own[-1], each.unit) if each.unit else ""
                parts = [each.name, run, split if each.unit and len(splits) > 1 else ""]
                sizes = _sizes(own[-1].probe) | ({"measured at": when} if when else {})
                if each.unit:
                    sizes["split"] = split
                facts = each.provenance.facts() | sizes
                columns.append(_Column(", ".join(filter(None, parts)), own[-1].probe, facts))
    return columns


def _sizes(probe: ProbeRecord) -> dict[str, str]:
    last = probe.layers[-1]
    return {
        "samples": f"{last.num_samples:,}",
        "number of classes": f"{last.num_classes:,}" if last.num_classes else "no labels",
        "dimension": f"{last.dim:,}",
        "layers": f"{len(probe.layers)}",
    }


def _row(metric: Label, columns: Sequence[_Column], write: Write, digits: int) -> ComparedRow:
    values = [value_of(column.last.metrics, metric.key) for column in columns]
    texts = ["" if value is None else write(value, digits) for value in values]
    collapsed = {collapsed_text(metric, column.last, write) for column in columns}
    away = [_distance(metric, column, value) for column, value in zip(columns, values, strict=True)]
    known = [distance for distance in away if distance < math.inf]
    nearest = min(known, default=math.inf)
    differs = len(set(texts)) > 1
    ranked = differs and len(known) > 1 and _comparable(metric, columns)
    cells = [
        ComparedCell(text, ranked and distance == nearest, *_trust(metric, column, write))
        for text, distance, column in zip(texts, away, columns, strict=True)
    ]
    difference = ""
    if len(values) == 2 and differs and None not in values:
        gap = float(values[1] or 0.0) - float(values[0] or 0.0)
        difference = f"{'+' if gap > 0 else ''}{write(gap, 3)}"
    text = collapsed.pop() if len(collapsed) == 1 else ""
    return ComparedRow(metric, text, cells, differs, difference)


def _comparable(metric: Label, columns: Sequence[_Column]) -> bool:
    """Return whether the nearest to collapse of a row's values means anything.

    It does not if the numbers of samples differ by a factor of two, since few samples look more
    collapsed; for a value in the features' unit; or if two 95 % intervals overlap.
    """
    row = METRICS.get(metric.key)
    if _unlike_samples(columns) or row is None or row.degree or row.group == "mse":
        return False
    ends = sorted(
        interval
        for column in columns
        if (key := key_in(column.last.metrics, metric.key)) is not None
        and (interval := interval_of(column.last, key)) is not None
    )
    return all(one[1] < other[0] for one, other in pairwise(ends))


def _unlike_samples(columns: Sequence[_Column]) -> list[str]:
    """Return a sentence on numbers of samples that differ by a factor of two or more, if any do."""
    sizes = sorted(column.last.num_samples for column in columns)
    if sizes[-1] < _ALIKE * sizes[0]:
        return []
    ends = f"{sizes[0]:,} {'and' if len(sizes) == 2 else 'to'} {sizes[-1]:,}"
    return [f"Samples differ ({ends}): few samples look more collapsed; compare at equal numbers."]


def _trust(metric: Label, column: _Column, write: Write) -> tuple[str, str]:
    """Write the 95 % interval and the chance level of a value."""
    key = key_in(column.last.metrics, metric.key)
    if key is None:
        return "", ""
    ends, chance = interval_of(column.last, key), column.last.baseline.get(key)
    interval = "" if ends is None else " to ".join(write(end, 3) for end in ends)
    return interval, "" if chance is None else write(chance, 3)


def _distance(metric: Label, column: _Column, value: float | None) -> float:
    """Return how far a value is from collapse; infinity if either is unknown."""
    known = collapsed_at(metric.key, column.last.k, column.last.dim)
    if value is None or not math.isfinite(value) or known is None:
        return math.inf
    return abs(value - known)


def _view(compared: Sequence[Compared]) -> HistoryView:
    """Prepare the charts: a run for each report and each run of a history, and all runs in one."""
    payload: dict[str, Any] = {"runs": {}, "shown": ""}
    everything = list[Measurement]()
    for unit in dict.fromkeys(each.unit for each in compared if each.unit):
        of_unit = [each for each in compared if each.unit == unit]
        named = [
            replace(measurement, run=", ".join(filter(None, (each.name, measurement.run))))
            for each in of_unit
            for measurement in each.measurements
        ]
        names = {each.provenance.class_names for each in of_unit}
        own = history_payload(named, unit, names.pop() if len(names) == 1 else ())
        payload["runs"] |= own["runs"]
        payload["shown"] = payload["shown"] or own["together"] or own["shown"]
        everything += named
    for each in compared:
        if not each.unit:
            names_of_one = each.provenance.class_names
            (run,) = probe_payload(each.measurements[0].probe, names_of_one)["runs"].values()
            payload["runs"][each.name] = run
    payload["shown"] = payload["shown"] or next(iter(payload["runs"]))
    units = [each.unit for each in compared if each.unit]
    return HistoryView(everything, units[0] if units else "step", payload)
