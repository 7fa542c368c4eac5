"""A run killed at random moments and resumed writes what one never killed does."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

RUNS = ("whole", "killed")
ROOT = Path(__file__).parents[2]


def killed(folder: Path, kills: int, seed: int) -> str:
    command = [sys.executable, "-m", "tests.training.killed", str(folder), str(kills), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_killed_ten_times_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    said = killed(tmp_path, kills=10, seed=1)
    assert said.count("status 9,") >= 6, said
    for name in ("metrics.jsonl", "claims.json", "config.yaml", "report.html"):
        whole, resumed = ((tmp_path / run / name).read_bytes() for run in ("whole", "killed"))
        assert resumed == whole, f"{name} differs; {said}"
    for part in ("plain", "averaged"):
        ends = [tmp_path / run / "checkpoints" / part / "checkpoint.pt" for run in RUNS]
        whole, resumed = (torch.load(end, weights_only=True)["learner"] for end in ends)
        assert repr(whole) == repr(resumed)
        for name, value in whole["model"].items():
            assert torch.equal(value, resumed["model"][name])
    assert len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()) > 60
