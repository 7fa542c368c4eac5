"""Run everything that needs a GPU and write a report: ``make gpu``.

Steps: the tests marked ``gpu``, each benchmark with its floor, and two experiments at the paper's
scale, cut down: residual networks with fewer images and epochs, and grokking with one seed.
Expected: under 40 minutes of one GPU. A step that fails or takes too long is reported, and the
others go on. The report is written anew after each step.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.__main__ import BENCHMARKS
from ncscope.files import write_text
from ncscope_lab.catalogue import find_experiment
from ncscope_lab.experiment import Scale

WITHOUT_GPU = "no CUDA device on this machine: nothing was measured"
_NO_GPU, _FAILED = 2, 1  # exit codes
_MOST_SECONDS = 40 * 60
_SHOWN = 60  # last lines of a step's output that the report shows


@dataclass(frozen=True)
class Step:
    """One command of the report.

    Attributes:
        name: Heading in the report.
        command: Program and arguments.
        limit: Seconds after which the step is ended.
    """

    name: str
    command: Sequence[str]
    limit: float


@dataclass(frozen=True)
class Outcome:
    """Result of a step.

    Attributes:
        step: The step.
        result: ``"passed"``, or the cause of a failure.
        seconds: Time that the step took.
        output: Last lines of the step's output.
    """

    step: Step
    result: str
    seconds: float
    output: str


def steps(runs: Path) -> list[Step]:
    """Return the steps in the order in which they run, the shortest first.

    Args:
        runs: Folder of the experiments' runs.
    """
    python = sys.executable
    tests = [python, "-m", "pytest", "-m", "gpu", "-n", "0", "-ra"]
    of_benchmarks = [
        Step(
            f"benchmark {name}",
            [python, "-m", "benchmarks", "--device", "cuda", "--only", name],
            limit=240,
        )
        for name in BENCHMARKS
    ]
    return [
        Step("tests marked gpu", tests, limit=300),
        *of_benchmarks,
        _run_experiment("pfc/training", "paper", runs, limit=900, changed=_brief_training()),
        _run_experiment("info/grokking", "paper", runs, limit=1200, changed=["seeds=[0]"]),
    ]


def _brief_training() -> list[str]:
    """Return changes that cut the paper's `pfc/training` to a third of the epochs on CIFAR.

    Generated images of the same size stand in for the data sets, whose files need not be there. The
    decay is larger, because it acts through its product with the number of steps. The networks for
    other data sets train for one epoch.
    """
    changed = []
    for name, run in find_experiment("pfc/training").scales["paper"].runs.items():
        cifar = run.data in ("cifar10", "cifar100")
        fields = {
            "data": "patterns-32-100" if run.data == "cifar100" else "patterns-32",
            "balanced": 10_000 if cifar else 500,
            "measurements": 14 if cifar else 2,
            "optimisation.epochs": 120 if cifar else 1,
            "optimisation.weight_decay": 2.5e-3,
        }
        changed += [f"runs.{name}.{field}={value}" for field, value in fields.items()]
    return changed


def _run_experiment(
    name: str, scale: Scale, runs: Path, limit: float, changed: Sequence[str] = ()
) -> Step:
    out = str(runs / f"{name.replace('/', '-')}-{scale}")
    program = [sys.executable, "-c", "from ncscope.cli import main; main()", "run", name]
    options = ["--scale", scale, "--accelerator", "cuda", "--out", out]
    options += [word for change in changed for word in ("--set", change)]
    return Step(f"{name} at the {scale} scale", [*program, *options], limit)


def run(step: Step, limit: float) -> Outcome:
    """Run a step, and end it with all its processes when the time is over.

    Args:
        step: Step to run.
        limit: Seconds left; the step's limit applies if it is shorter.
    """
    limit, start = min(step.limit, limit), time.monotonic()
    if limit <= 0:
        return Outcome(step, "not run: no time was left", 0.0, "")
    try:
        process = subprocess.Popen(
            step.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | {"COLUMNS": "120"},
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(step, f"failed: {error}", 0.0, "")
    try:
        output, _ = process.communicate(timeout=limit)
        result = "passed" if process.returncode == 0 else f"failed: exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        result = f"failed: not done after {limit:.0f} s"
    return Outcome(step, result, time.monotonic() - start, "\n".join(output.splitlines()[-_SHOWN:]))


def hardware() -> dict[str, str]:
    """Describe the machine and the software that the numbers belong to."""
    device = torch.cuda.get_device_properties(0)
    return {
        "GPU": f"{device.name}, {device.total_memory / 2**30:.0f} GiB",
        "CUDA": str(torch.version.cuda),
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def markdown(machine: dict[str, str], outcomes: Sequence[Outcome], planned: int) -> str:
    """Return the report.

    Args:
        machine: Description of the hardware, by part.
        outcomes: Outcomes so far.
        planned: Number of steps in all.
    """
    passed = sum(outcome.result == "passed" for outcome in outcomes)
    lines = ["# Measured on a GPU", "", *(f"* {part}: {is_}" for part, is_ in machine.items()), ""]
    lines += [f"{passed} of {planned} steps passed; {len(outcomes)} were tried.", ""]
    lines += ["| step | result | seconds |", "|---|---|---|"]
    lines += [f"| {o.step.name} | {o.result} | {o.seconds:.0f} |" for o in outcomes]
    for outcome in outcomes:
        lines += ["", f"## {outcome.step.name}", "", f"{outcome.result}, {outcome.seconds:.0f} s"]
        lines += ["", f"    {' '.join(map(str, outcome.step.command))}", ""]
        lines += [f"    {line}" for line in outcome.output.splitlines()]
    return "\n".join(lines) + "\n"


def report(planned: Sequence[Step], machine: dict[str, str], path: Path, most: float) -> bool:
    """Run steps and write the report after each of them; return whether all passed.

    Args:
        planned: Steps to run.
        machine: Description of the hardware.
        path: File of the report.
        most: Seconds for all steps.
    """
    end, outcomes = time.monotonic() + most, list[Outcome]()
    for step in planned:
        print(f"{step.name} ...", flush=True)
        outcomes.append(run(step, end - time.monotonic()))
        print(f"{step.name}: {outcomes[-1].result}", flush=True)
        write_text(path, markdown(machine, outcomes, len(planned)))
    return all(outcome.result == "passed" for outcome in outcomes)


def main(arguments: Iterable[str] | None = None) -> int:
    """Run all steps; return 0 if all passed, 1 if one failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_report")
    parser.add_argument("--out", type=Path, default=Path("gpu-report.md"))
    parser.add_argument("--runs", type=Path, default=Path("runs/gpu"))
    options = parser.parse_args(None if arguments is None else list(arguments))
    if not torch.cuda.is_available():
        print(WITHOUT_GPU, file=sys.stderr)
        return _NO_GPU
    passed = report(steps(options.runs), hardware(), options.out, _MOST_SECONDS)
    print(f"Written: {options.out}")
    return 0 if passed else _FAILED


if __name__ == "__main__":
    sys.exit(main())
