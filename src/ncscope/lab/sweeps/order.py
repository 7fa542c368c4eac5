"""One run of a sweep, as it is handed to whoever runs it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ncscope.errors import InputError
from ncscope.lab.runs.recipe import Scale
from ncscope.lab.runs.resources import Work
from ncscope.lab.runs.run_folder import RunFolder
from ncscope.lab.runs.running import OnRow
from ncscope.lab.studies import reproduce


@dataclass(frozen=True)
class Order:
    """Request for one run of a sweep; the same on every machine.

    Attributes:
        name: Name of the run.
        recipe: Name of the experiment.
        scale: Whose settings it starts from.
        overrides: Settings of the run by dotted name.
        folder: Absolute folder of the run.
        work: The means; its folder of data sets is absolute.
    """

    name: str
    recipe: str
    scale: Scale
    overrides: Mapping[str, Any]
    folder: Path
    work: Work

    def as_json(self) -> dict[str, Any]:
        """Return the request in types of JSON; `from_json` reads it."""
        work = asdict(self.work) | {"data": str(self.work.data)}
        return asdict(self) | {"folder": str(self.folder), "work": work}

    @staticmethod
    def from_json(order: dict[str, Any]) -> "Order":
        """Read the request that `as_json` wrote."""
        work = Work(**order["work"] | {"data": Path(order["work"]["data"])})
        return Order(**order | {"folder": Path(order["folder"]), "work": work})

    def on(self, accelerator: str) -> "Order":
        """Return a copy that runs on another accelerator."""
        return replace(self, work=replace(self.work, accelerator=accelerator))


def carry_out(order: Order, on_row: OnRow) -> str:
    """Run it, or go on with what its folder holds of it.

    Args:
        order: Run to carry out.
        on_row: Called as the work goes on.

    Returns:
        Why it failed, in one line; nothing if it did not. The other runs go on either way.
    """
    try:
        reproduce(
            order.recipe,
            out=order.folder,
            scale=order.scale,
            resume=RunFolder.config_of(order.folder) is not None,
            overrides=order.overrides,
            work=order.work,
            on_row=on_row,
        )
    except Exception as error:
        return one_line(error)
    return ""


def one_line(error: Exception) -> str:
    """Write an error in one line; an unexpected error with its type."""
    said = " ".join(str(error).split())
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"
