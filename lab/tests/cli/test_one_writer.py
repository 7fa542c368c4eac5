"""Commands that write a run folder, met by a process that writes there already."""

import os
import signal
import time

import pytest
from lab.tests.cli.commands import ran as run_command
from lab.tests.cli.commands import start_run
from lab.tests.tiny import halving
from lab.tests.tiny.halving import list_alone

from ncscope_lab.catalogue import find_experiment
from ncscope_lab.runs.lock import lock_folder

COMMANDS = (
    "run xufm/ufm",
    "run geodesic --set start=2",
    "sweep xufm/ufm --over start=2,4",
    "demo --epochs 1",
)


@pytest.fixture
def with_halving(monkeypatch):
    """The tests' own experiment stands in the catalogue under every name but the demo's."""
    list_alone(monkeypatch, halving.EXPERIMENT, find_experiment("pfc/demo"))


@pytest.mark.parametrize("words", COMMANDS)
def test_a_folder_that_is_written_to_is_left_alone(words, with_halving, capsys, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    again = [] if words.startswith("demo") else ["--resume"]
    with lock_folder(folder):
        held = sorted(folder.iterdir())
        for given in ([], again):
            assert run_command(*words.split(), "--out", folder, *given) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert f"{folder}, where process {os.getpid()} on " in err
        assert sorted(folder.iterdir()) == held


@pytest.mark.slow
def test_a_run_of_a_sweep_that_is_written_to_fails_alone(with_halving, capsys, tmp_path):
    taken = tmp_path / "start=2.0"
    taken.mkdir()
    words = ["sweep", "xufm/ufm", "--over", "start=2,4", "--out", tmp_path]
    with lock_folder(taken):
        assert run_command(*words) == 1
    assert "start=2.0 failed: expected an output folder that no" in capsys.readouterr().out
    assert (tmp_path / "start=4.0" / "report.html").exists()
    assert run_command(*words, "--resume") == 0


def test_a_report_needs_no_lock(with_halving, capsys, tmp_path):
    assert run_command("run", "xufm/ufm", "--out", tmp_path / "run") == 0
    with lock_folder(tmp_path / "run"):
        assert run_command("report", tmp_path / "run", "--save", tmp_path / "page.html") == 0


@pytest.mark.nightly
def test_the_second_of_two_commands_names_the_first(tmp_path):
    first = start_run(tmp_path / "run")
    while not (tmp_path / "run" / ".locked-by").exists():
        assert first.poll() is None
        time.sleep(0.001)
    first.send_signal(signal.SIGSTOP)  # it has not ended when the second begins
    second = start_run(tmp_path / "run", "--resume")
    out, err = second.communicate()
    assert (second.returncode, out, err.count("\n")) == (2, "", 1)
    assert f"where process {first.pid} on " in err
    first.kill()
    first.communicate()
    third = start_run(tmp_path / "run", "--resume")
    third.communicate()
    assert third.returncode == 0
