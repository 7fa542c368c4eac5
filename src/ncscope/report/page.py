"""Self-contained interactive pages: of a history, and of a single measurement."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ncscope.errors import printable
from ncscope.measurement.provenance import UNKNOWN, Provenance
from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ProbeRecord
from ncscope.report.classes import class_view, class_views, distinct_columns
from ncscope.report.formulas import formula
from ncscope.report.labels import Label, by_group, distinct_labels, key_metrics, label_of
from ncscope.report.names import printable_probe, quoted
from ncscope.report.overview import (
    DetailRow,
    cell_of,
    changes_by_run,
    collapsed_text,
    details,
    details_by_run,
    distinct_rows,
    history_facts,
    last_probes,
    origin_facts,
    probe_facts,
    warnings,
)
from ncscope.report.payload import as_json, history_payload, probe_payload
from ncscope.report.timeline import by_split

_ABSENT: Mapping[str, Any] = {
    "lead": "",
    "facts": (),
    "warnings": (),
    "comparison": None,
    "sweep": None,
    "matrix": None,
    "runs": (),
    "history": None,
    "changes": (),
    "probe": None,
    "key_numbers": (),
    "geodesic": False,
    "classes": (),
    "details": (),
    "config": {},
    "provenance": {},
}
"""Sections of the template as they are where a page has none of them."""

_SCRIPTS = (
    "theme.js",
    "controls.js",
    "history.js",
    "layers.js",
    "frames.js",
    "classes.js",
    "start.js",
)


def history_page(
    title: str,
    measurements: Sequence[Measurement],
    *,
    unit: str = "epoch",
    lead: str = "",
    provenance: Provenance = UNKNOWN,
) -> str:
    """Build one self-contained HTML page of a history: it requests nothing from the network.

    Args:
        title: Heading of the page.
        measurements: Measurements of one run or several, of one split or several, in any order.
        unit: Unit of their steps.
        lead: A sentence or two under the heading.
        provenance: Origin of the measurements.

    Returns:
        The page.

    Raises:
        ValueError: If there is no measurement, or one without a layer.
    """
    history = history_view(measurements, unit, provenance.class_names)
    return rendered_page(
        title=title,
        lead=lead,
        facts=[*origin_facts(provenance), *history_facts(measurements, unit)],
        warnings=warnings(last_probes(history.measurements, unit)),
        history=history,
        changes=changes_by_run(history.measurements),
        classes=class_views(last_probes(history.measurements, unit), provenance.class_names),
        details=details_by_run(history.measurements, unit),
        provenance=provenance.facts(),
    )


def history_fragment(measurements: Sequence[Measurement]) -> str:
    """Build the tables of first against last values, for a notebook.

    Args:
        measurements: Measurements of one run or several; at least one.
    """
    shown = printable_measurements(measurements)
    changes = changes_by_run(shown)
    return rendered("fragment.html.j2", changes=changes, warnings=(), details=(), classes=())


@dataclass(frozen=True)
class HistoryView:
    """Interactive part of a page: charts of one run or several.

    Attributes:
        measurements: Measurements of histories that are drawn, their names printable.
        unit: Unit of their steps.
        payload: Data of the charts.
    """

    measurements: Sequence[Measurement]
    unit: str
    payload: Mapping[str, Any]

    @property
    def metric_groups(self) -> dict[str, list[Label]]:
        """Metrics to choose from, by the title of their group."""
        entries = (entry for run in self.payload["runs"].values() for entry in run["metrics"])
        return by_group(distinct_labels(entry["key"] for entry in entries))

    @property
    def splits(self) -> list[str]:
        """Names of all splits, the training split first."""
        return list(by_split(self.measurements))

    def any(self, chart: str) -> bool:
        """Return whether a run has data of a chart: ``series``, ``profiles``, ``grams``, ..."""
        return any(run[chart] for run in self.payload["runs"].values())

    @property
    def over_time(self) -> bool:
        """True if there are steps to move through: not all measurements are single reports."""
        return bool(self.measurements)

    @property
    def geodesic(self) -> bool:
        """True if a geodesic is drawn in any run."""
        return has_geodesic(self.payload)


def has_geodesic(payload: Mapping[str, Any]) -> bool:
    """Return whether a frame of any run holds the geodesic's prediction."""
    frames = (f for r in payload["runs"].values() for own in r["profiles"].values() for f in own)
    return any(frame["geodesic"] for frame in frames)


