"""A study of no paper: halving, so that what runs studies can be seen to run them."""

import math
from collections.abc import Iterator

import matplotlib as mpl
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.claims import decide
from ncscope.lab.experiment import Part
from ncscope.lab.findings import Finding
from ncscope.lab.observations import Observation, Results
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Recipe
from ncscope.report import panels


class Halving(BaseModel):
    """Its settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: float = Field(8.0, gt=0, description="Where to begin.")
    steps: int = Field(3, ge=1, description="How often to halve.")


def parts(config: Halving) -> list[Part]:
    def run(sign: float) -> Iterator[Observation]:
        for step in range(config.steps + 1):
            value = sign * config.start / 2**step
            values = {"value": value, "log": math.log(value) if value > 0 else math.nan}
            yield Observation(step, step, layer="only", values=values)

    return [
        Part("upper", config.steps + 1, lambda resources: run(1.0)),
        Part("lower", config.steps + 1, lambda resources: run(-1.0)),
    ]


def claims(config: Halving, results: Results) -> list[Finding]:
    last = float(results[config.steps]["value"])
    return [
        decide(
            "It halves.",
            source="ours",
            held=last == config.start / 2**config.steps,
            evidence=f"{last}",
        ),
        decide("It reaches zero.", source="ours", held=last == 0, evidence=f"{last}"),
    ]


def drawings(config: Halving, results: Results) -> list[Drawing]:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(4, 3), layout="constrained")
        axes = figure.subplots()
        axes.plot([row.step for row in results], [float(row["value"]) for row in results], "o")
    return [Drawing("halves", f"From {config.start}, halved.", figure)]


RECIPE = Recipe(
    id="test/halving",
    title="Halving",
    lead="A number is halved.",
    source="Zeno",
    config=Halving,
    parts=parts,
    claims=claims,
    drawings=drawings,
    columns=("step", "value", "log"),
    scales={"paper": Halving(steps=5), "small": Halving()},
    cost={"paper": "nothing", "small": "nothing"},
)
