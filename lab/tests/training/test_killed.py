"""A run killed while it writes a checkpoint, and resumed, writes what one never does."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
KILLS = 2


@pytest.mark.nightly
def test_a_run_killed_while_it_writes_checkpoints_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    """Of a network so large that a write takes long enough to be seen."""
    done = subprocess.run(
        [sys.executable, "-m", "lab.tests.training.killed", str(tmp_path), str(KILLS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("status 9, left 1 half-written") == KILLS, done.stdout
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for name in ("metrics.jsonl", "history.json", "claims.json", "config.yaml", "report.html"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), (name, done.stdout)
    ends = [folder / "checkpoints" / "heavy" / "checkpoint.pt" for folder in (whole, killed)]
    expected, found = (torch.load(end, weights_only=True)["learner"] for end in ends)
    assert repr(found) == repr(expected)
    for name, value in expected["model"].items():
        assert torch.equal(value, found["model"][name])
    assert not list(tmp_path.rglob("*.part"))
