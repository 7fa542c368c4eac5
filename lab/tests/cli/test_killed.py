"""A run killed at any of twelve moments and resumed leaves what one leaves that nobody killed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KILLS = 12


def files_of(folder: Path) -> dict[str, bytes]:
    """Read every file but checkpoints and TensorBoard's events, which hold the time."""
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    return {
        name: file.read_bytes()
        for name, file in files.items()
        if not name.startswith("checkpoints/") or name.endswith(".part")
    }


@pytest.mark.slow
def test_a_run_killed_at_any_moment_resumes_to_the_same_files(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "lab.tests.cli.killed", str(tmp_path), str(KILLS)]
    done = subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill ") == KILLS
    whole = files_of(tmp_path / "whole")
    assert {"metrics.jsonl", "claims.json", "finished.json", "figures/norms.svg"} <= set(whole)
    for kill in range(KILLS):
        assert files_of(tmp_path / f"killed {kill}") == whole, done.stdout
