"""Progress of the runs of a sweep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Position:
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


OnChange = Callable[[Mapping[str, Position]], None]
"""Called as the work goes on, with the position of every run by name."""


class Board:
    """The positions of all runs, and whoever is told of every change.

    Args:
        names: Names of the runs, in order.
        on_change: Told of every change.
    """

    def __init__(self, names: Sequence[str], on_change: OnChange) -> None:
        self._positions = {name: Position() for name in names}
        self._on_change = on_change

    def put(self, positions: Mapping[str, Position]) -> None:
        """Say where runs are now."""
        self._positions |= positions
        self._on_change(dict(self._positions))
