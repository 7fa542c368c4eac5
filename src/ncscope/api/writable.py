"""Checks that a file can be written, before hours of work."""

import os
from pathlib import Path

from ncscope.errors import InputError


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
