"""Writing files whole or not at all, and parsing YAML."""

import os
import tempfile
from pathlib import Path
from typing import Any


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
