"""The program that carries out runs with Ray.

It reads one request from standard input, as JSON, and reports the progress of the runs on standard
output, one line of JSON per report. The output of Ray goes to standard error.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import ncscope
from ncscope.cluster import join_cluster
from ncscope.errors import InputError
from ncscope_lab.sweeps.requests import RunRequest, one_line, run_request

_RETRIES = 5
"""Number of times that a run is resumed after its process or its machine has died."""
_SECONDS = 1.0
"""Seconds between two reports of the runs' progress."""
_OBJECT_STORE = 100_000_000
"""Bytes of Ray's object store; it can be small, because runs exchange no data."""

Say = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Carry out the request, and leave the cluster in any case."""
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    message = json.load(sys.stdin)

    def say(event: Mapping[str, Any]) -> None:
        print(json.dumps(event), file=output)

    requests = [RunRequest.from_json(request) for request in message["requests"]]
    try:
        join_cluster(message["address"], _OBJECT_STORE)
        _run_requests(requests, message["token"], say)
    except InputError as error:
        fields = {"expected": error.expected, "found": error.found, "fix": error.fix}
        say({"refused": fields})
    finally:
        ray.shutdown()
        # The process that started this program may have been killed before removing the file.
        Path(message["token"]).unlink(missing_ok=True)


def _run_requests(requests: Sequence[RunRequest], token: str, say: Say) -> None:
    """Submit all requests to the cluster, and report their progress."""
    required = _find_resources(requests[0])
    _check_machines(required, token)
    accelerator = "cuda" if required["num_gpus"] else "cpu"
    progress = (
        ray.remote(_ProgressActor)
        .options(num_cpus=0, max_restarts=-1, max_task_retries=-1)
        .remote()
    )
    pending = {}
    for request in requests:
        task = ray.remote(_run_request).options(**required, max_retries=_RETRIES, name=request.name)
        pending[task.remote(request.with_accelerator(accelerator).as_json(), token, progress)] = (
            request.name
        )
    over: dict[str, str] = {}
    while pending:
        ended, _ = ray.wait(list(pending), num_returns=len(pending), timeout=_SECONDS)
        over |= {pending.pop(task): _failure(task) for task in ended}
        positions = ray.get(progress.positions.remote())
        running = {name: where for name, where in positions.items() if name not in over}
        say({"over": over, "running": running, "all": not pending})


def _failure(task: Any) -> str:
    """Return the failure that a task reports, or that of a process that died too often."""
    try:
        return str(ray.get(task))
    except RayError as error:
        return f"{one_line(error)[:300]} (taken up again {_RETRIES} times)"


def _find_resources(request: RunRequest) -> dict[str, int]:
    """Return the resources of a run: cores, and a GPU if the run trains on one."""
    wanted = request.resources.accelerator
    there = [node["Resources"] for node in _machines()]
    has_gpu = any(resources.get("GPU", 0) >= 1 for resources in there)
    gpus = 1 if wanted == "cuda" or (wanted == "auto" and has_gpu) else 0
    required = {"num_cpus": 1 + request.resources.workers, "num_gpus": gpus}
    if not any(_fits(required, resources) for resources in there):
        most = {kind: max(r.get(kind, 0) for r in there) for kind in ("CPU", "GPU")}
        raise InputError(
            expected=f"a machine with {required['num_cpus']} cores and {gpus} GPUs for a run",
            found=f"at most {most['CPU']:g} and {most['GPU']:g}",
            fix="pass fewer --workers, or --accelerator cpu",
        )
    return required


def _machines() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _fits(required: Mapping[str, float], resources: Mapping[str, float]) -> bool:
    cores, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    return cores >= required["num_cpus"] and gpus >= required["num_gpus"]


def _check_machines(required: Mapping[str, float], token: str) -> None:
    """Check that every machine that may get a run has ncscope and sees the folder."""
    asked = []
    for node in _machines():
        if _fits(required, node["Resources"]):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(_check_machine).options(num_cpus=0, scheduling_strategy=there)
            # The address distinguishes containers, several of which may share one host name.
            host = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            asked.append((host, task.remote(token)))
    for host, answer in asked:
        try:
            version, sees = ray.get(answer)
        except RayError as error:
            version, sees = str(error).strip().rpartition("\n")[2][:300], False
        if version != ncscope.__version__:
            expected = f"ncscope {ncscope.__version__} on every machine"
            fix = "install it there"
            raise InputError(expected=expected, found=f"{version} on {host}", fix=fix)
        if not sees:
            raise _folder_error(token, host)


def _folder_error(token: str, host: str) -> InputError:
    return InputError(
        expected="an output folder that every machine sees",
        found=f"{Path(token).parent}, which {host} does not",
        fix="pass --out on a file system that they share",
    )


def _check_machine(token: str) -> tuple[str, bool]:
    """Return a machine's version of ncscope, and whether it sees the sweep's folder."""
    return ncscope.__version__, Path(token).exists()


def _run_request(request: dict[str, Any], token: str, progress: Any) -> str:
    """Carry out a request on a machine of the cluster, and report its progress at intervals."""
    if not Path(token).exists():  # a machine that joined after the check
        return str(_folder_error(token, os.uname().nodename))
    known = RunRequest.from_json(request)
    said = -_SECONDS

    def on_row(part: str, done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= _SECONDS:
            progress.put.remote(known.name, part, done, total)
            said = time.monotonic()

    return run_request(known, on_row)


class _ProgressActor:
    """Ray actor that stores the progress of the runs."""

    def __init__(self) -> None:
        self._positions: dict[str, tuple[str, int, int]] = {}

    def put(self, name: str, part: str, done: int, total: int) -> None:
        self._positions[name] = (part, done, total)

    def positions(self) -> dict[str, tuple[str, int, int]]:
        return self._positions
