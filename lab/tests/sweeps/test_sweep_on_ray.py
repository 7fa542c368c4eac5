"""Runs on a real Ray cluster, started here: the same bytes as by themselves, killed or not.

A process that imports torch takes seconds: the runs are of a tiny experiment, few at a time, and
tests that kill no worker share one cluster.
"""

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
from lab.tests.cli.commands import ran

import ncscope
from ncscope.errors import InputError
from ncscope_lab import execution
from ncscope_lab.runs.resources import Resources
from ncscope_lab.sweeps.all_experiments import run_all
from ncscope_lab.sweeps.sweep import sweep
from tests.interrupting import heeds_control_c
from tests.processes import alive, descendants, of_ray

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("reachable", "unchecked_signatures")

ROOT = Path(__file__).parents[3]
EXPERIMENT = str(ROOT / "lab" / "tests" / "tiny" / "waiting.py")
FILES = ("config.yaml", "metrics.jsonl", "claims.json", "report.html")


@pytest.fixture(scope="module")
def reachable() -> Iterator[None]:
    """Workers find the experiment, and every process the clusters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        patch.setenv("RAY_AUTH_MODE", "disabled")  # the clusters are for this machine alone
        yield


def assert_same_files(there: Path, here: Path) -> None:
    for file in FILES:
        assert (there / file).read_bytes() == (here / file).read_bytes(), file


def worker_of(name: str) -> int:
    """The process of the cluster below us that carries out this run."""
    (found,) = [
        process
        for process in descendants(os.getpid())
        if Path(f"/proc/{process}/cmdline").read_text().startswith(f"ray::{name}")
    ]
    return found


@pytest.mark.nightly
def test_a_run_that_lost_its_worker_goes_on_and_one_that_fails_stops_no_other(tmp_path):
    """A sweep that was killed has left a file."""
    first, second = ["fails=false,start=1.0", "fails=true,start=2.0"]
    points = [{"fails": False, "start": 1.0}, {"fails": True, "start": 2.0}]
    fixed = {"steps": 40, "wait": 0.1}
    out, states, killed, repeated = tmp_path / "out", [], [], []
    before, seen = of_ray(descendants(os.getpid())), set()
    out.mkdir()
    left = out / ".shared-of-another"
    left.touch()
    with pytest.raises(InputError, match=r"a Ray cluster at 127\.0\.0\.1:1"):
        sweep(EXPERIMENT, points, settings=fixed, out=out, cluster="127.0.0.1:1")
    assert left.exists()  # nothing has begun

    def strike(positions) -> None:
        states.append([at.state for at in positions.values()])
        seen.update(of_ray(descendants(os.getpid())))
        at = positions[first]
        if killed and at.part == "upper":  # half of all, which had ended
            repeated.append(at.done < at.total / 2)
        if at.state == "running" and at.part == "lower" and not killed:
            killed.append(worker_of(first))
            os.kill(killed[0], signal.SIGKILL)

    found = sweep(EXPERIMENT, points, settings=fixed, out=out, cluster="local", on_change=strike)
    assert len(killed) == 1
    assert not any(repeated)
    assert found.failures == {second: "ZeroDivisionError: by zero"}
    execution.run(EXPERIMENT, out=tmp_path / "alone", settings=fixed | points[0])
    assert_same_files(out / first, tmp_path / "alone")
    assert len(seen - before) >= 2  # the cluster's processes are seen while it runs
    assert states[-1] == ["ended", "failed"]
    assert ["running", "running"] in states or os.cpu_count() == 1
    assert list(out.glob(".shared*")) == []
    assert of_ray(descendants(os.getpid())) == before


@pytest.mark.slow
def test_the_program_that_drives_ray_does_not_wait_for_torch():
    code = "import sys, ncscope_lab.sweeps.ray_driver; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


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


@pytest.fixture(scope="module")
def cluster(reachable) -> Iterator[str]:
    """The address of a cluster of one machine with two cores, started by Ray's own command."""
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


@pytest.mark.nightly
def test_every_machine_is_asked_what_it_has_also_where_two_go_by_one_name(tmp_path, monkeypatch):
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
                sweep(EXPERIMENT, [{"start": 1.0}], out=tmp_path / "out", cluster=said[1])
            (tmp_path / name).unlink()


@pytest.mark.nightly
def test_a_cluster_is_joined_interrupted_and_taken_up_again(cluster, tmp_path, capsys):
    words = ["sweep", EXPERIMENT, "--over", "start=1,2,3", "--set", "wait=0.5", "--set", "steps=1"]
    words += ["--out", tmp_path / "sweep", "--cluster", cluster]
    command = [Path(sys.executable).with_name("ncscope"), *words]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds_control_c)
    while not list(tmp_path.glob("sweep/*/report.html")):
        assert first.poll() is None
        time.sleep(0.1)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate()
    assert first.returncode == 130
    assert said.strip().endswith(f"with --resume to go on with {tmp_path / 'sweep'}")
    assert len(list(tmp_path.glob("sweep/*/report.html"))) < 3
    assert ran(*words, "--resume") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "Report: file://" in said.out
    for start in (1.0, 3.0):  # of the first to begin, and of the last
        settings = {"start": start, "wait": 0.5, "steps": 1}
        execution.run(EXPERIMENT, out=tmp_path / f"{start}", settings=settings)
        assert_same_files(tmp_path / "sweep" / f"start={start}", tmp_path / f"{start}")
    with pytest.raises(InputError, match=r"a machine with 4 cores and 0 GPUs.* found at most 2"):
        sweep(
            EXPERIMENT,
            [{"start": 9.0}],
            out=tmp_path / "x",
            cluster=cluster,
            resources=Resources(workers=3),
        )


@pytest.mark.slow
def test_one_experiment_on_a_cluster_is_the_same_as_here(cluster, tmp_path, capsys):
    words = ["run", EXPERIMENT, "--out", tmp_path / "there", "--cluster", cluster]
    assert ran(*words) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert f"Report: {(tmp_path / 'there' / 'report.html').as_uri()}" in said.out
    execution.run(EXPERIMENT, out=tmp_path / "here")
    assert_same_files(tmp_path / "there", tmp_path / "here")
    assert list((tmp_path / "there").glob(".shared*")) == []
    assert ran(*words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "pass --resume" in said.err


@pytest.mark.slow
def test_the_verdicts_of_all_experiments_are_the_same_as_here(cluster, tmp_path):
    only = [EXPERIMENT]
    here = run_all(out=tmp_path / "here", only=only)
    there = run_all(out=tmp_path / "there", only=only, cluster=cluster)
    assert here.failures == there.failures == {}
    assert (tmp_path / "here" / "verdicts.json").read_bytes() == (
        tmp_path / "there" / "verdicts.json"
    ).read_bytes()


@pytest.mark.nightly
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_ended_leaves_no_process_and_no_file_of_its_own(how, tmp_path):
    command = [Path(sys.executable).with_name("ncscope"), "sweep", EXPERIMENT]
    command += ["--over", "start=1", "--set", "wait=1", "--set", "steps=1000"]
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
