"""Two processes under Fabric's launcher measure and train as one does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.closeness import numbers

pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).with_name("several_processes.py")


def run(processes: int, folder: Path) -> dict:
    out = folder / f"{processes}.json"
    command = [sys.executable, str(PROGRAM), str(processes), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    return run(1, folder), run(2, folder)


def test_two_processes_measure_what_one_does(both):
    one, two = (numbers(run["before"]) for run in both)
    assert len(one) > 100
    assert two == pytest.approx(one, rel=1e-10, abs=1e-12, nan_ok=True)


def test_two_processes_train_to_what_one_does(both):
    assert [run["step"] for run in both] == [20, 20]
    before, one, two = (
        numbers(record) for record in (both[0]["before"], *(r["after"] for r in both))
    )
    assert one["blocks.2 nc1"] != pytest.approx(before["blocks.2 nc1"], rel=0.05)
    assert two == pytest.approx(one, rel=1e-6, abs=1e-9, nan_ok=True)
