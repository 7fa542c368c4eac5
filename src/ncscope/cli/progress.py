"""Progress bars of long work, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from ncscope.cli.terminal import Terminal
from ncscope.errors import printable


@contextmanager
def row_bar(*, silent: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar of measurements while the block runs.

    Args:
        silent: Show nothing if True, as in all processes of a run except the first.

    Yields:
        Function of a description, the number done and the total; call it after each measurement.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Terminal(stderr=True)
    hidden = silent or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("Starting", total=None)
        yield lambda part, done, total: progress.update(
            task, description=printable(part), completed=done, total=total
        )
