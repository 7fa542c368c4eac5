"""Files are written whole, under any name, to what a link leads to and to nothing but files."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ncscope.files import write_bytes, write_text


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Let no file grow beyond a number of bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_text(path, "old")
    with at_most(1000), pytest.raises(OSError, match=r"File too large: '.*/report\.html'"):
        write_bytes(path, bytes(2000))
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]
    with pytest.raises(FileNotFoundError, match=r"No such file.*: '.*/none/report\.html'"):
        write_bytes(tmp_path / "none" / "report.html", b"")


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127, os.fsdecode(b"r\xff\x1b.html")])
def test_a_name_that_the_file_system_allows(name: str, tmp_path: Path) -> None:
    assert write_text(tmp_path / name, "new") == tmp_path / name
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "report.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")


def test_a_folder_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    folder, pipe, link = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    folder.mkdir()
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (folder, pipe, link):
        with pytest.raises(OSError, match="a folder or a device of that name"):
            write_text(path, "new")
    assert pipe.is_fifo()
    assert len(list(tmp_path.iterdir())) == 3
