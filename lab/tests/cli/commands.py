"""The command line called in this process, or started as a program."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncscope.cli import main

ROOT = Path(__file__).parents[3]
NCSCOPE = Path(sys.executable).with_name("ncscope")


def ran(*arguments: object) -> int:
    """Run the command and return its exit code."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def start_run(folder: Path, *words: str, **given: Any) -> subprocess.Popen[str]:
    """Start the installed command on an experiment that waits before each of its rows."""
    experiment = ROOT / "lab" / "tests" / "tiny" / "waiting.py"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [NCSCOPE, "run", experiment, "--set", "wait=0.5", "--out", folder, *words],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **given,
    )
