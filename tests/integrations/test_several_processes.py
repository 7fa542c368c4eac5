"""Two processes under a trainer log, and a metric computes, what one does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..closeness import numbers

pytestmark = pytest.mark.slow

PROGRAM = "tests.integrations.lightning_runs"
PATTERNS = "tests.integrations.patterns"


def run(processes: int, folder: Path) -> list[dict]:
    out = folder / str(processes)
    return results([PROGRAM, str(processes), str(out)], out, processes)


def results(arguments: list[str], out: Path, processes: int) -> list[dict]:
    command = [sys.executable, "-m", *arguments]
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
            assert numbers(rank[train][name]) == pytest.approx(
                expected, rel=1e-6, abs=1e-9, nan_ok=True
            )


def test_the_metric_computes_over_all_processes(both):
    (one,), two = both
    for rank in two:
        for expected, found in zip(one["metric"], rank["metric"], strict=True):
            assert found == pytest.approx(expected, rel=1e-10, abs=1e-12, nan_ok=True)
            assert len(found) > 20


@pytest.fixture(scope="module")
def patterns(tmp_path_factory) -> list[dict]:
    out = tmp_path_factory.mktemp("patterns") / "two"
    return results([PATTERNS, str(out)], out, 2)


@pytest.mark.parametrize("pattern", ["Apart", "Whole", "OnRankOne"])
def test_a_run_in_several_processes_is_the_run_without_the_callback(patterns, pattern):
    one, other = (rank[pattern] for rank in patterns)
    assert one["same"]
    assert other["same"]
    assert one["logged"] == other["logged"]
    assert "val/accuracy" in one["logged"]


@pytest.mark.parametrize("pattern", ["Apart", "Whole"])
def test_parts_are_measured_in_several_processes(patterns, pattern):
    for rank in patterns:
        assert rank[pattern]["steps"] == [["val", 2], ["train", 2], ["val", 4], ["train", 4]]
        assert rank[pattern]["samples"] == [48] * 4
        assert rank[pattern]["warnings"] == []


def test_an_error_in_one_process_ends_the_measuring_in_all(patterns):
    one, other = (rank["OnRankOne"] for rank in patterns)
    assert one["steps"] == other["steps"] == []
    (said,) = one["warnings"]
    assert "measuring neural collapse has ended" in said
    assert "found on rank 1: expected labels in 0..3, found label 100" in said
    assert other["warnings"] == []


@pytest.fixture(scope="module")
def transformers_runs(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("transformers")
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    out = folder / "rank"
    arguments = [*launcher, "-m", "tests.integrations.huggingface_runs", str(out)]
    return results(arguments, out, 2)


def test_transformers_in_several_processes(transformers_runs):
    for rank in transformers_runs:
        assert rank["vision"]["same"]
        assert rank["Wrong"]["same"]
        assert rank["vision"]["samples"] == [64] * 2  # the loader repeats samples of the last batch
        assert rank["vision"]["warnings"] == []
        assert len(rank["vision"]["calls"]) == 2
        assert rank["Wrong"]["samples"] == []
    one, other = (rank["vision"]["logged"] for rank in transformers_runs)
    assert one == other
    assert [rank["vision"]["alerts"] for rank in transformers_runs] == [2, 0]
    (said,) = transformers_runs[0]["Wrong"]["warnings"]
    assert "found on rank 1: expected labels in 0..3, found label 100" in said
