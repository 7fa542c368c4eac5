"""A run killed at random moments and resumed writes what one never killed does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def killed(folder: Path, kills: int, seed: int) -> str:
    command = [sys.executable, "-m", "tests.training.killed", str(folder), str(kills), str(seed)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("kills", "seed"), [(10, 1)])
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path, kills: int, seed: int) -> None:
    said = killed(tmp_path, kills, seed)
    assert said.count("status 9,") >= kills // 2, said
    for name in ("metrics.jsonl", "claims.json", "config.yaml", "report.html"):
        whole, resumed = ((tmp_path / run / name).read_bytes() for run in ("whole", "killed"))
        assert resumed == whole, f"{name} differs; {said}"
    assert len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()) > 60
