"""Writing files completely or not at all, and parsing YAML."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

_LONGEST_NAME, _ADDED = 255, len("12345678.part")
"""Longest name that file systems allow, and length of the suffix of a file being written, in bytes.
"""


def write_text(path: Path, text: str) -> Path:
    """Write a text file as `write_bytes` does."""
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file; after a crash, and for every reader, it has the old content or the new.

    Raises:
        OSError: If the folder is missing or read-only, or the disk is full; the error names the
            path.
    """
    try:
        _write_whole(path, content)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return path


def _write_whole(path: Path, content: bytes) -> None:
    target = Path(os.path.realpath(path))  # replaces the target of a link, not the link
    if target.exists() and not target.is_file():  # a rename would replace a device
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
    """Return the process's umask, which can only be read by setting it."""
    current = os.umask(0)
    os.umask(current)
    return current


def parse_yaml(text: str) -> Any:
    """Parse YAML, and raise one type of error for any text that is no YAML.

    Args:
        text: Any text.

    Raises:
        ValueError: If the text is no YAML, or nested too deeply.
    """
    import yaml

    try:
        return yaml.safe_load(text)
    # PyYAML does not catch errors in its constructors: `!!int ''` raises an IndexError, `!!bool x`
    # a KeyError, `!!timestamp x` an AttributeError, and a list as a merged key a TypeError.
    except (yaml.YAMLError, LookupError, AttributeError, TypeError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise ValueError(message) from error
