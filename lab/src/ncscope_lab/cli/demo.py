"""The command `ncscope demo`."""

from pathlib import Path
from typing import Annotated

import typer

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal, row_bar


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and records.")] = Path(
        "ncscope-demo"
    ),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights, data order and split.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Always so.", hidden=True)] = True,
) -> None:
    """Train a small residual network and measure every layer.

    If the folder holds the finished demo, its results are shown again.

    Example: ncscope demo --out my-run
    """
    from ncscope.report.tables import build_run_table
    from ncscope_lab.execution import run
    from ncscope_lab.report.rows import claims_table

    settings = {"seed": seed} if epochs is None else {"seed": seed, "epochs": epochs}
    with row_bar(pause=10) as on_row:
        found = run("pfc/demo", out=out, resume=resume, settings=settings, on_row=on_row)
    console = Terminal()
    if found.rows.measurements:
        console.print(build_run_table(found.rows.measurements))
    console.print(claims_table(found.claims))
    assert found.page is not None
    console.print(f"Report: {found.page.resolve().as_uri()}", soft_wrap=True)
