"""A lock on an output folder, for one process to write into it at a time."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ncscope.errors import InputError
from ncscope.training.disk import writing


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into a folder, and other runs of this process too.

    The operating system holds the lock, and frees it also when the process is killed.

    Args:
        folder: An output folder that exists. Reading it needs no lock.

    Raises:
        InputError: If the folder is locked; it names the process that writes there. Also if the
            lock cannot be written.
    """
    file, holder = folder / ".lock", folder / ".locked-by"
    lock = FileLock(file)
    with writing(file):
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            found = f"{folder}, where {_described(holder)} writes"
            fix = "wait until it has ended, or pass another --out"
            expected = "an output folder that no other process writes to"
            raise InputError(expected=expected, found=found, fix=fix) from error
    try:
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with writing(holder):
            holder.write_text(f"process {os.getpid()} on {socket.gethostname()} since {since}")
        yield
    finally:
        holder.unlink(missing_ok=True)
        # Removed while it is held: a lock on a file that has lost its name is never granted. On
        # Windows an open file cannot be removed, and releasing the lock removes it.
        if sys.platform != "win32":
            file.unlink(missing_ok=True)
        lock.release()


def _described(holder: Path) -> str:
    """Read who holds a lock; a process that takes or frees it this moment has no description."""
    try:
        return holder.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "another process"
