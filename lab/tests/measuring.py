"""An experiment of no paper whose parts yield measurements, as parts that train do."""

import math
from collections.abc import Iterator
from dataclasses import replace

from lab.tests.tiny import halving
from lab.tests.tiny.halving import Halving

from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope_lab.claims import Claim, below
from ncscope_lab.experiment import Part
from ncscope_lab.observations import Event, Heartbeat, Observation
from ncscope_lab.quantities import Runs, last


def parts(config: Halving) -> list[Part]:
    """Two parts, each of a measurement, an observation and a heartbeat a step."""

    def run(sign: float) -> Iterator[Event]:
        for step in range(config.steps + 1):
            value = sign * config.start / 2**step
            yield Measurement(probe(value), step, values={"loss": abs(value)})
            yield Observation(step, step, "train", "whole", values={"value": value})
            yield Heartbeat()

    count = 3 * (config.steps + 1)
    return [
        Part("upper", count, lambda resources: run(1.0)),
        Part("lower", count, lambda resources: run(-1.0)),
    ]


def probe(value: float) -> ModelRecord:
    """Two layers, of which one has a value that is undefined and one that is infinite."""
    cosine, size = math.tanh(value), abs(value)
    gram = [[1.0, cosine], [cosine, 1.0]]
    spectra = {"between": [size, 0.0], "total": [size, math.inf]}
    layers = (
        LayerRecord("stem", {"nc1": size, "nc2": math.nan}, ("undefined",), 2, 4, 3),
        LayerRecord("last", {"nc1": size, "nc2": math.inf}, (), 2, 4, 3, spectra, gram),
    )
    line = GeodesicRecord([0.0, 1.0], [value, 0.0], [value, 0.0], [0.5, 1.0], value, value)
    return ModelRecord(layers, ("stem", "last"), (0.0, 1.0), line)


def claims(config: Halving) -> list[Claim]:
    """A claim whose evidence is of observations and of measurements."""
    end = last("value", layer="whole")

    def tell(runs: Runs) -> str:
        measurements = [each for run in runs[0].experiment for each in run.measurements]
        return f"{end(runs[0])}, {sum(each.values['loss'] for each in measurements)}"

    return [
        Claim(
            text="It ends below zero.",
            source="ours",
            where="lower",
            quantity=end,
            region=below(0),
            rule="all",
            tell=tell,
        )
    ]


EXPERIMENT = replace(halving.PLAIN, parts=parts, claims=claims, columns=("nc1", "nc2", "value"))
