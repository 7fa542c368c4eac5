"""The page of a study, or of several side by side: claims first, then figures, then numbers."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncscope.probing.records import Row
from ncscope.report.drawing import Drawing
from ncscope.report.overview import claims_of, flat_config
from ncscope.report.page import rendered
from ncscope.report.rows import last_rows, place_of, shown
from ncscope.report.summary import Summary


@dataclass(frozen=True)
class RunView:
    """What a page shows of a run.

    Attributes:
        name: Of the run, where the page shows several.
        claims: ``claim``, ``held`` and ``evidence`` each.
        images: The drawings, each with its SVG file.
        rows: Every measurement; the last of each part and layer are shown.
        columns: Keys to show of them.
        config: The settings.
        ended: Whether the run has.
        tables: What it came to.
    """

    name: str
    claims: Sequence[Mapping[str, Any]]
    images: Sequence[tuple[Drawing, bytes]]
    rows: Sequence[Row]
    columns: Sequence[str]
    config: Mapping[str, Any]
    ended: bool = True
    tables: Sequence[Summary] = ()


def study_page(title: str, lead: str, facts: Sequence[str], runs: Sequence[RunView]) -> str:
    """One self-contained HTML page: nothing is requested from the network.

    Args:
        title: Heading of the page.
        lead: A sentence or two under it.
        facts: Short phrases: source, scale.
        runs: One, or several to be shown side by side.

    Returns:
        The page.
    """
    return rendered(
        "study.html.j2", title=title, lead=lead, facts=facts, runs=[_shown(run) for run in runs]
    )


def _shown(run: RunView) -> dict[str, Any]:
    """A run as the template takes it."""
    table = {
        part: [(place_of(row), [shown(row, key) for key in run.columns]) for row in layers]
        for part, layers in last_rows(run.rows).items()
    }
    return {
        "name": run.name,
        "ended": run.ended,
        "claims": claims_of(run.claims),
        "tables": run.tables,
        "images": [(drawing, _inline(svg)) for drawing, svg in run.images],
        "columns": run.columns,
        "table": table,
        "config": flat_config(run.config),
    }


def _inline(svg: bytes) -> str:
    """An image's address that holds the image."""
    return f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
