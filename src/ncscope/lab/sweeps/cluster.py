"""Execution of a sweep's runs on a Ray cluster: the side of the calling process.

A separate program (`ncscope.lab.sweeps.ray_driver`) uses Ray. So Ray's output, threads and settings
do not affect this process, and this process can end the driver in any state.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import uuid4

from ncscope.cluster import check_address
from ncscope.errors import InputError, library_error
from ncscope.files import write_text
from ncscope.lab.sweeps.run_request import RunProgress, RunRequest, SweepProgress

_PROGRAM = "from ncscope.lab.sweeps.ray_driver import main; main()"
_SECONDS_TO_END = 20.0
_LAST_WORDS = 400
"""Number of characters of the driver's last output that are reported when it has died."""


def run_on_cluster(
    address: str, requests: Sequence[RunRequest], folder: Path, progress: SweepProgress
) -> dict[str, str]:
    """Carry out all requests, as many at a time as the cluster has resources for.

    Args:
        address: ``"local"``, ``"auto"``, ``"HOST:PORT"`` or ``"ray://HOST:PORT"``.
        requests: Runs to carry out.
        folder: Folder of the sweep, which every machine must see.
        progress: Progress of the runs, updated about once a second.

    Returns:
        Reason of the failure, for each run that failed.

    Raises:
        InputError: If Ray is not installed, there is no cluster at the address, no machine has
            the resources for a run, or a machine lacks ncscope or does not see the folder.
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
        return _followed(message, progress)
    finally:
        token.unlink(missing_ok=True)  # the driver removes it as well, if it ends by itself


def _followed(message: Mapping[str, Any], progress: SweepProgress) -> dict[str, str]:
    """Follow the driver's messages until it ends: update the progress, collect failures.

    Raises:
        InputError: If the driver refuses the request.
        RuntimeError: If the driver ends before the runs do.
    """
    with TemporaryFile() as log, _driver(log) as driver:
        failures, over = dict[str, str](), False
        for event in _events(driver, message):
            if "refused" in event:
                raise InputError(**event["refused"])
            failures |= {name: error for name, error in event["over"].items() if error}
            progress.update(_positions(event))
            over = event["all"]
        if not over:
            raise RuntimeError(_death(driver.returncode, log))
    return failures


def _positions(event: Mapping[str, Any]) -> dict[str, RunProgress]:
    running = {name: RunProgress("running", *where) for name, where in event["running"].items()}
    over = {
        name: RunProgress("failed" if error else "ended") for name, error in event["over"].items()
    }
    return running | over


def _events(driver: "subprocess.Popen[str]", message: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the driver's answers to the request, a line of JSON each, until it has ended."""
    assert driver.stdin is not None
    assert driver.stdout is not None
    with suppress(BrokenPipeError), driver.stdin:  # exit status and log say more about a death
        json.dump(message, driver.stdin)
    yield from map(json.loads, driver.stdout)
    driver.wait()


def _death(status: int, log: IO[bytes]) -> str:
    """Describe the driver's death, with its last output."""
    log.seek(0)
    said = " ".join(log.read().decode(errors="replace").split())
    words = f"; its last words: ...{said[-_LAST_WORDS:]}" if said else ""
    return (
        f"the program that drives Ray ended before the runs did, with exit status {status}; go on "
        f"with --resume{words}"
    )


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
            _end(driver)


def _end(driver: "subprocess.Popen[str]") -> None:
    """End the driver, with time to leave the cluster in order, so that Ray stops its tasks."""
    if driver.poll() is None:
        driver.terminate()
    try:
        driver.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        driver.kill()
