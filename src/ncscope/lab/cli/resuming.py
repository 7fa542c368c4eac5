"""Message of an interrupted run: the command that resumes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
