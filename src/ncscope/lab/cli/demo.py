"""The command `ncscope demo`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from ncscope.cli.app import app
from ncscope.cli.terminal import Terminal

if TYPE_CHECKING:
    from ncscope.lab.training.loop import EpochEnd


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
    from ncscope.lab.demo.run import configured, run_demo
    from ncscope.lab.report.claims import claims_table
    from ncscope.report.tables import run_table

    config = configured(seed=seed, epochs=epochs)
    console = Terminal()
    with _epoch_bar(config.epochs) as advance:
        run = run_demo(out, config, advance)
    console.print(run_table(run.snapshots))
    console.print(claims_table(run.claims))
    console.print(f"Report: {run.page.resolve().as_uri()}", soft_wrap=True)


@contextmanager
def _epoch_bar(epochs: int) -> Iterator[Callable[["EpochEnd"], None]]:
    """Show a bar of epochs while the block runs; yield the function to call after each."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    console = Terminal(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("Training and measuring", total=epochs, loss=float("nan"))
        yield lambda end: progress.update(task, completed=end.epoch, loss=end.loss)