def history_view(
    measurements: Sequence[Measurement], unit: str, class_names: Sequence[str] = ()
) -> HistoryView:
    """Prepare the interactive part of a page.

    Args:
        measurements: Measurements of one run or several, in any order.
        unit: Unit of their steps.
        class_names: Names of the classes, in the order of the labels.

    Raises:
        ValueError: If there is no measurement, or one without a layer.
    """
    if not measurements or not all(measurement.probe.layers for measurement in measurements):
        msg = "a page needs at least one measurement, and every measurement at least one layer"
        raise ValueError(msg)
    shown = printable_measurements(measurements)
    payload = history_payload(shown, unit, class_names)
    return HistoryView(shown, unit, payload)


def printable_measurements(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return measurements whose names, notes and warnings are printable.

    Args:
        measurements: Measurements of one run or several.
    """
    return [
        replace(
            each,
            probe=printable_probe(each.probe),
            split=printable(each.split),
            run=printable(each.run),
        )
        for each in measurements
    ]


def probe_page(title: str, probe: ProbeRecord, provenance: Provenance = UNKNOWN) -> str:
    """Build one self-contained HTML page of a single measurement, of one layer or many.

    Args:
        title: Heading of the page.
        probe: The measurement; sections for which it has no data are left out.
        provenance: Origin of the measurement.

    Returns:
        The page.

    Raises:
        ValueError: If the record has no layer.
    """
    if not probe.layers:
        msg = "a page needs a measurement of at least one layer, this record has none"
        raise ValueError(msg)
    probe = printable_probe(probe)
    payload = probe_payload(probe, provenance.class_names)
    return rendered_page(
        title=title,
        lead="",
        facts=[*origin_facts(provenance), *probe_facts(probe)],
        warnings=warnings({"": probe}),
        probe=payload["runs"][""],
        geodesic=has_geodesic(payload),
        payload=payload,
        last_layer=probe.layers[-1].layer,
        key_numbers=_key_numbers(probe.layers[-1]),
        classes=class_views({"": probe}, provenance.class_names),
        details=[details(probe, "")],
        provenance=provenance.facts(),
    )


def probe_fragment(probe: ProbeRecord) -> str:
    """Build the table of a measurement, for a notebook.

    Args:
        probe: The measurement.
    """
    shown = printable_probe(probe)
    return rendered(
        "fragment.html.j2",
        changes=(),
        warnings=warnings({"": shown}),
        details=[details(shown, "")],
        classes=(),
    )


def classes_fragment(table: ClassTable, class_names: Sequence[str] = ()) -> str:
    """Build the table of classes, for a notebook.

    Args:
        table: Values of each class.
        class_names: Names of all classes, in the order of the labels; empty if unknown.
    """
    view = class_view(table, class_names)
    return rendered("fragment.html.j2", changes=(), warnings=(), details=(), classes=[view])


def _key_numbers(record: LayerRecord) -> list[DetailRow]:
    rows = (
        DetailRow(metric, collapsed_text(metric, record), [cell_of(record, metric)])
        for metric in map(label_of, key_metrics(record.metrics))
    )
    return [row for row in rows if row.cells[0].value]


def rendered_page(**sections: Any) -> str:
    """Render the template of all pages; a section for which nothing is given is left out.

    Args:
        sections: Variables of ``page.html.j2``; with ``history`` or ``payload`` the page has
            charts.
    """
    history = sections.get("history")
    payload = sections.get("payload") if history is None else history.payload
    charts: dict[str, Any] = {}
    if payload is not None:
        charts = {
            "data": Markup(as_json(payload)),
            "scripts": [_asset(name) for name in _SCRIPTS],
            "plotly": Markup(get_plotlyjs()),
            "pfc": next(iter(payload["runs"].values()))["pfc"],
        }
    sections["defined"] = distinct_rows(sections.get("details", ()))
    sections["class_columns"] = distinct_columns(sections.get("classes", ()))
    return rendered("page.html.j2", **{**_ABSENT, **charts, **sections})


def rendered(template: str, **context: Any) -> str:
    """Render a template of this folder with the style sheet inside."""
    return _environment().get_template(template).render(style=_asset("style.css"), **context)


@cache
def _environment() -> Environment:
    """Return what reads templates; it compiles each template once."""
    environment = Environment(
        loader=PackageLoader("ncscope", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["formula"] = lambda latex: Markup(formula(latex, display=True))
    environment.filters["breakable"] = _breakable
    environment.filters["quoted"] = quoted
    return environment


def _printable(value: Any) -> Any:
    """Return what a template puts out with its text printable; markup is our own, and stays."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return printable(value, keep="\n") if plain else value


def _breakable(name: str) -> Markup:
    """Let a layer's name break after a dot or an underscore."""
    pieces = re.split(r"(?<=[._/])", printable(name))
    return Markup("<wbr>").join(pieces)


def _asset(name: str) -> Markup:
    folder = files("ncscope.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))
