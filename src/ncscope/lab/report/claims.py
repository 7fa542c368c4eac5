"""Table of claims and their verdicts, for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text


def claims_table(claims: Sequence[Mapping[str, Any]]) -> Table:
    """Build a table of claims: verdict, claim, and the evidence under it.

    Args:
        claims: Claims, each with ``claim``, ``held`` and ``evidence``.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Claims", title_justify="left")
    table.add_column("")
    table.add_column("claim and evidence")
    for claim in claims:
        held = Text("held", style="green") if claim["held"] else Text("not held", style="red")
        table.add_row(held, Text(f"{claim['claim']}\n").append(claim["evidence"], style="dim"))
    return table
