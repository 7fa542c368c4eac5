"""Sweeps on a real Ray cluster, started here: the same bytes as by themselves, killed or not."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ncscope
from ncscope.errors import InputError
from ncscope_lab import execution
from ncscope_lab.runs.resources import Resources
from ncscope_lab.sweeps.sweep import grid, sweep
from tests.interrupting import heeds_control_c
from tests.processes import descendants, of_ray

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

EXPERIMENT = "info/grokking"
POINTS = grid({"training.learning_rate": [0.01, 0.02], "training.weight_decay": [0.5, 1.0]})
NAMES = [
    f"learning_rate={point['training.learning_rate']},weight_decay={point['training.weight_decay']}"
    for point in POINTS
]
FIXED = {
    "seeds": [0],
    "training.modulus": 7,
    "training.train_share": 0.5,
    "training.width": 32,
    "training.hidden": 64,
    "training.steps": 400,
    "training.measurements": 8,
    "training.accuracy_measurements": 20,
    "training.batch_size": 8,
}
TINY = {"settings": "first", "first_steps": 200, "starts": 2, "bias_decays": [0.05]}
OFTEN = Resources(checkpoint_interval=0.0)  # the place is saved after every step


def alone(folder: Path) -> dict[str, bytes]:
    """The rows of every run by itself."""
    rows = {}
    for name, point in zip(NAMES, POINTS, strict=True):
        execution.run(EXPERIMENT, out=folder / name, settings=FIXED | point)
        rows[name] = (folder / name / "metrics.jsonl").read_bytes()
    return rows


def rows_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name / "metrics.jsonl").read_bytes() for name in NAMES}


def worker_of(name: str) -> int:
    """The process of the cluster below us that carries out this run."""
    (found,) = [
        process
        for process in descendants(os.getpid())
        if Path(f"/proc/{process}/cmdline").read_text().startswith(f"ray::{name}")
    ]
    return found


@pytest.mark.usefixtures("unchecked_signatures")
def test_runs_on_a_cluster_are_the_same_one_by_one_also_where_workers_are_killed(tmp_path):
    """Two of four runs lose their worker; and a sweep that was killed has left a file."""
    out, states, killed, most = tmp_path / "out", [], {}, 0
    out.mkdir()
    left = out / ".shared-of-another"
    left.touch()
    with pytest.raises(InputError, match=r"a Ray cluster at 127\.0\.0\.1:1"):
        sweep(EXPERIMENT, POINTS, settings=FIXED, out=out, cluster="127.0.0.1:1")
    assert left.exists()  # nothing has begun

    def strike(positions) -> None:
        nonlocal most
        states.append([at.state for at in positions.values()])
        most = max(most, len(of_ray(descendants(os.getpid()))))
        for name, at in positions.items():
            if at.state == "running" and at.done >= 1 and len(killed) < 2 and name not in killed:
                killed[name] = at.done
                os.kill(worker_of(name), signal.SIGKILL)

    found = sweep(
        EXPERIMENT,
        POINTS,
        settings=FIXED,
        out=out,
        cluster="local",
        resources=OFTEN,
        on_change=strike,
    )
    assert len(killed) == 2
    assert found.failures == {}
    assert rows_of(out) == alone(tmp_path / "alone")
    assert most >= 2  # the cluster's processes are seen while it runs
    assert states[-1] == ["ended"] * 4
    assert any(state.count("running") == 2 for state in states) or os.cpu_count() == 1
    assert list(out.glob(".shared*")) == []
    assert of_ray(descendants(os.getpid())) == set()


@contextmanager
def machine(*words: str, until: str, **environment: str) -> Iterator[re.Match[str]]:
    """What Ray's own command for a machine of a cluster says; the machine stops afterwards."""
    ray = Path(sys.executable).with_name("ray")
    started = subprocess.Popen(
        [ray, "start", *words, "--node-ip-address=127.0.0.1", "--block"],
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        said = (re.search(until, line) for line in started.stdout)
        yield next(filter(None, said))
    finally:
        started.terminate()
        started.communicate(timeout=60)


HEAD = ("--head", "--port=0", "--include-dashboard=false")
ADDRESS = r"--address='([\d.:]+)'"


@pytest.fixture
def cluster(monkeypatch) -> Iterator[str]:
    """The address of a cluster of one machine with two cores, started by Ray's own command."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # it is for this machine alone
    with machine(*HEAD, "--num-cpus=2", until=ADDRESS) as said:
        yield said[1]


FRONT = """
from os import environ
from pathlib import Path

__path__ = [{package!r}]
exec(Path({package!r}, "__init__.py").read_text())
if Path({folder!r}, environ["MACHINE"]).exists():
    __version__ = "0.0 of " + environ["MACHINE"]
"""
"""ncscope as it is, but older on a machine that a file in a folder names."""


def test_every_machine_is_asked_what_it_has_also_where_two_go_by_one_name(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    front = tmp_path / "front" / "ncscope" / "__init__.py"
    front.parent.mkdir(parents=True)
    package = str(Path(ncscope.__file__).parent)
    front.write_text(FRONT.format(package=package, folder=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(front.parents[1]), prepend=os.pathsep)
    monkeypatch.setenv("MACHINE", "here")
    with (
        machine(*HEAD, "--num-cpus=1", until=ADDRESS, MACHINE="one") as said,
        machine(f"--address={said[1]}", "--num-cpus=1", until="Ray runtime started", MACHINE="two"),
    ):
        for name in ("one", "two"):
            (tmp_path / name).touch()
            with pytest.raises(InputError, match=rf"every machine, found 0\.0 of {name} on "):
                sweep(EXPERIMENT, POINTS, settings=FIXED, out=tmp_path / "out", cluster=said[1])
            (tmp_path / name).unlink()


@pytest.mark.usefixtures("unchecked_signatures")
def test_a_cluster_is_joined_interrupted_and_taken_up_again(cluster, tmp_path):
    fixed = TINY
    command = [Path(sys.executable).with_name("ncscope"), "sweep", "xufm/ufm"]
    command += ["--over", "seed=0,1,2"]
    command += [word for key, one in fixed.items() for word in ("--set", f"{key}={one}")]
    command += ["--out", tmp_path / "sweep", "--cluster", cluster]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds_control_c)
    while not list(tmp_path.glob("sweep/*/report.html")):
        assert first.poll() is None
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate()
    assert first.returncode == 130
    assert said.strip().endswith(f"with --resume to go on with {tmp_path / 'sweep'}")
    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "Report: file://" in done.stdout
    for seed in range(3):
        execution.run("xufm/ufm", out=tmp_path / f"{seed}", settings=fixed | {"seed": seed})
        own = (tmp_path / f"{seed}" / "metrics.jsonl").read_bytes()
        assert (tmp_path / "sweep" / f"seed={seed}" / "metrics.jsonl").read_bytes() == own
    with pytest.raises(InputError, match=r"a machine with 4 cores and 0 GPUs.* found at most 2"):
        sweep(
            "xufm/ufm",
            [{"seed": 9}],
            out=tmp_path / "x",
            cluster=cluster,
            resources=Resources(workers=3),
        )


def test_one_experiment_on_a_cluster_is_the_same_as_here(tmp_path):
    words = [word for key, one in TINY.items() for word in ("--set", f"{key}={one}")]
    command = [Path(sys.executable).with_name("ncscope"), "run", "xufm/ufm", *words]
    command += ["--out", tmp_path / "there", "--cluster", "local"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert f"Report: {(tmp_path / 'there' / 'report.html').as_uri()}" in done.stdout
    execution.run("xufm/ufm", out=tmp_path / "here", settings=TINY)
    for file in ("config.yaml", "metrics.jsonl", "claims.json", "report.html"):
        there = (tmp_path / "there" / file).read_bytes()
        assert there == (tmp_path / "here" / file).read_bytes(), file
    assert list((tmp_path / "there").glob(".shared*")) == []
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (2, "")
    assert "pass --resume" in again.stderr


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_ended_leaves_no_process_and_no_file_of_its_own(how, tmp_path):
    command = [Path(sys.executable).with_name("ncscope"), "sweep", "xufm/ufm"]
    command += ["--over", "seed=0,1", "--set", "settings=first", "--set", "first_steps=100000"]
    command += ["--out", tmp_path / "sweep", "--cluster", "local"]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("sweep/*/config.yaml")):
        assert started.poll() is None
        time.sleep(0.1)
    assert list(tmp_path.glob("sweep/.shared*")) != []
    below = descendants(started.pid)
    started.send_signal(how)
    assert started.wait(60) == (143 if how == signal.SIGTERM else -how)
    end = time.monotonic() + 60
    while any(map(alive, below)) and time.monotonic() < end:
        time.sleep(0.1)
    assert [process for process in below if alive(process)] == []
    assert list(tmp_path.glob("sweep/.shared*")) == []
