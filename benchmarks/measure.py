"""Timing and memory, measured the same way for a piece of work and for its baseline."""

import gc
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
    """One line of the benchmark's table.

    Attributes:
        work: Name of the work.
        measured: Measured cost, with its unit.
        baseline: Cost to compare with, with its unit.
        ratio: The two divided.
        target: The ratio, or the value, promised.
        met: True if the target was met.
    """

    work: str
    measured: str
    baseline: str
    ratio: float | None
    target: str
    met: bool


def time_in_turn(
    work: Callable[[], Any], baseline: Callable[[], Any], device: str, rounds: int = 5
) -> tuple[float, float]:
    """Best of several rounds of each, taken in turn so that both see the same machine."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):
        for index, call in enumerate((work, baseline)):
            best[index] = min(best[index], _seconds(call, device))
    return best[0], best[1]


def compare(
    name: str,
    work: Callable[[], Any],
    baseline: Callable[[], Any],
    target: float,
    device: str,
    rounds: int = 5,
) -> Row:
    """Measure work against its baseline."""
    seconds, least = time_in_turn(work, baseline, device, rounds)
    ratio = seconds / least
    return Row(
        name, f"{seconds:.3f} s", f"{least:.3f} s", ratio, f"<= {target:g} x", ratio <= target
    )


def run_module(module: str) -> list[float]:
    """Return the numbers that a module prints when it is run in a fresh process."""
    process = subprocess.run(
        [sys.executable, "-m", module], check=True, stdout=subprocess.PIPE, text=True
    )
    return [float(word) for word in process.stdout.split()]


def own_peak_gigabytes() -> float:
    """Peak resident memory of this process so far.

    Not ``ru_maxrss``: on Linux a new process takes over the peak of the process that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**20


def _seconds(call: Callable[[], Any], device: str) -> float:
    gc.collect()
    _wait(device)
    start = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
