"""Self-contained interactive pages: of a history, and of a single measurement."""

import base64
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ncscope.errors import printable
from ncscope.measurement.provenance import UNKNOWN, Provenance
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.report.classes import build_class_views, collect_columns
from ncscope.report.curves import group_by_split
from ncscope.report.formulas import formula
from ncscope.report.labels import (
    Label,
    choose_key_metrics,
    find_label,
    group_labels,
    sort_labels,
)
from ncscope.report.overview import (
    MetricRow,
    build_cell,
    build_details,
    collect_rows,
    collect_warnings,
    compare_ends,
    describe_history,
    describe_model,
    describe_origin,
    format_collapse_value,
    select_last,
)
from ncscope.report.payload import build_history_payload, build_model_payload, write_json
from ncscope.report.wording import make_all_printable, make_printable, quote_number

_EMPTY_SECTIONS: Mapping[str, Any] = {
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


def render_history_page(
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
    history = build_history_view(measurements, unit, provenance.class_names)
    last = select_last(history.measurements, unit)
    return render_page(
        title=title,
        lead=lead,
        facts=[*describe_origin(provenance), *describe_history(measurements, unit)],
        warnings=collect_warnings(last),
        history=history,
        changes=compare_ends(history.measurements),
        classes=build_class_views(last, provenance.class_names),
        details=[build_details(model, caption) for caption, model in last.items()],
        provenance=provenance.facts(),
    )


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
        return group_labels(sort_labels(entry["key"] for entry in entries))

    @property
    def splits(self) -> list[str]:
        """Names of all splits, the training split first."""
        return list(group_by_split(self.measurements))

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
        return _has_geodesic(self.payload)


def _has_geodesic(payload: Mapping[str, Any]) -> bool:
    """Return whether a frame of any run holds the geodesic's prediction."""
    splits = (split for run in payload["runs"].values() for split in run["profiles"].values())
    return any(frame["geodesic"] for split in splits for frame in split)


def build_history_view(
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
    if not measurements or not all(measurement.model_record.layers for measurement in measurements):
        msg = "a page needs at least one measurement, and every measurement at least one layer"
        raise ValueError(msg)
    safe = make_all_printable(measurements)
    return HistoryView(safe, unit, build_history_payload(safe, unit, class_names))


def render_model_page(title: str, model: ModelRecord, provenance: Provenance = UNKNOWN) -> str:
    """Build one self-contained HTML page of a single measurement, of one layer or many.

    Args:
        title: Heading of the page.
        model: The measurement; sections for which it has no data are left out.
        provenance: Origin of the measurement.

    Returns:
        The page.

    Raises:
        ValueError: If the record has no layer.
    """
    if not model.layers:
        msg = "a page needs a measurement of at least one layer, this record has none"
        raise ValueError(msg)
    model = make_printable(model)
    payload = build_model_payload(model, provenance.class_names)
    last = model.layers[-1]
    key_numbers = [
        MetricRow(metric, format_collapse_value(metric, last), [build_cell(last, metric)])
        for metric in map(find_label, choose_key_metrics(last.metrics))
    ]
    return render_page(
        title=title,
        lead="",
        facts=[*describe_origin(provenance), *describe_model(model)],
        warnings=collect_warnings({"": model}),
        probe=payload["runs"][""],
        geodesic=_has_geodesic(payload),
        payload=payload,
        last_layer=last.layer,
        key_numbers=[row for row in key_numbers if row.cells[0].value],
        classes=build_class_views({"": model}, provenance.class_names),
        details=[build_details(model, "")],
        provenance=provenance.facts(),
    )


def render_page(**sections: Any) -> str:
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
            "data": Markup(write_json(payload)),
            "scripts": [_read_asset(name) for name in _SCRIPTS],
            "plotly": _pack_plotly(),
            "pfc": next(iter(payload["runs"].values()))["pfc"],
        }
    sections["defined"] = collect_rows(sections.get("details", ()))
    sections["class_columns"] = collect_columns(sections.get("classes", ()))
    return render_template("page.html.j2", **{**_EMPTY_SECTIONS, **charts, **sections})


@cache
def _pack_plotly() -> Markup:
    """Return the chart library as base64 of gzip, which the page unpacks: 1.9 MB in place of 4.6.

    Without the time of packing, which gzip would record: the same report is the same page.
    """
    packed = gzip.compress(get_plotlyjs().encode(), mtime=0)
    return Markup(base64.b64encode(packed).decode())


def render_template(template: str, **context: Any) -> str:
    """Render a template of this folder with the style sheet inside."""
    return (
        _load_environment().get_template(template).render(style=_read_asset("style.css"), **context)
    )


@cache
def _load_environment() -> Environment:
    """Return what reads templates; it compiles each template once."""

    def clean(value: Any) -> Any:
        # Everything that a template puts out passes here, so that no name of a layer, class or
        # file can bring control characters into a page; markup is our own, and stays.
        is_plain = isinstance(value, str) and not isinstance(value, Markup)
        return printable(value, keep="\n") if is_plain else value

    def make_breakable(name: str) -> Markup:
        """Let a layer's name break after a dot, a slash or an underscore."""
        return Markup("<wbr>").join(re.split(r"(?<=[._/])", printable(name)))

    environment = Environment(
        loader=PackageLoader("ncscope", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["formula"] = lambda latex: Markup(formula(latex, display=True))
    environment.filters["breakable"] = make_breakable
    environment.filters["quote_number"] = quote_number
    return environment


def _read_asset(name: str) -> Markup:
    folder = files("ncscope.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))
