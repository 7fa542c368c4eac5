"""Messages that end a run of a study: tables, or how to resume."""

from typing import TYPE_CHECKING

from ncscope.cli.terminal import Terminal

if TYPE_CHECKING:
    from ncscope.lab.runs.running import StudyRun
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def show(run: "StudyRun") -> None:
    """Print a run's rows, its claims and the path of its report, on the first process only."""
    from ncscope.lab.runs.resources import first_process

    if not first_process():
        return
    from ncscope.lab.report.rows import claims_table, rows_table
    from ncscope.report.summary import summary_table

    console = Terminal()
    console.print(rows_table(run.rows, run.study.columns))
    for summary in run.tables():
        console.print(summary_table(summary))
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
