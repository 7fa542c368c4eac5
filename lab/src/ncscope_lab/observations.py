"""Events that the parts of an experiment yield: measurements, observations and heartbeats."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, overload

from ncscope.measurement.history_file import measurement_fields, parse_measurement
from ncscope.measurement.records import Measurement

Value = float | int | str

ITERATION = "iteration"
"""Key of the optimiser steps taken, in a measurement whose step is an epoch."""


@dataclass(frozen=True)
class Observation:
    """A row of an experiment's table: numbers of one layer, network or setting at one step.

    ``observation["nc1"]`` returns a value. Keys also give access to the coordinates (step, epoch
    and so on), for figures that have a coordinate as an axis.

    Attributes:
        step: Completed optimiser steps, or points of a path.
        epoch: Completed epochs; equal to the step in experiments without epochs.
        split: Name of the samples.
        layer: Name of the layer.
        part: Name of the part of the experiment; the run sets it.
        values: Numbers and labels, by key.
    """

    step: int
    epoch: int
    split: str = "train"
    layer: str = ""
    part: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Value:
        return getattr(self, key) if key in _COORDINATES else self.values[key]

    def __contains__(self, key: object) -> bool:
        return key in _COORDINATES or key in self.values

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value or a coordinate, or the default if the observation has no such key."""
        return self[key] if key in _COORDINATES else self.values.get(key, default)

    def with_values(self, values: Mapping[str, Value]) -> "Observation":
        """Return a copy with further values."""
        return replace(self, values={**self.values, **values})

    def as_line(self) -> dict[str, Value]:
        """Return the flat dictionary that ``metrics.jsonl`` stores."""
        line: dict[str, Value] = {"part": self.part, "step": self.step, "epoch": self.epoch}
        return line | {"split": self.split, "layer": self.layer} | dict(self.values)

    @classmethod
    def of_line(cls, line: Mapping[str, Value]) -> "Observation":
        """Return the observation of a flat dictionary.

        Args:
            line: Dictionary as `as_line` returns it.
        """
        values = {key: value for key, value in line.items() if key not in _COORDINATES}
        return cls(
            step=int(line.get("step", 0)),
            epoch=int(line.get("epoch", 0)),
            split=str(line.get("split", "train")),
            layer=str(line.get("layer", "")),
            part=str(line.get("part", "")),
            values=values,
        )


_COORDINATES = ("part", "step", "epoch", "split", "layer")


@dataclass(frozen=True)
class Heartbeat:
    """Signal that a part is still running; in a part that trains, the end of an epoch."""


Recorded = Measurement | Observation
"""Events that are recorded."""

Event = Recorded | Heartbeat
"""Event that a part yields. Its values do not depend on the hardware."""


class Results(Sequence[Observation]):
    """Observations of an experiment in the order of its parts, with the underlying measurements."""

    def __init__(
        self,
        observations: Iterable[Observation] = (),
        measurements: Iterable[Measurement] = (),
    ) -> None:
        self._observations = list(observations)
        self.measurements = list(measurements)

    @overload
    def __getitem__(self, index: int) -> Observation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Observation]: ...

    def __getitem__(self, index: int | slice) -> Observation | list[Observation]:
        return self._observations[index]

    def add(self, event: Recorded, part: str) -> None:
        """Add an event of a part; a measurement adds one observation per layer."""
        if isinstance(event, Measurement):
            event = replace(event, run=part)
            self.measurements.append(event)
        self._observations += [_as_read(replace(row, part=part)) for row in flatten([event])]

    def __len__(self) -> int:
        return len(self._observations)

    def __iter__(self) -> Iterator[Observation]:
        return iter(self._observations)


def together(results: Iterable[Results]) -> Results:
    """Return the results of several parts as one, in order."""
    parts = list(results)
    return Results(
        chain.from_iterable(parts), chain.from_iterable(part.measurements for part in parts)
    )


def observations_of(measurement: Measurement) -> list[Observation]:
    """Return one observation per layer, in forward order.

    Its values are the metrics of the layer, the further numbers of the measurement, and the
    layer's relative position in the network if it has one. The last layer with a position also has
    the straightness of the path that ends there.

    Args:
        measurement: Measurement of a part.
    """
    probe = measurement.model_record
    positions = dict(zip(probe.comparable, probe.relative_position, strict=False))
    straight = {} if probe.straightness is None else {"straightness": probe.straightness}
    shared = {key: value for key, value in measurement.values.items() if key != ITERATION}
    step = int(measurement.values.get(ITERATION, measurement.step))
    return [
        Observation(
            step=step,
            epoch=int(measurement.step),
            split=measurement.split,
            layer=record.layer,
            part=measurement.run,
            values=shared
            | ({"relative_position": positions[record.layer]} if record.layer in positions else {})
            | (straight if (record.layer,) == probe.comparable[-1:] else {})
            | dict(record.metrics),
        )
        for record in probe.layers
    ]


def flatten(events: Iterable[Recorded]) -> Iterator[Observation]:
    """Yield the observations of all events, measurements split by layer, in order."""
    for event in events:
        yield from observations_of(event) if isinstance(event, Measurement) else (event,)


def plain_event(event: Recorded) -> dict[str, Any]:
    """Return an event as nested dictionaries and lists, for a checkpoint."""
    if isinstance(event, Measurement):
        return {"kind": "measurement", **_plain(measurement_fields(event))}
    return {"kind": "observation", **_plain(asdict(event))}


def event_of(plain: Mapping[str, Any]) -> Recorded:
    """Return the event that `plain_event` converted.

    Args:
        plain: Nested dictionaries and lists, from a checkpoint.

    Raises:
        ValueError: If the input is not an event. For the same reason it can raise TypeError
            and KeyError.
    """
    if not isinstance(plain, dict):
        msg = "no event where one should be"
        raise ValueError(msg)
    content = {key: value for key, value in plain.items() if key != "kind"}
    if plain["kind"] == "measurement":
        return parse_measurement(content)
    observation = Observation(**content)
    kinds = {"step": int, "epoch": int, "split": str, "layer": str, "part": str, "values": dict}
    for name, kind in kinds.items():
        if not isinstance(getattr(observation, name), kind):
            msg = f"an observation whose {name} is {getattr(observation, name)!r}"
            raise ValueError(msg)
    return observation


def _plain(value: Any) -> Any:
    """Replace tuples by lists, at any depth."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _as_read(observation: Observation) -> Observation:
    """Return the observation as it is read back from a file, with NaN for infinities."""
    values = {
        key: math.nan if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in observation.values.items()
    }
    return replace(observation, values=values)
