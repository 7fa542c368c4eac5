"""Request for one run of a sweep: experiment, settings, folder and resources."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ncscope.errors import InputError
from ncscope.lab.runs.recipe import Scale
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
