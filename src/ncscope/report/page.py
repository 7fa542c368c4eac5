"""Self-contained interactive pages: of a history, and of a single measurement."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ncscope.errors import printable
from ncscope.probing.records import Measurement, ProbeRecord
from ncscope.report.formulas import formula
from ncscope.report.labels import KEY_METRICS, Label, by_group, label_of, value_of
from ncscope.report.names import printable_probe
from ncscope.report.numbers import typeset
from ncscope.report.overview import (
    changes_by_run,
    details,
    details_by_run,
    distinct_rows,
    history_facts,
    probe_facts,
)
from ncscope.report.payload import as_json, history_payload, probe_payload
from ncscope.report.timeline import by_split

_ABSENT: Mapping[str, Any] = {
    "sweep": None,
    "runs": (),
    "history": None,
    "changes": (),
    "probe": None,
    "key_numbers": (),
    "details": (),
    "config": {},
    "provenance": {},
}
"""Sections of the template as they are where a page has none of them."""

_SCRIPTS = ("theme.js", "controls.js", "history.js", "layers.js", "frames.js", "start.js")


def history_page(
    title: str,
    measurements: Sequence[Measurement],
    *,
    unit: str = "epoch",
    lead: str = "",
    provenance: Mapping[str, str] = {},
) -> str:
    """Build one self-contained HTML page of a history: it requests nothing from the network.

    Args:
        title: Heading of the page.
        measurements: Measurements of one run or several, of one split or several, in any order.
        unit: Unit of their steps.
        lead: A sentence or two under the heading.
        provenance: Facts about the origin of the measurements, by name.

    Returns:
        The page.

    Raises:
        ValueError: If there is no measurement, or one without a layer.
    """
    history = history_view(measurements, unit)
    return rendered_page(
        title=title,
        lead=lead,
        facts=history_facts(measurements, unit),
        history=history,
        changes=changes_by_run(history.measurements),
        details=details_by_run(history.measurements, unit),
        provenance=provenance,
    )


def history_fragment(measurements: Sequence[Measurement]) -> str:
    """Build the tables of first against last values, for a notebook.

    Args:
        measurements: Measurements of one run or several; at least one.
    """
    shown = _printable_measurements(measurements)
    return rendered("fragment.html.j2", changes=changes_by_run(shown))


@dataclass(frozen=True)
class HistoryView:
    """Interactive part of a page: charts of one run or several.

    Attributes:
        measurements: Measurements that are drawn, their names printable.
        unit: Unit of their steps.
        payload: Data of the charts.
        metric_groups: Metrics to choose from, by the title of their group.
    """

    measurements: Sequence[Measurement]
    unit: str
    payload: Mapping[str, Any]
    metric_groups: Mapping[str, Sequence[Label]]

    @property
    def splits(self) -> list[str]:
        """Names of all splits, the training split first."""
        return list(by_split(self.measurements))

    def any(self, chart: str) -> bool:
        """Return whether a run has data of a chart: ``profiles``, ``grams`` or ``spectra``."""
        return any(run[chart] for run in self.payload["runs"].values())


def history_view(measurements: Sequence[Measurement], unit: str) -> HistoryView:
    """Prepare the interactive part of a page.

    Args:
        measurements: Measurements of one run or several, in any order.
        unit: Unit of their steps.

    Raises:
        ValueError: If there is no measurement, or one without a layer.
    """
    if not measurements or not all(measurement.probe.layers for measurement in measurements):
        msg = "a page needs at least one measurement, and every measurement at least one layer"
        raise ValueError(msg)
    shown = _printable_measurements(measurements)
    payload = history_payload(shown, unit)
    keys = dict.fromkeys(
        entry["key"] for run in payload["runs"].values() for entry in run["metrics"]
    )
    return HistoryView(shown, unit, payload, by_group(map(label_of, keys)))


def _printable_measurements(measurements: Sequence[Measurement]) -> list[Measurement]:
    return [
        replace(
            each,
            probe=printable_probe(each.probe),
            split=printable(each.split),
            run=printable(each.run),
        )
        for each in measurements
    ]


def probe_page(title: str, probe: ProbeRecord, provenance: Mapping[str, str] = {}) -> str:
    """Build one self-contained HTML page of a single measurement, of one layer or many.

    Args:
        title: Heading of the page.
        probe: The measurement; sections for which it has no data are left out.
        provenance: Facts about the origin of the measurement, by name.

    Returns:
        The page.

    Raises:
        ValueError: If the record has no layer.
    """
    if not probe.layers:
        msg = "a page needs a measurement of at least one layer, this record has none"
        raise ValueError(msg)
    probe = printable_probe(probe)
    last = probe.layers[-1]
    values = ((label_of(key), value_of(last.metrics, key)) for key in KEY_METRICS)
    payload = probe_payload(probe)
    return rendered_page(
        title=title,
        lead="",
        facts=probe_facts(probe),
        probe=payload["runs"][""],
        payload=payload,
        last_layer=last.layer,
        key_numbers=[(metric, typeset(value)) for metric, value in values if value is not None],
        details=[details(probe, "")],
        provenance=provenance,
    )


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
    return rendered("page.html.j2", **{**_ABSENT, **charts, **sections})


def rendered(template: str, **context: Any) -> str:
    """Render a template of this folder with the style sheet inside."""
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
    return environment.get_template(template).render(style=_asset("style.css"), **context)


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
