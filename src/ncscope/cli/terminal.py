"""Terminal of the commands: width, colours and progress bars."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.text import Text

from ncscope.errors import printable


class Terminal(Console):
    """A console that shows names from files and models as plain text.

    Control characters appear as visible escapes. Markup and emoji codes of rich appear unchanged: a
    layer may be named ``[red]`` or ``:warning:``.

    Args:
        stderr: Write to standard error if True.
        options: Options of rich's console.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render anything with printable text; all output passes through this method."""
        if isinstance(renderable, str):
            renderable = printable(renderable, keep="\n")
        elif isinstance(renderable, Text):
            plain = printable(renderable.plain, keep="\n")
            if plain != renderable.plain:
                renderable = renderable.copy()  # the caller's text stays as it is
                renderable.plain = plain
        return super().render(renderable, options)


@contextmanager
def row_bar(
    *, silent: bool = False, pause: float = 30.0
) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar while the block runs, or lines where there is no terminal.

    Args:
        silent: Show nothing if True, as in all processes of a run except the first.
        pause: Seconds at least before the first line on standard error, and from line to line.

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
    if not silent and not console.is_terminal:
        last, due = "", monotonic() + pause

        def write_line(part: str, done: int, total: int) -> None:
            nonlocal last, due
            if part != last and monotonic() >= due:
                last, due = part, monotonic() + pause
                percent = f"{done / total:.0%}" if total else ""
                print(f"{percent:>4} {printable(part)}", file=sys.stderr, flush=True)

        yield write_line
        return
    with Progress(*columns, console=console, transient=True, disable=silent) as progress:
        task = progress.add_task("Starting", total=None)
        yield lambda part, done, total: progress.update(
            task, description=printable(part), completed=done, total=total
        )
