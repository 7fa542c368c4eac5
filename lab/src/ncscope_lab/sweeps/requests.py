"""Runs that are carried out together: in this process one after another, or on a Ray cluster.

On a cluster a separate program (`ncscope_lab.sweeps.ray_driver`) uses Ray. So Ray's output, threads
and settings do not affect this process, and this process can end the driver in any state.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal
from uuid import uuid4

from ncscope.cluster import check_address
from ncscope.errors import InputError, library_error
from ncscope.files import write_text
from ncscope_lab.catalogue import find_experiment
from ncscope_lab.runs.resources import Resources

if TYPE_CHECKING:
    # The driver reads requests and runs none: it need not load torch, nor any library of a run.
    from ncscope_lab.execution import OnRow
    from ncscope_lab.experiment import Scale

_PROGRAM = "from ncscope_lab.sweeps.ray_driver import main; main()"
_SECONDS_TO_END = 20.0
_LAST_WORDS = 400
"""Number of characters of the driver's last output that are reported when it has died."""


@dataclass(frozen=True)
class RunRequest:
    """Request for one run, valid on every machine.

    Attributes:
        name: Name of the run.
        experiment: Name of the experiment.
        scale: "Scale" whose settings the run starts from.
        settings: Settings of the run by dotted name.
        folder: Absolute path of the run's folder.
        resources: Resources of the run, with an absolute path of the data folder.
    """

    name: str
    experiment: str
    scale: "Scale"
    settings: Mapping[str, Any]
    folder: Path
    resources: Resources

    def as_json(self) -> dict[str, Any]:
        """Return the request in types of JSON; `from_json` reads it."""
        resources = asdict(self.resources) | {"data": str(self.resources.data)}
        return asdict(self) | {"folder": str(self.folder), "resources": resources}

    @staticmethod
    def from_json(request: dict[str, Any]) -> "RunRequest":
        """Read the request that `as_json` wrote."""
        resources = Resources(**request["resources"] | {"data": Path(request["resources"]["data"])})
        return RunRequest(**request | {"folder": Path(request["folder"]), "resources": resources})

    def with_accelerator(self, accelerator: str) -> "RunRequest":
        """Return a copy that runs on another accelerator."""
        return replace(self, resources=replace(self.resources, accelerator=accelerator))


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run.

    Attributes:
        state: State of the run: waiting, running, ended or failed.
        part: Current part of the run.
        done: Amount of work done.
        total: Total amount of work; 0 while unknown.
    """

    state: Literal["waiting", "running", "ended", "failed"] = "waiting"
    part: str = ""
    done: int = 0
    total: int = 0


OnChange = Callable[[Mapping[str, RunProgress]], None]
"""Function called with the progress of every run by name, whenever it changes."""


def use_one_device(resources: Resources) -> Resources:
    """Return the resources with an absolute data folder, the same for every process.

    Raises:
        InputError: If a run would have several devices.
    """
    if resources.devices * resources.nodes > 1:
        found = f"devices {resources.devices}, nodes {resources.nodes}"
        fix = "pass a cluster, which runs several runs at a time"
        raise InputError(expected="one device for each of several runs", found=found, fix=fix)
    return replace(resources, data=resources.data.absolute())


def carry_out(
    requests: Sequence[RunRequest],
    folder: Path,
    cluster: str | None,
    on_change: OnChange,
    ended: Sequence[str] = (),
) -> dict[str, str]:
    """Carry out requests; a failure does not stop the others.

    Args:
        requests: Runs to carry out, in order.
        folder: Folder of all runs, which every machine of a cluster must see.
        cluster: ``"local"``, ``"auto"``, ``"HOST:PORT"`` or ``"ray://HOST:PORT"``: as many runs at
            a time as this cluster has resources for. None carries them out here, in order.
        on_change: Function called with the progress of all runs.
        ended: Names of other runs, which have ended before.

    Returns:
        Reason of the failure, for each run that failed.

    Raises:
        InputError: If Ray is not installed, there is no cluster at the address, no machine has
            the resources for a run, or a machine lacks ncscope or does not see the folder.
    """
    progress = {name: RunProgress("ended") for name in ended}
    progress |= {request.name: RunProgress() for request in requests}

    def report(changes: Mapping[str, RunProgress]) -> None:
        progress.update(changes)
        on_change(dict(progress))

    report({})
    if cluster is not None and requests:
        return _run_on_cluster(cluster, requests, folder, report)
    failures = {}
    for request in requests:

        def on_row(part: str, done: int, total: int, name: str = request.name) -> None:
            report({name: RunProgress("running", part, done, total)})

        report({request.name: RunProgress("running")})
        failure = run_request(request, on_row)
        if failure:
            failures[request.name] = failure
        report({request.name: RunProgress("failed" if failure else "ended")})
    return failures


def run_on_cluster(
    name: str,
    *,
    out: str | Path,
    cluster: str,
    scale: "Scale" = "small",
    settings: Mapping[str, Any] = {},
    resume: bool = False,
    resources: Resources | None = None,
    on_change: OnChange = lambda positions: None,
) -> str:
    """Run one experiment on a Ray cluster, as `run` does here; `load_run` reads the result.

    Args:
        name: Name of the experiment.
        out: Folder of the run, which every machine must see.
        cluster: Address of the cluster, as in `carry_out`.
        scale: "Scale" whose settings to start from.
        settings: Values by dotted field.
        resume: Resume the run in the folder.
        resources: Resources of the run, which has one process.
        on_change: Function called with the progress.

    Returns:
        Reason of the failure in one line, or an empty string.

    Raises:
        InputError: As for `run`, and as for `carry_out`.
    """
    from ncscope_lab.runs.run_folder import RunFolder

    experiment = find_experiment(name)
    experiment.configure(scale, settings)
    resources = use_one_device(resources or Resources())
    folder = RunFolder(Path(out).absolute())
    if not resume:
        folder.refuse_run()
    request = RunRequest(name, experiment.id, scale, settings, folder.path, resources)
    return carry_out([request], folder.path, cluster, on_change).get(name, "")


def run_request(request: RunRequest, on_row: "OnRow") -> str:
    """Carry out a request; resume if its folder already holds the run.

    Args:
        request: Run to carry out.
        on_row: Function called with the progress.

    Returns:
        Reason of the failure in one line, or an empty string.
    """
    from ncscope_lab.execution import run
    from ncscope_lab.runs.run_folder import RunFolder

    try:
        run(
            request.experiment,
            out=request.folder,
            scale=request.scale,
            settings=request.settings,
            resume=RunFolder.read_config(request.folder) is not None,
            resources=request.resources,
            on_row=on_row,
        )
    except Exception as error:
        return one_line(error)
    return ""


def one_line(error: Exception) -> str:
    """Write an error in one line, with its type if it is unexpected."""
    said = " ".join(str(error).split())
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


def _run_on_cluster(
    address: str, requests: Sequence[RunRequest], folder: Path, report: OnChange
) -> dict[str, str]:
    """Start the driver, and follow its messages, a line of JSON each, until it ends.

    Raises:
        InputError: If the driver refuses the request.
        RuntimeError: If the driver ends before the runs do.
    """
    if find_spec("ray") is None:
        raise library_error(name="ray")
    check_address(address)
    for left in folder.glob(".shared-*"):  # left if sweep and driver were killed
        left.unlink()
    token = write_text(folder / f".shared-{uuid4().hex}", "")
    message = {
        "address": address,
        "token": str(token),
        "requests": [request.as_json() for request in requests],
    }
    try:
        with TemporaryFile() as log, _driver(log) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            with suppress(BrokenPipeError), driver.stdin:  # status and log say more about a death
                json.dump(message, driver.stdin)
            failures, over = dict[str, str](), False
            for event in map(json.loads, driver.stdout):
                if "refused" in event:
                    raise InputError(**event["refused"])
                failures |= {name: error for name, error in event["over"].items() if error}
                states = {
                    name: RunProgress("failed" if error else "ended")
                    for name, error in event["over"].items()
                }
                for name, position in event["running"].items():
                    states.setdefault(name, RunProgress("running", *position))
                report(states)
                over = event["all"]
            status = driver.wait()
            if not over:
                log.seek(0)
                said = " ".join(log.read().decode(errors="replace").split())
                words = f"; its last words: ...{said[-_LAST_WORDS:]}" if said else ""
                msg = (
                    "the program that drives Ray ended before the runs did, with exit status "
                    f"{status}; go on with --resume{words}"
                )
                raise RuntimeError(msg)
        return failures
    finally:
        token.unlink(missing_ok=True)  # the driver removes it as well, if it ends by itself


@contextmanager
def _driver(log: IO[bytes]) -> Iterator["subprocess.Popen[str]"]:
    """Start the driver, and end it when the context ends."""
    # -P: a file in the current folder must not shadow a library.
    command = [sys.executable, "-P", "-c", _PROGRAM]
    environment = {"RAY_USAGE_STATS_ENABLED": "0"} | os.environ
    pipe = subprocess.PIPE
    # A separate session: Control-C then reaches only this process, which ends the driver in order.
    with subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=log,
        text=True,
        start_new_session=True,
        env=environment,
    ) as driver:
        try:
            yield driver
        finally:
            # Time to leave the cluster in order, so that Ray stops its tasks.
            if driver.poll() is None:
                driver.terminate()
            try:
                driver.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                driver.kill()
