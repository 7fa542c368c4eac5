"""Results of experiments for tests: made from plain rows, or gathered from what parts yield."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

from pydantic import BaseModel

from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.observations import Event, Heartbeat, Observation, Results
from ncscope_lab.runs.resources import Resources


def observed(rows: Iterable[Mapping[str, Any]]) -> Results:
    """Observations of plain rows: part, split, layer, step and epoch, then the values."""
    return Results(Observation.of_line(row) for row in rows)


COORDINATES = {"omega", "sparsity", "size"}


def nudged(row: Observation) -> Observation:
    """The observation, every value changed by less than 1e-7 of it, as another seed would.

    Values that are all alike decide no claim. A value of 1, such as a perfect accuracy, stays.
    """
    where = repr(row.as_line())
    return row.with_values(
        {
            key: value * (1 - 1e-7 * crc32(f"{where} {key}".encode()) / 2**32)
            for key, value in row.values.items()
            if isinstance(value, float) and key not in COORDINATES and value != 1
        }
    )


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


def with_each(results: Results, change: Callable[[Observation], Observation]) -> Results:
    """The same results, every observation changed."""
    return Results([change(each) for each in results], results.measurements)


def those(results: Results, kept: Callable[[Observation], bool]) -> Results:
    """The same results without some observations."""
    return Results(filter(kept, results), results.measurements)


def measurement(
    part: str,
    epoch: int,
    layers: Mapping[str, Mapping[str, float]],
    spectra: Mapping[str, list[float]] | None = None,
    **given: Any,
) -> Measurement:
    """A measurement of a part's training set: metrics by layer, spectra of the last layer.

    Args:
        part: Name of the part.
        epoch: Epochs completed.
        layers: Metrics by layer.
        spectra: Eigenvalues of the last layer.
        given: Further fields of `ModelRecord`, and of `Measurement`: split and values.
    """
    records = [LayerRecord(name, metrics, (), 10, 100, 8) for name, metrics in layers.items()]
    if spectra is not None:
        records[-1] = replace(records[-1], spectra=spectra)
    own = {key: given.pop(key) for key in ("split", "values") if key in given}
    return Measurement(ModelRecord(tuple(records), **given), epoch, run=part, **own)


def measured(measurements: Iterable[Measurement]) -> Results:
    """Measurements of several parts, each an observation a layer, as they reach claims."""
    results = Results()
    for each in measurements:
        results.add(each, each.run)
    return results


def experiment_results(experiment: Experiment[Any], config: BaseModel) -> Results:
    """What parts yield, as many events as each announces, as if read from a file."""
    whole = Results()
    for part in experiment.parts(config):
        events = list(part.run(Resources()))
        assert len(events) == part.yields
        for event in events:
            assert not isinstance(event, Heartbeat)
            whole.add(event, part.name)
    return Results(map(reread, whole), whole.measurements)


def reread(observation: Observation) -> Observation:
    """The observation after a way through JSON."""
    return Observation.of_line(json.loads(json.dumps(observation.as_line())))


def changed(observation: Observation, **given: Any) -> Observation:
    """A copy with other values or coordinates."""
    return Observation.of_line(observation.as_line() | given)
