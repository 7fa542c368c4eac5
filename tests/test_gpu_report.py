"""The report of `make gpu`: without a GPU one line, and a failed step stops nothing."""

import sys
import time
from pathlib import Path

import pytest
import torch
from benchmarks.gpu_report import WITHOUT_GPU, Step, main, report, steps

MACHINE = {"GPU": "a pretended one"}


def python(name: str, code: str, limit: float = 60) -> Step:
    return Step(name, [sys.executable, "-c", code], limit)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_and_no_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.md"
    assert main(["--out", str(path)]) == 2
    assert capsys.readouterr() == ("", WITHOUT_GPU + "\n")
    assert not path.exists()


def test_a_step_that_fails_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    planned = [
        python("first", "print('one'); raise SystemExit(3)"),
        Step("absent", ["/no/such/program"], 60),
        python("slow", "import time; print('begun', flush=True); time.sleep(600)", limit=1),
        python("last", f"print(open({str(path)!r}).read().count('failed'))"),
    ]
    start = time.monotonic()
    assert not report(planned, MACHINE, path, most=60)
    assert time.monotonic() - start < 30
    lines = path.read_text().splitlines()
    assert lines[0] == "# Measured on a GPU"
    assert "* GPU: a pretended one" in lines
    assert "1 of 4 steps passed; 4 were tried." in lines
    rows = [line.split(" | ")[:2] for line in lines if line.startswith("| ")][1:]
    assert [row[1] for row in rows if row[0] != "| absent"] == [
        "failed: exit code 3",
        "failed: not done after 1 s",
        "passed",
    ]
    assert "No such file" in rows[1][1]
    assert {"    one", "    begun", "    6"} <= set(lines)  # the last read the report so far


def test_no_step_begins_after_the_time_for_all(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    assert not report([python("late", "print()")], MACHINE, path, most=0)
    assert "| late | not run: no time was left | 0 |" in path.read_text()
    assert report([python("early", "print()")], MACHINE, path, most=60)
    assert [each.name for each in tmp_path.iterdir()] == ["report.md"]


def test_the_steps_are_all_that_need_a_gpu() -> None:
    names = [step.name for step in steps(Path("runs"))]
    assert names[0] == "tests marked gpu"
    assert "benchmark imagenet-2048" in names
    assert names[-1] == "info/grokking at the paper scale"
    assert all(step.limit <= 1200 for step in steps(Path("runs")))
