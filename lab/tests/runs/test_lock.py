"""Only one process at a time writes into a folder; the second learns which one does."""

import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from ncscope.errors import InputError
from ncscope_lab.runs.lock import lock_folder


def in_a_child(act) -> int:
    """Start a process that acts and ends; its number."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_second_writer_is_told_who_writes_and_since_when(tmp_path):
    with lock_folder(tmp_path):
        with pytest.raises(InputError) as shown, lock_folder(tmp_path):
            pass
        said = (
            rf"expected an output folder that no other process writes to, found {tmp_path}, where "
            rf"process {os.getpid()} on {re.escape(socket.gethostname())} since "
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d writes; wait until it has ended, or pass"
        )
        assert re.match(said, str(shown.value))
    with lock_folder(tmp_path):
        pass


def test_nothing_is_left_also_after_an_error(tmp_path):
    def fail() -> None:
        with lock_folder(tmp_path):
            assert sorted(file.name for file in tmp_path.iterdir()) == [".lock", ".locked-by"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_writer_frees_the_folder_though_its_own_children_live_on(tmp_path):
    """Worker processes that read images ahead are forked, and hear of a kill seconds later."""
    folder, begun = tmp_path / "run", tmp_path / "begun"
    folder.mkdir()

    def write() -> None:
        with lock_folder(folder):
            worker = in_a_child(lambda: time.sleep(60))
            begun.with_suffix(".part").write_text(str(worker))
            begun.with_suffix(".part").rename(begun)
            time.sleep(60)

    child = in_a_child(write)
    wait_for(begun)
    try:
        with pytest.raises(InputError, match=f"where process {child} on "), lock_folder(folder):
            pass
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert (folder / ".locked-by").exists()
        with lock_folder(folder):
            assert f"process {os.getpid()} " in (folder / ".locked-by").read_text()
    finally:
        os.kill(int(begun.read_text()), signal.SIGKILL)
    assert list(folder.iterdir()) == []


def test_a_writer_that_is_just_ending_has_no_name(tmp_path):
    with lock_folder(tmp_path):
        (tmp_path / ".locked-by").unlink()
        with pytest.raises(InputError, match="where another process writes"), lock_folder(tmp_path):
            pass


@pytest.mark.slow
def test_many_processes_are_never_inside_at_once(tmp_path):
    """Each says by a file that it is inside. The lock's file comes and goes."""
    folder, inside = tmp_path / "run", tmp_path / "inside"
    folder.mkdir()

    def enter_often() -> None:
        entered, deadline = 0, time.monotonic() + 20
        while entered < 25 and time.monotonic() < deadline:
            try:
                with lock_folder(folder):
                    inside.touch(exist_ok=False)
                    time.sleep(0.001)
                    inside.unlink()
                    entered += 1
            except InputError:
                pass
        assert entered == 25

    children = [in_a_child(enter_often) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_one_sentence(tmp_path):
    (tmp_path / ".lock").mkdir()
    with (
        pytest.raises(InputError, match=r"expected to write .*\.lock, found"),
        lock_folder(tmp_path),
    ):
        pass
