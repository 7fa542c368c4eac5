"""Messages of a run that cannot write to disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncscope.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a disk's refusal, for one that is full, into a sentence.

    Args:
        path: Path of the file written inside, whole or not at all.

    Raises:
        InputError: Instead of OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            expected=f"to write {path}",
            found=error.strerror or str(error),
            fix="mend that, then resume from the last checkpoint, which is whole",
        ) from error
