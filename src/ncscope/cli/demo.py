"""The command `ncscope demo`."""

from pathlib import Path
from typing import Annotated

import typer

from ncscope.cli.app import app
from ncscope.cli.progress import epoch_bar
from ncscope.cli.terminal import Terminal


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and records.")] = Path(
        "ncscope-demo"
    ),
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, data order and split.")] = 0,
) -> None:
    """Train a small residual network and measure every layer.

    Example: ncscope demo --out my-run
    """
    from ncscope.api.demo import configured, run_demo
    from ncscope.report.claims import claims_table
    from ncscope.report.tables import run_table

    config = configured(seed=seed, epochs=epochs)
    console = Terminal()
    with epoch_bar(config.epochs) as advance:
        run = run_demo(out, config, advance)
    console.print(run_table(run.snapshots))
    console.print(claims_table(run.claims))
    console.print(f"Report: {run.page.resolve().as_uri()}", soft_wrap=True)
