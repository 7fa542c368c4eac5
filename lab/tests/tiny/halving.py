"""An experiment of no paper: halving, so that what runs experiments can be seen to run them."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.report import panels
from ncscope_lab.claims import Claim, above
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Runs, last
from ncscope_lab.report.drawing import Drawing


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


def claims(config: Halving) -> list[Claim]:
    """One that holds, and one that does not."""
    end = last("value")

    def tell(runs: Runs) -> str:
        return f"{end(runs[0])}"

    return [
        Claim(
            text=text,
            source="ours",
            where="upper",
            quantity=lambda run, wanted=wanted: float(end(run) == wanted),
            region=above(0.5),
            rule="all",
            tell=tell,
        )
        for text, wanted in {
            "It halves.": config.start / 2**config.steps,
            "It reaches zero.": 0.0,
        }.items()
    ]


def figures(config: Halving, runs: Runs) -> list[Drawing]:
    rows = [row for run in runs for row in run.rows]
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(4, 3), layout="constrained")
        axes = figure.subplots()
        axes.plot([row.step for row in rows], [float(row["value"]) for row in rows], "o")
    return [Drawing("halves", f"From {config.start}, halved.", figure)]


EXPERIMENT = Experiment(
    id="test/halving",
    title="Halving",
    question="A number is halved.",
    source="Zeno",
    parts=parts,
    claims=claims,
    figures=figures,
    columns=("step", "value", "log"),
    scales={"paper": Halving(steps=5), "small": Halving()},
    cost={"paper": "nothing", "small": "nothing"},
)

PLAIN = replace(EXPERIMENT, figures=lambda config, runs: [])
"""The same without its figure, which takes long to draw."""


def list_alone(patch: pytest.MonkeyPatch, *experiments: Experiment[Any]) -> None:
    """Let the catalogue hold these experiments only; an unknown name is that of the first."""
    known = {each.id: each for each in experiments}

    def find(name: str) -> Experiment[Any]:
        return known.get(name, experiments[0])

    for module in ("execution", "sweeps.sweep", "sweeps.requests", "sweeps.all_experiments"):
        patch.setattr(f"ncscope_lab.{module}.find_experiment", find)
    for module in ("run", "sweep"):
        patch.setattr(f"ncscope_lab.cli.{module}.refuse_unknown", lambda name: None)
