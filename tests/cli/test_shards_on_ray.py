"""Shards on a real Ray cluster, started here: the same bytes, whoever is killed or interrupted."""

import json
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
from ncscope.api.shard_work import measure_files
from tests.api.shards import cut as cut_of
from tests.api.shards import farthest, saved
from tests.processes import alive, descendants

pytest.importorskip("ray")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow

SIZES = (40_000, 20_000, 30_000, 0, 25_000, 35_000, 20_000, 30_000)


def strike(killed: list[int], over: threading.Event) -> None:
    """Kill the first worker of the cluster below us that reads a shard."""
    while not over.is_set() and not killed:
        for process in descendants(os.getpid()):
            try:
                title = Path(f"/proc/{process}/cmdline").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if title.startswith("ray::first pass") and not killed:
                os.kill(process, signal.SIGKILL)
                killed.append(process)


def test_a_killed_worker_changes_no_byte(tmp_path, monkeypatch) -> None:
    samples = cut_of(SIZES)
    files = saved(tmp_path, samples, (".parquet",))
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
    assert farthest(there, ncscope.measure(*samples.whole, **head)) < 1e-10
    assert not any(map(alive, descendants(os.getpid())))


def test_a_killed_command_goes_on_with_the_finished_shards(tmp_path) -> None:
    samples = cut_of((150_000,) * 8)
    files = saved(tmp_path, samples, (".parquet",))
    np.savez(tmp_path / "head.npz", weight=samples.weight, bias=samples.bias)
    command = [Path(sys.executable).with_name("ncscope"), "measure", "*.parquet", "--json"]
    command += ["--weight", "head.npz", "--cluster", "local", "--save", "report.json"]
    first = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    kept = tmp_path / "ncscope-shards"
    while not list(kept.glob("*.safetensors")):
        assert first.poll() is None
        time.sleep(0.001)
    below = descendants(first.pid)
    first.kill()
    first.wait()
    finished = {file: file.stat().st_mtime_ns for file in kept.glob("*.safetensors")}
    assert 0 < len(finished) < 2 * len(files)
    end = time.monotonic() + 60
    while any(map(alive, below)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(alive, below))
    (kept / "mine").touch()  # so that the folder stays
    watched = threading.Event()
    rewritten = []

    def watch() -> None:
        while not watched.wait(0.01):
            for file, before in finished.items():
                try:
                    rewritten.extend([file] * (file.stat().st_mtime_ns != before))
                except FileNotFoundError:  # removed at the end
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    watched.set()
    thread.join()
    assert rewritten == []
    assert done.stderr == ""
    assert [file.name for file in kept.iterdir()] == ["mine"]
    here = ncscope.measure_shards(files, weight=samples.weight, bias=samples.bias)
    assert json.loads(done.stdout)["metrics"] == dict(here)
