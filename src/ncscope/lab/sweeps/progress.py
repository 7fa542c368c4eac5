"""Progress of the runs of a sweep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


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
