"""Checks that a file can be written, before hours of work, and files of figures."""

import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope.errors import InputError
from ncscope.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def checked_file(path: str | Path, suffixes: Collection[str]) -> Path:
    """Return a path at which a file of a known kind can be written.

    Args:
        path: Path of the file.
        suffixes: Suffixes of the kinds that can be written.

    Raises:
        InputError: If the suffix is another, or the path cannot be written.
    """
    path = Path(path)
    if path.suffix not in suffixes:
        expected = f"a file name ending in {', '.join(suffixes)}"
        raise InputError(expected=expected, found=str(path), fix="choose one of these suffixes")
    check_file(path)
    return path


def write_figure(path: Path, figure: "Figure", **options: Any) -> Path:
    """Write a figure in the format of the path's suffix, whole or not at all.

    Args:
        path: Path of the file.
        figure: Figure to write.
        options: Options of ``Figure.savefig``.
    """
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], **options)
    return write_bytes(path, content.getvalue())


def check_file(path: Path) -> None:
    """Refuse a path at which no file can be written.

    Raises:
        InputError: If the path is a folder or a device, or its parent folder cannot be written.
    """
    check_folder(path.parent)
    if path.exists() and not path.is_file():
        found = "a folder" if path.is_dir() else "a device"
        raise InputError(expected=f"a file {path} to write", found=found, fix="choose another name")


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written in.

    Raises:
        InputError: If it does not exist, is no folder, or is read-only.
    """
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        found = "none of that name"
        if folder.exists():
            found = "a read-only folder" if folder.is_dir() else "a file of that name"
        fix = "make it, or choose another"
        raise InputError(expected=f"a folder {folder} to write in", found=found, fix=fix)
