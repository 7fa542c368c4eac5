"""Progress of the runs of a sweep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run.

    Attributes:
        state: Waiting, running, ended or failed.
        part: Part that the run works at.
        done: Amount done.
        total: Total amount; 0 while unknown.
    """

    state: Literal["waiting", "running", "ended", "failed"] = "waiting"
    part: str = ""
    done: int = 0
    total: int = 0


OnChange = Callable[[Mapping[str, RunProgress]], None]
"""Called as the work goes on, with the position of every run by name."""


class SweepProgress:
    """The positions of all runs, and whoever is told of every change.

    Args:
        names: Names of the runs, in order.
        on_change: Told of every change.
    """

    def __init__(self, names: Sequence[str], on_change: OnChange) -> None:
        self._positions = {name: RunProgress() for name in names}
        self._on_change = on_change

    def put(self, positions: Mapping[str, RunProgress]) -> None:
        """Say where runs are now."""
        self._positions |= positions
        self._on_change(dict(self._positions))
