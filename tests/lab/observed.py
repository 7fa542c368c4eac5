"""Results of studies for tests: made from plain rows, or gathered from what parts yield."""

from collections.abc import Iterable, Mapping
from typing import Any

from ncscope.lab.observations import Event, Heartbeat, Observation, Results
from ncscope.lab.runs.recipe import Part
from ncscope.lab.runs.resources import Resources


def observed(rows: Iterable[Mapping[str, Any]]) -> Results:
    """Observations of plain rows: part, split, layer, step and epoch, then the values."""
    return Results(Observation.of_line(row) for row in rows)


def gathered(events: Iterable[Event], part: str = "") -> Results:
    """What events amount to, as it reaches claims and figures."""
    results = Results()
    for event in events:
        if not isinstance(event, Heartbeat):
            results.add(event, part)
    return results


def results_of(*parts: Part, resources: Resources | None = None) -> Results:
    """What parts yield, as it reaches claims and figures."""
    whole = Results()
    for part in parts:
        own = gathered(part.run(resources or Resources()), part.name)
        whole = Results([*whole, *own], [*whole.measurements, *own.measurements])
    return whole
