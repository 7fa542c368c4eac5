"""Runs of a sweep: the request, its progress, and carrying it out in this process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ncscope.errors import InputError
from ncscope.lab.experiment import Scale
from ncscope.lab.runs.resources import Resources
from ncscope.lab.runs.run_folder import RunFolder
from ncscope.lab.runs.running import OnRow
from ncscope.lab.studies import reproduce


@dataclass(frozen=True)
class RunRequest:
    """Request for one run of a sweep, valid on every machine.

    Attributes:
        name: Name of the run.
        recipe: Name of the experiment.
        scale: Scale whose settings the run starts from.
        overrides: Settings of the run by dotted name.
        folder: Absolute path of the run's folder.
        resources: Resources of the run, with an absolute path of the data folder.
    """

    name: str
    recipe: str
    scale: Scale
    overrides: Mapping[str, Any]
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


def carry_out(request: RunRequest, on_row: OnRow) -> str:
    """Carry out a request; resume if its folder already holds the run.

    Args:
        request: Run to carry out.
        on_row: Function called with the progress.

    Returns:
        Reason of the failure in one line, or an empty string. A failure does not stop other runs.
    """
    try:
        reproduce(
            request.recipe,
            out=request.folder,
            scale=request.scale,
            resume=RunFolder.config_of(request.folder) is not None,
            overrides=request.overrides,
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


class SweepProgress:
    """Progress of all runs of a sweep, reported at every change.

    Args:
        names: Names of the runs, in order.
        on_change: Function called at every change with the progress of every run.
    """

    def __init__(self, names: Sequence[str], on_change: OnChange) -> None:
        self._progress = {name: RunProgress() for name in names}
        self._on_change = on_change

    def update(self, changed: Mapping[str, RunProgress]) -> None:
        """Update the progress of some runs."""
        self._progress |= changed
        self._on_change(dict(self._progress))


def run_here(requests: Sequence[RunRequest], progress: SweepProgress) -> dict[str, str]:
    """Carry out all requests.

    Args:
        requests: Runs to carry out, in order.
        progress: Progress of the runs, updated at every measurement.

    Returns:
        Reason of the failure, for each run that failed.
    """
    failures = {}
    for request in requests:

        def on_row(part: str, done: int, total: int, name: str = request.name) -> None:
            progress.update({name: RunProgress("running", part, done, total)})

        progress.update({request.name: RunProgress("running")})
        failure = carry_out(request, on_row)
        if failure:
            failures[request.name] = failure
        progress.update({request.name: RunProgress("failed" if failure else "ended")})
    return failures
