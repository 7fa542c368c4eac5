"""Progress bar of a pass over a loader."""

from collections.abc import Iterable
from typing import Any


def with_progress(
    batches: Iterable[Any], total: int | None, what: str, show: bool
) -> Iterable[Any]:
    """Return batches that move a progress bar on stderr as they are read.

    Args:
        batches: Iterable of batches.
        total: Number of batches, if it is known.
        what: Word before the bar.
        show: Show the bar if True, and if stderr is a terminal.
    """
    # Imported inside `evaluation_mode`, which restores the random states: rich draws a number
    # when it is imported.
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    hidden = not (show and console.is_terminal)  # outside of a terminal, rich writes an empty line
    return track(batches, what, total, console=console, disable=hidden, transient=True)
