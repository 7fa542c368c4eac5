"""Progress of runs, and messages that end one: tables, or how to resume."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from ncscope.cli.terminal import Terminal
from ncscope.errors import printable

if TYPE_CHECKING:
    from ncscope_lab.execution import ExperimentRun
    from ncscope_lab.sweeps.requests import OnChange, RunProgress

_MOST_SHOWN = 12
"""Number of running runs shown at a time, so that the progress bars fit a terminal."""


def show(run: "ExperimentRun") -> None:
    """Print a run's rows, its claims and the path of its report."""
    from ncscope.report.tables import build_summary_table
    from ncscope_lab.report.rows import claims_table, rows_table

    console = Terminal()
    if run.experiment.columns:
        console.print(rows_table(run.rows, run.experiment.columns))
    for summary in run.tables():
        console.print(build_summary_table(summary))
    if run.claims:
        console.print(claims_table(run.claims))
    if run.page is not None:
        console.print(f"Report: {run.page.resolve().as_uri()}", soft_wrap=True)


@contextmanager
def resumable(folder: Path | None) -> Iterator[None]:
    """Add to an interruption inside the context a message that says how to resume the run.

    Args:
        folder: Folder of the run; None for a run that writes nothing.
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        if folder is None:
            raise
        message = f"run the same command with --resume to go on with {folder}"
        raise KeyboardInterrupt(message) from stop


def print_failures(failures: Mapping[str, str], verb: str = "failed") -> None:
    """Print a line for each failed run.

    Args:
        failures: Reason of each failure, by name of the run.
        verb: Verb of the line.
    """
    console = Terminal()
    for name, failure in failures.items():
        message = f"{printable(name)} {verb}: {printable(failure)}"
        console.print(message, style="red", markup=False, soft_wrap=True)


@contextmanager
def run_bars() -> Iterator["OnChange"]:
    """Show a progress bar of all runs, and one of each run in progress."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[part]}", markup=False),
        TimeElapsedColumn(),
    )
    console = Terminal(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        runs = progress.add_task("Runs", total=None, part="")
        bars: dict[str, TaskID] = {}

        def on_change(positions: Mapping[str, "RunProgress"]) -> None:
            over = [name for name, at in positions.items() if at.state in ("ended", "failed")]
            progress.update(runs, completed=len(over), total=len(positions))
            for name in over:
                if name in bars:
                    progress.remove_task(bars.pop(name))
            for name, at in positions.items():
                if at.state != "running" or (name not in bars and len(bars) >= _MOST_SHOWN):
                    continue
                if name not in bars:
                    bars[name] = progress.add_task(f"  {printable(name)}", total=None, part="")
                total = at.total or None
                progress.update(bars[name], completed=at.done, total=total, part=printable(at.part))

        yield on_change
