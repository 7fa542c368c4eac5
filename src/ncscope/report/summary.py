"""Summary of a whole study: a small table of words and numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable

_NAME_WIDTH = 40
"""Columns of the terminal within which a line's name is not broken."""


@dataclass(frozen=True)
class Summary:
    """A table in a paper's arrangement.

    Attributes:
        caption: Description of the cells.
        columns: Heads of the columns after the first.
        lines: The cells of a line, by the name in its first column.
        title: Heading of the table on a page.
    """

    caption: str
    columns: Sequence[str]
    lines: Mapping[str, Sequence[str]]
    title: str = ""


def summary_table(summary: Summary) -> Table:
    """Build the table for the terminal.

    Args:
        summary: Summary to show.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption=summary.caption,
        caption_justify="left",
    )
    widest = min(_NAME_WIDTH, max(map(len, summary.lines), default=0))
    table.add_column("", min_width=widest, overflow="fold")
    for column in summary.columns:
        table.add_column(column, justify="right", vertical="bottom")
    for name, cells in summary.lines.items():
        table.add_row(Text(printable(name)), *map(Text, cells))
    return table
