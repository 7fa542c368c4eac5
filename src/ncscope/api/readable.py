"""Checks, before torch is imported, that what a command reads is there."""

import json
from collections.abc import Iterable
from glob import has_magic
from pathlib import Path

from ncscope.errors import InputError
from ncscope.files import check_input, describe_fault, find_matches, is_folder


def is_address(file: str) -> bool:
    """Return whether a file is named by an address with a protocol, such as ``s3://``."""
    return "://" in file


def is_plain(pattern: str) -> bool:
    """Return whether a text is the path of one file: no address, and no pattern of several."""
    return not is_address(pattern) and (not has_magic(pattern) or not describe_fault(Path(pattern)))


def check_files(names: Iterable[str]) -> None:
    """Check that paths and patterns name files; an address is not looked up.

    Args:
        names: Paths, addresses, and patterns of both; ``-`` for standard input.

    Raises:
        InputError: If there is no file at a path, or no file matches a pattern.
    """
    for name in names:
        if name == "-" or is_address(name):
            continue
        if is_plain(name):
            check_input(Path(name))
        else:
            find_matches(name)


REPORT = "a report, a history or the folder of a run"
"""Words for what `ncscope.compare` reads."""

REPORT_FIX = "pass files that save wrote as .json, or folders of runs"


def check_reports(paths: Iterable[Path]) -> None:
    """Check that there is a file or a folder at each path.

    Raises:
        InputError: If there is nothing, a pipe or a device.
    """
    for path in paths:
        if not is_folder(path) and (fault := describe_fault(path)):
            raise InputError(expected=REPORT, found=fault, fix=REPORT_FIX)


def holds_ranking(content: bytes) -> bool:
    """Return whether a file that ncscope wrote holds a ranking of checkpoints."""
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(whole, dict) and "checkpoints" in whole
