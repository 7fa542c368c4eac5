"""Reads of regular files, writes that are complete or change nothing, and parsing of YAML."""

import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any

from ncscope.errors import InputError

_LONGEST_NAME, _SUFFIX_LENGTH = 255, len("12345678.part")
"""Longest name that file systems allow, and length of the suffix of a file being written, in bytes.
"""


def describe_fault(path: Path) -> str:
    """Return why a path is no file that can be read; empty for a file, or a link to one.

    A pipe or a socket may never give anything, and a device such as ``/dev/zero`` never ends: they
    must be refused before they are opened.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"nothing at {path}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    except ValueError as error:  # a NUL in the path
        return f"{path}: {error}"
    kinds = {
        stat.S_IFREG: "",
        stat.S_IFDIR: f"the folder {path}",
        stat.S_IFIFO: f"a pipe, {path}",
        stat.S_IFSOCK: f"a socket, {path}",
    }
    return kinds.get(stat.S_IFMT(mode), f"a device, {path}")


def check_input(path: Path) -> None:
    """Check that there is a file to read at a path.

    Raises:
        InputError: If there is nothing, a folder, a pipe, a socket or a device.
    """
    fault = describe_fault(path)
    if not fault:
        return
    fix = "check the path"
    if fault.startswith("the folder"):
        fix = f"name its files: '{path}/*'"
    elif fault.startswith(("a pipe", "a device")):
        fix = "write its content to a file; ncscope measure reads standard input as -"
    raise InputError(expected="a file", found=fault, fix=fix)


def find_matches(pattern: str) -> list[str]:
    """Return the files that a pattern of this machine names, in order of name.

    Args:
        pattern: Pattern with ``*``, ``?`` or ``[...]``.

    Raises:
        InputError: If there is none.
    """
    # Path.glob takes no absolute patterns.
    files = sorted(glob(pattern, recursive=True))  # noqa: PTH207
    if not files:
        raise refuse_pattern(pattern)
    return files


def refuse_pattern(pattern: str) -> InputError:
    """Return the error for a pattern that names no file."""
    fix = "check the pattern, and quote it so that the shell leaves it alone"
    return InputError(expected=f"files that match {pattern}", found="none", fix=fix)


def is_folder(path: Path) -> bool:
    """Return whether there is a folder at a path; unlike Path.is_dir, never raise an error."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path) -> bool:
    """Return whether there is a file at a path; unlike Path.is_file, never raise an error."""
    return os.path.isfile(path)  # noqa: PTH113


def read_file(path: Path, *, expected: str, fix: str) -> bytes:
    """Return the content of a file.

    Args:
        path: Path of the file.
        expected: Description of the content, for the message.
        fix: Remedy, for the message.

    Raises:
        InputError: If there is no file but a folder, a pipe or a device, or the file cannot be
            read.
    """
    fault = describe_fault(path)
    if not fault:
        try:
            return path.read_bytes()
        except OSError as error:
            fault = f"{path}: {error.strerror}"
    raise InputError(expected=expected, found=fault, fix=fix)


def replace_surrogates(text: str) -> str:
    r"""Replace bytes that are no UTF-8, which file names may hold, by escapes such as ``\udcff``.

    Example:
        >>> print(replace_surrogates("run\udcff"))
        run\udcff
    """
    return text.encode(errors="backslashreplace").decode()


@contextmanager
def explain_write_errors(
    path: Path, fix: str = "free space, or choose another path"
) -> Iterator[None]:
    """Re-raise an OSError, for example from a full disk, as InputError.

    Args:
        path: Path of the file or folder that is written inside the context.
        fix: Remedy for the message.

    Raises:
        InputError: In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(expected=f"to write {path}", found=found, fix=fix) from error


def write_text(path: Path, text: str) -> Path:
    """Write a text file as `write_bytes` does, and surrogates as `replace_surrogates` does."""
    return write_bytes(path, replace_surrogates(text).encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file; after a crash, and for every reader, it has the old content or the new.

    Partial files that killed processes left of earlier writes to the path are removed.

    Raises:
        OSError: If the folder is missing or read-only, or the disk is full; the error names the
            path.
    """
    try:
        target = Path(os.path.realpath(path))  # replaces the target of a link, not the link
        if target.exists() and not target.is_file():  # a rename would replace a device
            raise OSError(errno.EINVAL, "a folder or a device of that name")
        prefix = os.fsdecode(os.fsencode(target.name)[: _LONGEST_NAME - _SUFFIX_LENGTH])
        _remove_partial_files(target.parent, prefix)
        handle, name = _create_partial_file(target.parent, prefix)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                # The bytes reach the disk before the name does: after a crash of the machine, the
                # name could otherwise be there with an empty file.
                os.fsync(file.fileno())
                if sys.platform != "win32":  # keep the lock until the file has its own name
                    _rename(name, target)
            if sys.platform == "win32":  # an open file cannot be renamed there
                _rename(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    return path


def _rename(name: str, target: Path) -> None:
    # mkstemp makes files that their owner alone can read; the file gets the usual permissions. The
    # process's umask can only be read by setting it.
    umask = os.umask(0)
    os.umask(umask)
    Path(name).chmod(0o666 & ~umask)
    Path(name).replace(target)


def _create_partial_file(folder: Path, prefix: str) -> tuple[int, str]:
    """Create a partial file; return its handle, which holds a lock on the file, and its name."""
    while True:
        handle, name = tempfile.mkstemp(dir=folder, prefix=prefix, suffix=".part")
        _lock(handle, wait=True)
        # Another process may have locked and removed the file before this one locked it.
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)


def _remove_partial_files(folder: Path, prefix: str) -> None:
    """Remove the partial files of a name on which no living process holds a lock."""
    if sys.platform == "win32":  # without these locks
        return
    for entry in os.scandir(folder):
        name = entry.name
        if not (name.startswith(prefix) and name.endswith(".part")):
            continue
        if len(name) != len(prefix) + _SUFFIX_LENGTH or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(OSError):  # another process may have removed it, or owns it
            handle = os.open(entry.path, os.O_RDWR)
            try:
                if _lock(handle, wait=False):
                    Path(entry.path).unlink()
            finally:
                os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file until it is closed, also by the death of the process.

    Return whether it is locked: another process may hold the lock, or the file system have none.
    """
    if sys.platform == "win32":
        return False
    from fcntl import LOCK_EX, LOCK_NB, flock

    try:
        flock(handle, LOCK_EX if wait else LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def parse_yaml(text: str) -> Any:
    """Parse YAML, and raise one type of error for any text that is no YAML.

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
