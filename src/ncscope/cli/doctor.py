"""The command `ncscope doctor`."""

from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal


@app.command()
def doctor(
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")] = Path("data"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON list only.")] = False,
) -> None:
    """Show versions, devices, threads, folders and data sets.

    Example: ncscope doctor

    Example: ncscope doctor --data ~/data --json
    """
    from ncscope.api.doctor import check_installation, results_json

    results = check_installation(data)
    if json:
        print(results_json(results))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("", "state", "remedy"):
        table.add_column(column, overflow="fold")
    for part, rows in groupby(results, key=attrgetter("part")):
        table.add_section()
        table.add_row(Text(part, style="bold"))
        for row in rows:
            table.add_row(f"  {row.name}", Text(row.state), Text(row.fix, style="dim"))
    Terminal().print(table)
