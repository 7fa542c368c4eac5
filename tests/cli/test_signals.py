"""The command ends by a signal without a traceback, at any moment, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.interrupting import heeds_control_c
from tests.pace import others_slow

# The lines of the installed script, and a signal as a module begins to load.
AT_IMPORT = """
import os, sys

class Finder:
    def find_spec(name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder)
from ncscope.cli import main
main()
"""
AT_ANY_TIME = "from ncscope.cli import main; print('ready', flush=True); main()"


def start(program: str, *words: object, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
        preexec_fn=heeds_control_c,
    )


@pytest.mark.parametrize(
    ("module", "number", "said"),
    others_slow(
        [
            ("ncscope.cli.running", signal.SIGINT, ""),
            ("typer", signal.SIGINT, ""),
            ("typer", signal.SIGTERM, ""),
            ("ncscope.cli.measure", signal.SIGINT, ""),
            ("numpy", signal.SIGINT, "error: interrupted\n"),  # the command itself loads that
            ("numpy", signal.SIGTERM, ""),
        ],
        ("typer", signal.SIGTERM, ""),
        ("numpy", signal.SIGINT, "error: interrupted\n"),
    ),
)
def test_a_signal_while_modules_load_ends_the_command_without_a_traceback(
    module: str, number: signal.Signals, said: str, tmp_path: Path
) -> None:
    program = AT_IMPORT.format(module=module, number=int(number))
    (tmp_path / "features.npz").touch()  # found before torch is loaded, and not read
    done = start(program, "measure", tmp_path / "features.npz", folder=tmp_path)
    assert done.communicate(timeout=60) == ("", said)
    assert done.returncode == 128 + number


# As C++ code of torch does with an exception that it cannot pass on.
ABORTING = AT_IMPORT.replace(
    "            os.kill(os.getpid(), {number})\n",
    "            try:\n"
    "                os.kill(os.getpid(), {number})\n"
    "                sum(range(1000))\n"
    "            except BaseException:\n"
    "                os.abort()\n",
)


@pytest.mark.parametrize(
    ("number", "said"),
    others_slow(
        [(signal.SIGINT, "error: interrupted\n"), (signal.SIGTERM, "")], (signal.SIGTERM, "")
    ),
)
def test_no_exception_is_raised_in_the_middle_of_torch(
    number: signal.Signals, said: str, tmp_path: Path
) -> None:
    program = ABORTING.format(module="torch.cuda", number=int(number))
    np.savez(tmp_path / "features.npz", features=np.eye(4), labels=np.arange(4) % 2)
    done = start(program, "measure", tmp_path / "features.npz", folder=tmp_path)
    assert done.communicate(timeout=60) == ("", said)
    assert done.returncode == 128 + number


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    ignoring = f"import signal; signal.signal({int(signal.SIGINT)}, signal.SIG_IGN)"
    program = AT_IMPORT.format(module="typer", number=int(signal.SIGINT))
    done = start(f"{ignoring}\n{program}", "--version", folder=tmp_path)
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (0, "")
    assert out


CLEANING = """
import os, signal, tempfile
from ncscope.cli import running, main

def working(arguments):
    with tempfile.TemporaryDirectory():
        os.kill(os.getpid(), signal.SIGTERM)

running.main = working
main()
"""


def test_sigterm_ends_the_command_after_clean_up(tmp_path: Path) -> None:
    done = start(CLEANING, folder=tmp_path)
    assert done.communicate(timeout=60) == ("", "")
    assert done.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


LOST = """
import os, tempfile, time
from ncscope.cli import running, main

class Leaving:
    def __del__(self):
        os.kill(os.getpid(), {number})
        sum(range(1000))

def working(arguments):
    with tempfile.TemporaryDirectory():
        Leaving()
        time.sleep(30)

running.main = working
main()
"""


def test_a_signal_in_a_destructor_is_not_lost(tmp_path: Path) -> None:
    done = start(LOST.format(number=int(signal.SIGTERM)), folder=tmp_path)
    assert done.communicate(timeout=20) == ("", "")  # nor shown as an exception that is ignored
    assert done.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_a_call_from_python_leaves_the_signals_alone() -> None:
    from ncscope.cli import main

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(SystemExit):
        main(["--version"])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        *((signal.SIGINT, seconds) for seconds in (0.05, 0.3, 1.0, 2.0)),
        *((signal.SIGTERM, seconds) for seconds in (0.1, 0.6, 1.5)),
        (signal.SIGKILL, 1.0),
    ],
)
def test_a_signal_at_any_time_leaves_nothing(
    seconds: float, number: signal.Signals, tmp_path: Path
) -> None:
    file, folder = tmp_path / "features.npz", tmp_path / "temporary"
    folder.mkdir()
    features = np.random.default_rng(0).normal(size=(20_000, 512)).astype(np.float32)
    np.savez(file, features=features, labels=np.arange(20_000) % 100)
    command = start(AT_ANY_TIME, "measure", file, "--json", folder=folder)
    assert command.stdout is not None
    assert command.stdout.readline() == "ready\n"
    time.sleep(seconds)
    command.send_signal(number)
    _, err = command.communicate(timeout=60)
    ended = -number if number == signal.SIGKILL else 128 + number
    assert command.returncode in (ended, 0), err  # 0: it had finished
    assert err in ("", "error: interrupted\n")
    assert list(folder.iterdir()) == []
