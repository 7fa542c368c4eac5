"""Files are read and written whole, under any name; nothing but files, and what links lead to."""

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ncscope.errors import InputError
from ncscope.files import _create_partial_file, describe_fault, read_file, write_bytes, write_text


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


def test_only_files_are_read(tmp_path: Path) -> None:
    """Nothing is opened: a pipe would wait for ever."""
    file, folder, pipe, link = (tmp_path / name for name in ("file", "folder", "pipe", "link"))
    file.write_bytes(b"content")
    folder.mkdir()
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        faults = {
            folder: "the folder ",
            pipe: "a pipe, ",
            link: "a pipe, ",
            tmp_path / "socket": "a socket, ",
            Path("/dev/zero"): "a device, ",
            tmp_path / "none": "nothing at ",
            Path("x" * 5000): "File name too long",
            Path("a\0b"): "null",
        }
        for path, said in faults.items():
            assert said in describe_fault(path)
            with pytest.raises(InputError, match=f"expected a report, found .*{said}.*; mend it"):
                read_file(path, expected="a report", fix="mend it")
    link.unlink()
    link.symlink_to(file)
    assert read_file(link, expected="a report", fix="mend it") == b"content"


KILLED = """
import os, sys, time
from pathlib import Path
from ncscope.files import write_text
def wait(handle):
    print("writing", flush=True)
    time.sleep(60)
os.fsync = wait
write_text(Path(sys.argv[1]), "half")
"""


@pytest.mark.parametrize("name", ["report.html", "ä" * 127])
def test_what_a_killed_process_left_is_removed_by_the_next(name: str, tmp_path: Path) -> None:
    path, other = tmp_path / name, tmp_path / f"other-{name[:100]}"
    for each in (path, other):
        command = [sys.executable, "-c", KILLED, str(each)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
            write_text(path, "while it lives")
            assert len(list(tmp_path.glob("*.part"))) == 1
            process.send_signal(signal.SIGKILL)
        write_text(each, "new")
        assert not list(tmp_path.glob("*.part"))


def test_files_like_partial_ones_stay(tmp_path: Path) -> None:
    names = ("report.html.part", "report.html12345678.parts", "xreport.html12345678.part")
    for name in (*names, "report.html123456789.part"):
        (tmp_path / name).write_text("a user's")
    (tmp_path / "report.html12345678.part").mkdir()
    write_text(tmp_path / "report.html", "new")
    assert len(list(tmp_path.iterdir())) == 6


def test_a_partial_file_that_is_being_written_stays(tmp_path: Path) -> None:
    handle, name = _create_partial_file(tmp_path, "report.html")
    write_text(tmp_path / "report.html", "new")
    assert Path(name).exists()
    os.close(handle)
    write_text(tmp_path / "report.html", "newer")
    assert not Path(name).exists()


def test_writers_of_one_path_leave_the_whole_content_of_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    contents = [f"{index}" * 5000 for index in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_text(path, content), contents * 5))
    assert path.read_text() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_surrogates_are_written_as_escapes(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.txt", "run\udcff, größer 🙂")
    assert path.read_text(encoding="utf-8") == "run\\udcff, größer 🙂"
