"""The page of a study: claims first, then the figures, then the numbers."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from ncscope.probing.records import Row
from ncscope.report.drawing import Drawing
from ncscope.report.overview import claims_of, flat_config
from ncscope.report.page import rendered
from ncscope.report.rows import last_rows, shown


def study_page(
    *,
    title: str,
    lead: str,
    facts: Sequence[str],
    claims: Sequence[Mapping[str, Any]],
    images: Sequence[tuple[Drawing, bytes]],
    rows: Sequence[Row],
    columns: Sequence[str],
    config: Mapping[str, Any],
) -> str:
    """One self-contained HTML page: nothing is requested from the network.

    Args:
        title: Heading of the page.
        lead: A sentence or two under it.
        facts: Short phrases: source, scale.
        claims: ``claim``, ``held`` and ``evidence`` each.
        images: The drawings, each with its SVG file.
        rows: Every measurement; the last of each part and layer are shown.
        columns: Keys to show of them.
        config: The settings.

    Returns:
        The page.
    """
    table = {
        part: [(str(row.get("layer", "")), [shown(row, key) for key in columns]) for row in layers]
        for part, layers in last_rows(rows).items()
    }
    return rendered(
        "study.html.j2",
        title=title,
        lead=lead,
        facts=facts,
        claims=claims_of(claims),
        images=[(drawing, _inline(svg)) for drawing, svg in images],
        columns=columns,
        table=table,
        config=flat_config(config),
    )


def _inline(svg: bytes) -> str:
    """An image's address that holds the image."""
    return f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
