"""Conversion of disk errors of a run into readable messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncscope.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Re-raise an OSError, for example from a full disk, as InputError.

    Args:
        path: Path of the file that is written atomically inside the context.

    Raises:
        InputError: In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            expected=f"to write {path}",
            found=error.strerror or str(error),
            fix="mend that, then resume from the last checkpoint, which is whole",
        ) from error
