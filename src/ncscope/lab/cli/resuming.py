"""Message of an interrupted run: how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def resumable(folder: Path | None) -> Iterator[None]:
    """Give an interruption of what runs inside the words that help to go on.

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
