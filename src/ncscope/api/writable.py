"""Checks, before hours of work, that a file can be written; and writing it whole or not at all."""

import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncscope import files
from ncscope.errors import InputError
from ncscope.files import explain_write_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REPORTS = (".html", ".json", ".csv", ".tex", ".png", ".svg", ".pdf")
"""Suffixes of the files that a report or a history can be saved as."""

COMPARISONS = (".html", ".csv", ".tex", ".png", ".svg", ".pdf")
"""Suffixes of the files that a comparison can be saved as."""


def check_file(path: str | Path, suffixes: Collection[str] | None = None) -> Path:
    """Check that a file can be written at a path, and return the path.

    Args:
        path: Path of the file.
        suffixes: Suffixes of the kinds that can be written; None allows any.

    Raises:
        InputError: If the suffix is another, the path is a folder or a device, or its parent folder
            cannot be written.
    """
    path = Path(path)
    if suffixes is not None and path.suffix not in suffixes:
        expected = f"a file name ending in {', '.join(suffixes)}"
        raise InputError(expected=expected, found=str(path), fix="choose one of these suffixes")
    with explain_write_errors(path):  # Path.exists raises it for a name that is too long
        check_folder(path.parent)
        if path.exists() and not path.is_file():
            found, fix = "a folder" if path.is_dir() else "a device", "choose another name"
            raise InputError(expected=f"a file {path} to write", found=found, fix=fix)
    return path


def refuse_choice(path: Path, metrics: object) -> None:
    """Refuse a choice of metrics for a file that always holds all.

    Args:
        path: File to write.
        metrics: Choice of metrics; None is none.

    Raises:
        InputError: If the file is a page or JSON, and metrics are chosen.
    """
    if metrics is not None and path.suffix in (".html", ".json"):
        fix = "leave metrics out, or save as .csv, .tex, .png, .svg or .pdf"
        raise InputError(expected=f"all metrics in a {path.suffix}", found="a choice", fix=fix)


def save_bytes(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all.

    Raises:
        InputError: If writing fails, for example on a full disk.
    """
    with explain_write_errors(path):
        return files.write_bytes(path, content)


def save_text(path: Path, text: str) -> Path:
    """Write a text file as `save_bytes` does, with surrogates replaced by escapes."""
    with explain_write_errors(path):
        return files.write_text(path, text)


def write_figure(path: Path, figure: "Figure", **options: Any) -> Path:
    """Write a figure in the format of the path's suffix, whole or not at all.

    Args:
        path: Path of the file.
        figure: Figure to write.
        options: Options of ``Figure.savefig``.
    """
    content = io.BytesIO()  # savefig to a path would leave half a file if the disk is full
    figure.savefig(content, format=path.suffix[1:], **options)
    return save_bytes(path, content.getvalue())


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
