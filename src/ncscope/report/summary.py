"""What a whole study came to, as a small table of words and numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table


@dataclass(frozen=True)
class Summary:
    """A table in a paper's arrangement.

    Attributes:
        caption: What the cells are.
        columns: Heads of the columns after the first.
        lines: The cells of a line, by the name in its first column.
    """

    caption: str
    columns: Sequence[str]
    lines: Mapping[str, Sequence[str]]


def summary_table(summary: Summary) -> Table:
    """The table for the terminal.

    Args:
        summary: What to show.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        caption=summary.caption,
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    for column in summary.columns:
        table.add_column(column, justify="right", vertical="bottom")
    for name, cells in summary.lines.items():
        table.add_row(name, *cells)
    return table
