"""Self-contained interactive pages: of a history, and of a single measurement."""

import base64
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ncscope.errors import printable
from ncscope.measurement.provenance import UNKNOWN, Provenance
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.metrics.metric import Metric
from ncscope.metrics.registry import METRICS
from ncscope.report.classes import build_class_views, collect_columns
from ncscope.report.curves import group_by_split
from ncscope.report.formulas import formula
from ncscope.report.labels import group_labels, sort_labels
from ncscope.report.overview import (
    Headline,
    MetricRow,
    build_cell,
    build_details,
    build_headlines,
    choose_headlines,
    collect_warnings,
    describe_history,
    describe_model,
    describe_origin,
    name_metrics,
    select_last,
)
from ncscope.report.payload import build_history_payload, build_model_payload, write_json
from ncscope.report.wording import (
    join_words,
    make_all_printable,
    make_printable,
    name_step,
    quote_number,
)

_EMPTY_SECTIONS: Mapping[str, Any] = {
    "lead": "",
    "facts": (),
    "size_warnings": (),
    "warnings": (),
    "folded_warnings": (),
    "folded_names": "",
    "comparison": None,
    "sweep": None,
    "matrix": None,
    "runs": (),
    "history": None,
    "headlines": (),
    "probe": None,
    "key_numbers": (),
    "geodesic": False,
    "classes": (),
    "details": (),
    "config": {},
    "provenance": {},
}
"""Sections of the template as they are where a page has none of them."""

SIGNAL_FORMULA = r"\Sigma_W^{-1/2}\tilde M"
"""Matrix of which the page draws the singular values."""

_SCRIPTS = (
    "theme.js",
    "controls.js",
    "history.js",
    "headlines.js",
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
    provenance: Provenance = UNKNOWN,
) -> str:
    """Build one self-contained HTML page of a history: it requests nothing from the network.

    Args:
        title: Heading of the page.
        measurements: Measurements of one run or several, of one split or several, in any order.
        unit: Unit of their steps.
        provenance: Origin of the measurements.

    Raises:
        ValueError: If there is no measurement, or one without a layer.
    """
    history = build_history_view(measurements, unit, provenance.class_names)
    last = select_last(history.measurements, unit)
    return render_page(
        title=title,
        facts=[*describe_origin(provenance), *describe_history(measurements, unit)],
        warnings=collect_warnings(last),
        history=history,
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
    def metric_groups(self) -> dict[str, list[Metric]]:
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

    @cached_property
    def headlines(self) -> list[Headline]:
        """Metrics of the grid, with their first and last values; none without steps."""
        return build_headlines(self.measurements, self.unit) if self.measurements else []

    @property
    def only_step(self) -> str:
        """Name of the step, if all measurements are of one; else empty."""
        steps = {name_step(each, self.unit) for each in self.measurements}
        return steps.pop() if len(steps) == 1 else ""

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

    Raises:
        ValueError: If the record has no layer.
    """
    if not model.layers:
        msg = "a page needs a measurement of at least one layer, this record has none"
        raise ValueError(msg)
    model = make_printable(model)
    payload = build_model_payload(model, provenance.class_names)
    last = model.last
    key_numbers = [
        (headline, build_cell(last, headline.metric))
        for headline in choose_headlines(last.metrics, last)
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
        key_numbers=key_numbers,
        classes=build_class_views({"": model}, provenance.class_names),
        details=[build_details(model, "", leading=[each.metric.key for each, _ in key_numbers])],
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
    comparison = sections.get("comparison")
    headlines = [headline for headline, _ in sections.get("key_numbers", ())]
    if comparison is not None:
        headlines = comparison["headlines"]
    groups = [table.groups for table in sections.get("details", ())]
    groups += [] if comparison is None else [comparison["groups"]]
    rows = [
        *headlines,
        *(row for table in groups for of_group in table.values() for row in of_group),
    ]
    defined = sort_labels(row.metric.key for row in rows)
    columns = collect_columns(sections.get("classes", ()))
    charts: dict[str, Any] = {}
    if payload is not None:
        runs = payload["runs"].values()
        latex = {entry["formula"] for run in runs for entry in run["metrics"]}
        latex |= {each.formula for each in defined} | {each.formula for each in columns}
        latex.add(SIGNAL_FORMULA)
        drawn = {each: formula(each, display=True) for each in sorted(latex)}
        charts = {
            "data": _pack(write_json({**payload, "formulas": drawn})),
            "scripts": [_read_asset(name) for name in _SCRIPTS],
            "plotly": _pack_plotly(),
            "pfc": next(iter(runs))["pfc"],
        }
    if history is not None and not headlines:
        headlines = history.headlines
    leading = {each.metric.key for each in headlines} or set(METRICS)
    warnings = sections.get("warnings", ())
    # What concerns none of the numbers that lead is folded, and the first chart moves up.
    folded = [w for w in warnings if (keys := name_metrics(w)) and not leading & set(keys)]
    sections["size_warnings"] = list(sections.get("size_warnings", ()))
    sections["warnings"] = [w for w in warnings if w not in folded]
    sections["folded_warnings"] = folded
    named = list(dict.fromkeys(key for sentence in folded for key in name_metrics(sentence)))
    more = [f"{len(named) - 3} more"] if len(named) > 4 else []
    sections["folded_names"] = join_words([*named[: 3 if more else 4], *more])
    sections["signal"] = SIGNAL_FORMULA
    sections |= {"defined": defined, "class_columns": columns}
    return render_template("page.html.j2", **{**_EMPTY_SECTIONS, **charts, **sections})


def _pack(text: str) -> Markup:
    """Return a text as base64 of gzip, which the page unpacks.

    Without the time of packing, which gzip would record: the same report is the same page.
    """
    return Markup(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())


@cache
def _pack_plotly() -> Markup:
    """Return the chart library, packed: 1.9 MB in place of 4.6."""
    return _pack(get_plotlyjs())


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

    def hold_formula(latex: str) -> Markup:
        # The script puts the drawing here: packed with the data, it has half of its size.
        held = Markup('<span class="formula" data-latex="{0}">{0}</span>').format(latex)
        return held if latex else Markup()

    def without_arrow(groups: Mapping[str, Sequence[MetricRow]]) -> bool:
        """Return whether a metric has a value at collapse, and no arrow towards it."""
        rows = [row for of_group in groups.values() for row in of_group]
        return any(row.collapsed and not row.metric.arrow for row in rows)

    environment = Environment(
        loader=PackageLoader("ncscope", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["formula"] = hold_formula
    environment.filters["breakable"] = make_breakable
    environment.filters["quote_number"] = quote_number
    environment.filters["without_arrow"] = without_arrow
    return environment


def _read_asset(name: str) -> Markup:
    folder = files("ncscope.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))
