"""Live bars of long work, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from ncscope.cli.terminal import Terminal
from ncscope.errors import printable

if TYPE_CHECKING:
    from ncscope.training.loop import EpochEnd


@contextmanager
def row_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A live bar of the measurements; what it yields is called after each."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    from ncscope.training.work import first_process

    console = Terminal(stderr=True)
    hidden = not (console.is_terminal and first_process())
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("Starting", total=None)
        yield lambda part, done, total: progress.update(
            task, description=printable(part), completed=done, total=total
        )


@contextmanager
def epoch_bar(epochs: int) -> Iterator[Callable[["EpochEnd"], None]]:
    """Show a live bar of the epochs in a terminal; what it yields is called after each."""
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
