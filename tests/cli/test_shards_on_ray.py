"""Shards on a real Ray cluster, started here: the same bytes, whoever is killed or interrupted."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ncscope
from ncscope.api.measure_files import measure_files
from tests.api.shards import cut as cut_of
from tests.api.shards import largest_difference, save_shards
from tests.processes import alive, descendants, of_ray

pytest.importorskip("ray")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.nightly

SIZES = (40_000, 20_000, 30_000, 0, 25_000, 35_000, 20_000, 30_000)


def title_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def strike(killed: list[int], over: threading.Event) -> None:
    """Kill the first worker of the cluster below us that reads a shard."""
    while not over.is_set() and not killed:
        for process in descendants(os.getpid()):
            if title_of(process).startswith("ray::first pass") and not killed:
                os.kill(process, signal.SIGKILL)
                killed.append(process)
        time.sleep(0.02)  # a shard takes ten times that


def lingers(process: int) -> bool:
    """Whether Ray ends a process only a minute after the program that started the cluster died."""
    return title_of(process).startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))


def test_a_killed_worker_changes_no_byte(tmp_path, monkeypatch) -> None:
    samples = cut_of(SIZES)
    files = save_shards(tmp_path, samples, (".parquet",))
    head = {"weight": samples.weight, "bias": samples.bias}
    here = measure_files(files, work=tmp_path / "here", **head)
    killed, over = [], threading.Event()
    thread = threading.Thread(target=strike, args=(killed, over))
    thread.start()
    try:
        there = measure_files(files, cluster="local", work=tmp_path / "there", **head)
    finally:
        over.set()
        thread.join()
    assert len(killed) == 1
    assert there.record == here.record
    states = [{f.name: f.read_bytes() for f in (tmp_path / p).iterdir()} for p in ("here", "there")]
    assert states[0] == states[1]
    assert len(states[0]) == 2 * len(files)
    assert largest_difference(there, ncscope.measure(*samples.whole, **head)) < 1e-10
    assert not any(map(alive, of_ray(descendants(os.getpid()))))


def test_a_killed_command_goes_on_with_the_finished_shards(tmp_path) -> None:
    samples = cut_of((60_000,) * 8)
    files = save_shards(tmp_path, samples, (".parquet",))
    np.savez(tmp_path / "head.npz", weight=samples.weight, bias=samples.bias)
    command = [Path(sys.executable).with_name("ncscope"), "measure", "*.parquet", "--json"]
    command += ["--weight", "head.npz", "--cluster", "local"]
    first = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("ncscope-shards-*/*.safetensors")):
        assert first.poll() is None
        time.sleep(0.01)
    (kept,) = tmp_path.glob("ncscope-shards-*")
    below = [process for process in descendants(first.pid) if not lingers(process)]
    first.kill()
    first.wait()
    finished = list(kept.glob("*.safetensors"))
    assert 0 < len(finished) < 2 * len(files)
    end = time.monotonic() + 60
    while any(map(alive, below)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(alive, below))
    told = []
    report = measure_files(
        files,
        work=kept,
        on_shard=lambda part, done, _: told.append((part, done)),
        weight=samples.weight,
        bias=samples.bias,
    )
    first_passes = min(len(finished), len(files))
    assert told[0] == ("first pass", first_passes)
    whole = ncscope.measure_shards(files, weight=samples.weight, bias=samples.bias)
    assert report.record == whole.record
