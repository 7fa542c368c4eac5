"""A run killed at random moments, or while it writes, and resumed writes what one never does."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

RUNS = ("whole", "killed")
ROOT = Path(__file__).parents[3]


def killed(folder: Path, how: str, kills: int) -> str:
    program = [sys.executable, "-m", "lab.tests.training.killed"]
    done = subprocess.run(
        [*program, str(folder), how, str(kills), "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_as_never_killed(folder: Path, parts: tuple[str, ...], said: str) -> None:
    for name in ("metrics.jsonl", "history.json", "claims.json", "config.yaml", "report.html"):
        whole, resumed = ((folder / run / name).read_bytes() for run in RUNS)
        assert resumed == whole, f"{name} differs; {said}"
    for part in parts:
        ends = [folder / run / "checkpoints" / part / "checkpoint.pt" for run in RUNS]
        whole, resumed = (torch.load(end, weights_only=True)["learner"] for end in ends)
        assert repr(whole) == repr(resumed)
        for name, value in whole["model"].items():
            assert torch.equal(value, resumed["model"][name])
    assert not list(folder.rglob("*.part"))


@pytest.mark.slow
def test_a_run_killed_ten_times_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    said = killed(tmp_path, "random", kills=10)
    assert said.count("status 9,") >= 6, said
    assert_as_never_killed(tmp_path, ("plain", "averaged"), said)
    assert len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()) > 60


@pytest.mark.slow
def test_a_run_killed_while_it_writes_checkpoints_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    """Of a network so large that a write takes long enough to be seen."""
    said = killed(tmp_path, "writing", kills=3)
    assert said.count("status 9, left 1 half-written") == 3, said
    assert_as_never_killed(tmp_path, ("heavy",), said)
