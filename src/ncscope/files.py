"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_text(path: Path, text: str) -> Path:
    """Write a text file: see `write_bytes`."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file; a reader, or a crash, sees the old content or the new, never a part.

    Raises:
        OSError: If the folder is missing or read-only, or the disk is full.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    """The permissions that new files go without; it can only be read by setting it."""
    current = os.umask(0)
    os.umask(current)
    return current
