"""HTML page of one or several runs: the main figure, claims, then everything else."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ncscope.report.overview import split_config
from ncscope.report.page import build_history_view, render_page
from ncscope.report.tables import Summary
from ncscope_lab.findings import Finding, tally
from ncscope_lab.observations import ITERATION, Results
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.report.rows import format_value, last_rows, place_of
from ncscope_lab.report.sweep import SweepTable


@dataclass(frozen=True)
class RunView:
    """Content of a page about one run.

    Attributes:
        name: Name of the run, for a page with several runs.
        claims: Claims, in order.
        images: Drawings, each with the content of its SVG file.
        rows: Observations and measurements. The page shows the last observation of each part and
            layer; the interactive part of the page shows the measurements.
        columns: Keys of the observations to show.
        config: The settings.
        unit: Unit of the measurements' steps.
        ended: True if the run has ended.
        tables: Summaries of the run.
    """

    name: str
    claims: Sequence[Finding]
    images: Sequence[tuple[Drawing, bytes]]
    rows: Results
    columns: Sequence[str]
    config: Mapping[str, Any]
    unit: str = "epoch"
    ended: bool = True
    tables: Sequence[Summary] = ()


def build_run_page(
    title: str,
    lead: str,
    facts: Sequence[str],
    runs: Sequence[RunView],
    sweep: SweepTable | None = None,
) -> str:
    """Build one self-contained HTML page, which requests nothing from the network.

    Args:
        title: Heading of the page.
        lead: One or two sentences under the heading.
        facts: Short facts, such as source and scale.
        runs: Runs to show; several runs are shown side by side.
        sweep: Table of all runs, if the runs belong to a sweep.
    """
    return render_page(title=title, lead=lead, facts=facts, sweep=sweep, **run_sections(runs))


def run_sections(runs: Sequence[RunView]) -> dict[str, Any]:
    """Return the sections of a page about runs: figures, findings, charts, tables and settings.

    Args:
        runs: Runs to show; the claims of several runs are one matrix, without charts.
    """
    alike, own = split_config([run.config for run in runs])
    hidden = (ITERATION, "num_classes")  # numbers that no chart needs
    history = [
        replace(each, values={k: value for k, value in each.values.items() if k not in hidden})
        for each in (runs[0].rows.measurements if len(runs) == 1 else [])
    ]
    return {
        "history": build_history_view(history, runs[0].unit) if history else None,
        "runs": [_describe_run(run, config) for run, config in zip(runs, own, strict=True)],
        "matrix": _claim_matrix(runs) if len(runs) > 1 else None,
        "config": alike,
    }


def _claim_matrix(runs: Sequence[RunView]) -> dict[str, Any]:
    """Return claims by run for the template, None where a run does not test a claim."""
    tested = [{claim.text: claim for claim in run.claims} for run in runs]
    texts = dict.fromkeys(text for claims in tested for text in claims)
    cells = {text: [claims.get(text) for claims in tested] for text in texts}
    return {
        "runs": [run.name for run in runs],
        "rows": [
            {"text": text, "cells": row, "held": str(tally(filter(None, row)))}
            for text, row in cells.items()
        ],
        "unfinished": [run.name for run in runs if not run.ended],
    }


def _describe_run(run: RunView, config: Mapping[str, str]) -> dict[str, Any]:
    """Return a run for the template, with the settings in which it differs from other runs."""
    table = {
        part: [(place_of(row), [format_value(row, key) for key in run.columns]) for row in layers]
        for part, layers in last_rows(run.rows).items()
    }
    return {
        "name": run.name,
        "ended": run.ended,
        "claims": run.claims,
        "tables": run.tables,
        "images": [
            (drawing, f"data:image/svg+xml;base64,{b64encode(svg).decode()}")
            for drawing, svg in run.images
        ],
        "columns": run.columns,
        "table": table,
        "config": config,
    }
