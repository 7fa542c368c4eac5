"""Two processes under Lightning's trainer log, and a metric computes, what one does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..closeness import numbers

pytestmark = pytest.mark.slow

PROGRAM = "tests.integrations.lightning_runs"


def run(processes: int, folder: Path) -> list[dict]:
    out = folder / str(processes)
    command = [sys.executable, "-m", PROGRAM, str(processes), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(out.with_suffix(f".{rank}.json").read_text()) for rank in range(processes)]


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[list[dict], list[dict]]:
    folder = tmp_path_factory.mktemp("processes")
    return run(1, folder), run(2, folder)


@pytest.mark.parametrize("train", ["pass", "steps"])
def test_the_callback_measures_everybodys_samples(both, train):
    (one,), two = both
    for name in ("train", "val"):
        expected = numbers(one[train][name])
        assert len(expected) > 50
        for rank in two:
            assert numbers(rank[train][name]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_the_metric_computes_over_all_processes(both):
    (one,), two = both
    for rank in two:
        for expected, found in zip(one["metric"], rank["metric"], strict=True):
            assert found == pytest.approx(expected, rel=1e-10, abs=1e-12, nan_ok=True)
            assert len(found) > 20
