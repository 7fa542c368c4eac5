"""How far the runs of a sweep have come."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Position:
    """Where a run is.

    Attributes:
        state: Whether it waits, runs, has ended or has failed.
        part: What it works at.
        done: How much it has done.
        total: How much there is; 0 while that is not known.
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
        names: Of the runs, in order.
        on_change: Told of every change.
    """

    def __init__(self, names: Sequence[str], on_change: OnChange) -> None:
        self._positions = {name: Position() for name in names}
        self._on_change = on_change

    def put(self, positions: Mapping[str, Position]) -> None:
        """Say where runs are now."""
        self._positions |= positions
        self._on_change(dict(self._positions))
