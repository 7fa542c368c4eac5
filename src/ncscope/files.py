"""Writing files whole or not at all, and parsing YAML."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

_LONGEST_NAME, _ADDED = 255, len("12345678.part")
"""Bytes that file systems allow in a name, and that the name of a file being written has more."""


def write_text(path: Path, text: str) -> Path:
    """Write a text file: see `write_bytes`."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file; a reader, or a crash, sees the old content or the new, never a part.

    Raises:
        OSError: If the folder is missing or read-only, or the disk is full; it names the path.
    """
    try:
        _write_whole(path, content)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return path


def _write_whole(path: Path, content: bytes) -> None:
    target = Path(os.path.realpath(path))  # a link stays, and what it leads to is replaced
    if target.exists() and not target.is_file():  # a rename would put a file in its place
        raise OSError(errno.EINVAL, "a folder or a device of that name")
    prefix = os.fsdecode(os.fsencode(target.name)[: _LONGEST_NAME - _ADDED])
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return the permissions that new files go without; they can only be read by setting them."""
    current = os.umask(0)
    os.umask(current)
    return current


def parse_yaml(text: str) -> Any:
    """Parse YAML, and raise one kind of error for any text that is none.

    Args:
        text: Any text.

    Raises:
        ValueError: If it is no YAML, or nested too deep.
    """
    import yaml

    try:
        return yaml.safe_load(text)
    # PyYAML lets through what its constructors meet: `!!int ''` is an IndexError, `!!bool x` a
    # KeyError, `!!timestamp x` an AttributeError, and a list as a merged key a TypeError.
    except (yaml.YAMLError, LookupError, AttributeError, TypeError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise ValueError(message) from error
