"""Lock on the output folder of a run, and one-line errors of writing into it."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from ncscope.errors import InputError
from ncscope.files import explain_write_errors, read_file

name_write_errors = partial(
    explain_write_errors, fix="mend that, then resume from the last checkpoint, which is whole"
)
"""Context in which a path of a run is written; an OSError becomes an InputError."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against writes by other processes and by other runs of this process.

    The operating system holds the lock, and releases it when the process is killed.

    Args:
        folder: Existing output folder. Reading from a folder needs no lock.

    Raises:
        InputError: If the folder is locked (the message names the process that writes to it), or
            if the lock cannot be written.
    """
    file, holder = folder / ".lock", folder / ".locked-by"
    lock = FileLock(file)
    with name_write_errors(file):
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            found = f"{folder}, where {_describe_holder(holder)} writes"
            fix = "wait until it has ended, or pass another --out"
            expected = "an output folder that no other process writes to"
            raise InputError(expected=expected, found=found, fix=fix) from error
    try:
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with name_write_errors(holder):
            holder.write_text(f"process {os.getpid()} on {socket.gethostname()} since {since}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        # Remove the file while the lock is held: a process that waits for an unlinked file never
        # gets the lock. Windows cannot remove an open file; there releasing the lock removes it.
        if sys.platform != "win32":
            file.unlink(missing_ok=True)
        lock.release()


def _describe_holder(holder: Path) -> str:
    """Describe the process that holds a lock.

    While a process is taking or releasing the lock, there is no description of it.
    """
    try:
        content = read_file(holder, expected="a description of a process", fix="remove it")
    except InputError:
        return "another process"
    return content.decode(errors="replace")
