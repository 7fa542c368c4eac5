"""Self-contained interactive pages: of a training run, and of a single measurement."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ncscope.errors import printable
from ncscope.probing.records import ProbeRecord, Snapshot
from ncscope.report.formulas import formula
from ncscope.report.labels import KEY_METRICS, by_group, label_of, value_of
from ncscope.report.names import printable_probe
from ncscope.report.numbers import typeset
from ncscope.report.overview import (
    claims_of,
    details,
    flat_config,
    probe_facts,
    run_facts,
    summary,
)
from ncscope.report.payload import as_json, probe_payload, run_payload
from ncscope.report.timeline import by_split, moment, time_unit

_SCRIPTS = ("theme.js", "controls.js", "history.js", "layers.js", "frames.js", "start.js")


def run_page(
    title: str,
    snapshots: Sequence[Snapshot],
    claims: Sequence[Mapping[str, Any]] = (),
    config: Mapping[str, Any] = {},
    lead: str = "",
) -> str:
    """One self-contained HTML page of a training run: nothing is requested from the network.

    Args:
        title: Heading of the page.
        snapshots: Measurements over training, of one or more splits, in any order.
        claims: Statements that were put to the test: ``claim``, ``held``, ``evidence`` each.
        config: The run's configuration, shown as it is.
        lead: A sentence or two under the heading.

    Returns:
        The page.

    Raises:
        ValueError: If there is no snapshot, or one without a layer.
    """
    if not snapshots or not all(snapshot.probe.layers for snapshot in snapshots):
        msg = "a run page needs at least one snapshot, and every snapshot at least one layer"
        raise ValueError(msg)
    snapshots = [replace(each, probe=printable_probe(each.probe)) for each in snapshots]
    payload = run_payload(snapshots)
    unit = time_unit(snapshots)
    last = {name: own[-1] for name, own in by_split(snapshots).items()}
    return _render(
        "run.html.j2",
        payload,
        title=title,
        lead=lead,
        facts=run_facts(snapshots),
        claims=claims_of(claims),
        summary=summary(snapshots),
        splits=list(last),
        unit=unit,
        metric_groups=by_group(label_of(entry["key"]) for entry in payload["metrics"]),
        details=[
            details(snapshot.probe, f"{name}, {unit} {moment(snapshot, unit):,}")
            for name, snapshot in last.items()
        ],
        config=flat_config(config),
    )


def probe_page(title: str, probe: ProbeRecord) -> str:
    """One self-contained HTML page of a single measurement, of one layer or many.

    Args:
        title: Heading of the page.
        probe: The measurement; sections for which it has no data are left out.

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
    found = ((label_of(key), value_of(last.metrics, key)) for key in KEY_METRICS)
    return _render(
        "probe.html.j2",
        probe_payload(probe),
        title=title,
        lead="",
        facts=probe_facts(probe),
        last_layer=last.layer,
        key_numbers=[(metric, typeset(value)) for metric, value in found if value is not None],
        details=[details(probe, "")],
        config={},
    )


def _render(template: str, payload: Mapping[str, Any], **context: Any) -> str:
    """Render a page with interactive charts."""
    return rendered(
        template,
        payload=payload,
        data=Markup(as_json(payload)),
        scripts=[_asset(name) for name in _SCRIPTS],
        plotly=Markup(get_plotlyjs()),
        **context,
    )


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
