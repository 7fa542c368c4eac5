"""MkDocs hook: the table of networks that packages ship, from the file of their measurements."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

_MARK = "<!-- shipped networks -->"
_MEASUREMENTS = Path(__file__).parents[1] / "figures" / "shipped-networks.json"
_COLUMNS: Mapping[str, str] = {
    "samples": "samples",
    "classes": "K",
    "dimension": "d",
    "accuracy": "accuracy",
    "nc1": "NC1",
    "nc1_by_chance": "by chance",
    "nc1_of_right_answers": "of right answers",
    "nc1_quotient": "PFC1",
    "nc2_etf": "NC2",
    "nc2_by_chance": "by chance",
    "nc3_self_duality": "NC3",
    "nc4_disagreement": "NC4",
}
_COUNTS = ("samples", "classes", "dimension")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the table.

    Args:
        markdown: Source of a page.
        page: Page that is being built.
    """
    return markdown.replace(_MARK, write_table()) if _MARK in markdown else markdown


def write_table() -> str:
    """Return a table of one row a network."""
    lines = [f"| network | {' | '.join(_COLUMNS.values())} |", "|---" * (1 + len(_COLUMNS)) + "|"]
    for name, values in json.loads(_MEASUREMENTS.read_text(encoding="utf-8")).items():
        cells = [f"{values[key]:,}" if key in _COUNTS else f"{values[key]:.3g}" for key in _COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
