"""The multilayer model, its descent and its minimum: `ncscope simulate mufm`.

Source: PFC III-C and IV-B. Cost: 2 seconds on one core. Expected with the settings given here:
descent ends 6e-4 above the minimum; PFC1 is 14 at the minimum and 25 in the data. The layered model
with transport multiplied by its depth agrees with the reduced model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.experiments.models.bounds import Positive, Seed
from ncscope.lab.experiments.models.descents import recorded_steps
from ncscope.lab.observations import Observation, observations_of
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Study
from ncscope.lab.surrogates.descent import SolverResult, gradient_descent, quasi_newton
from ncscope.lab.surrogates.mufm import (
    MUFM,
    ClassifierMUFM,
    LayeredMUFM,
    data_distance,
)
from ncscope.lab.surrogates.problem import Point, gaussian_classes
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("pfc",)
COLUMNS = ("objective", "gradient_norm", "pfc1", "pfc2", "pfc3", "data_distance")
SOLVER_STARTS = 4
COLLAPSED = 0.01
"""Features whose PFC1 (or PFC2) is below this value count as collapsed."""


class MUFMConfig(BaseModel):
    """Settings of the data, of the model and of its descent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Literal["reduced", "layered"] = Field(
        "reduced", description="Free features: of the last layer, or of every layer."
    )
    depth: int = Field(4, ge=1, description="Layers L of the layered model.")
    loss: Literal["mse", "cross-entropy"] = Field("mse", description="Loss of the outputs.")
    scaling: Literal["plain", "printed"] = Field(
        "plain", description="Regularisers undivided, or divided by K and Kn as printed."
    )
    num_classes: int = Field(5, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=1, description="Dimension d of data and features.")
    per_class: int = Field(100, ge=2, description="Samples n in each class.")
    weight_decay: Positive = Field(0.005, description="Decay of the classifier.")
    transport: Positive = Field(0.001, description="Price of moving features, lambda.")
    rate: Positive = Field(0.1, description="Step size of gradient descent.")
    steps: int = Field(50_000, ge=1, description="Steps of gradient descent.")
    every: int = Field(2_500, ge=1, description="Steps from one measurement to the next.")
    seed: Seed = Field(0, description="Seed of data and starts.")


def _parts(config: MUFMConfig) -> list[Part]:
    """Return the runs of the fast solver from several starts, and gradient descent."""
    layers = 2 if config.model == "reduced" else config.depth + 1
    record = recorded_steps(config.steps, config.every)
    return [
        Part("fast solver", SOLVER_STARTS * layers, lambda _: _minima(config)),
        Part("descent", len(record), lambda _: _descent(config, record)),
    ]


def minimum(model: MUFM, generator: torch.Generator) -> tuple[Point, SolverResult]:
    """Minimise the reduced model by the fast solver from a random start.

    Under the squared loss the features are eliminated; with the default sizes a hundred variables
    remain.

    Args:
        model: Model to minimise.
        generator: Generator of the random start.

    Returns:
        Point of the model, and the result of the solver.
    """
    if model.loss == "mse":
        classifier = ClassifierMUFM(model)
        result = quasi_newton(classifier, classifier.start(generator))
        return classifier.completed(result.point), result
    result = quasi_newton(model, model.start(generator), limit=3_000)
    return result.point, result


def measured(model: MUFM | LayeredMUFM, point: Point, step: int) -> Measurement:
    """Measure every level, and its distance to the data after normalisation of both."""
    levels, measurement = model.levels(point), measured_point(model, point, step, GROUPS)
    records = []
    for record in measurement.model_record.layers:
        distance = float(data_distance(levels[record.layer], levels["X"]))
        records.append(replace(record, metrics={**record.metrics, "data_distance": distance}))
    return replace(measurement, model_record=ModelRecord(tuple(records)))


def _model(config: MUFMConfig, generator: torch.Generator) -> MUFM | LayeredMUFM:
    data = gaussian_classes(config.num_classes, config.per_class, config.dim, generator)
    shared = (config.weight_decay, config.transport, config.loss, config.scaling == "printed")
    if config.model == "layered":
        return LayeredMUFM(data, config.num_classes, config.depth, *shared)
    return MUFM(data, config.num_classes, *shared)


def _minima(config: MUFMConfig) -> Iterator[Observation]:
    generator = torch.Generator().manual_seed(config.seed)
    model = _model(config, generator)
    for start in range(SOLVER_STARTS):
        reduced = model.reduced() if isinstance(model, LayeredMUFM) else model
        point, result = minimum(reduced, generator)
        whole = model.straight(point) if isinstance(model, LayeredMUFM) else point
        for observation in observations_of(measured(model, whole, result.evaluations)):
            yield observation.with_values({"start": start})


def _descent(config: MUFMConfig, record: Sequence[int]) -> Iterator[Measurement]:
    generator = torch.Generator().manual_seed(config.seed)
    model = _model(config, generator)
    begin = model.start(generator)
    if isinstance(model, MUFM) and model.loss == "mse":
        model, begin = model.compact(begin)
    for step, point in gradient_descent(model, begin, config.rate, record):
        yield measured(model, point, step)


def _claims(config: MUFMConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test theorems 3 and 4 at the minimum, and that descent reaches the minimum."""
    solved = part_of(rows, "fast solver")
    best = _lowest(solved)
    data, last = best[0], best[-1]
    claims = [_more_concentrated(data, last), _not_collapsed(last), _one_minimum(solved)]
    if config.model == "layered":
        claims.append(_falls_by_layer(best))
    return [*claims, _descended(part_of(rows, "descent")[-1], last)]


def _more_concentrated(data: Observation, features: Observation) -> Claim:
    """Test the second half of theorem 4 at one point."""
    before, after = number(data, "pfc1"), number(features, "pfc1")
    return decided(
        "The minimum is more concentrated than the data: PFC1(H) < PFC1(X)",
        source="PFC",
        held=after < before,
        evidence=f"PFC1 {after:.4g} of the features, {before:.4g} of the data",
    )


def _not_collapsed(last: Observation) -> Claim:
    return decided(
        f"The minimum is not collapsed: PFC1 above {COLLAPSED}",
        source="PFC",
        held=number(last, "pfc1") > COLLAPSED,
        evidence=f"PFC1 {number(last, 'pfc1'):.4g}, PFC2 {number(last, 'pfc2'):.4g}",
    )


def _one_minimum(solved: Sequence[Observation]) -> Claim:
    objectives = [number(row, "objective") for row in solved if row.layer == "X"]
    spread = max(objectives) / min(objectives) - 1
    worst = max(number(row, "gradient_norm") for row in solved)
    return decided(
        f"The solver finds the same minimum from {len(objectives)} random starts",
        source="PFC",
        held=spread < 1e-9,
        evidence=f"objectives {min(objectives):.9g} to {max(objectives):.9g}; "
        f"gradient norms up to {worst:.1e}",
    )


def _falls_by_layer(best: Sequence[Observation]) -> Claim:
    values = [number(row, "pfc1") for row in best]
    return decided(
        "PFC1 falls from layer to layer at the minimum",
        source="PFC",
        held=all(later < value for value, later in pairwise(values)),
        evidence=", ".join(f"{value:.4g}" for value in values),
    )


def _descended(reached: Observation, best: Observation) -> Claim:
    objective, least = number(reached, "objective"), number(best, "objective")
    return decided(
        "Gradient descent arrives at the minimum, to 1 %",
        source="PFC",
        held=objective < 1.01 * least,
        evidence=f"objective {objective:.6g} after {reached.step:,} steps, least "
        f"{least:.6g}; PFC1 {number(reached, 'pfc1'):.4g} and {number(best, 'pfc1'):.4g}",
    )


def _lowest(solved: Sequence[Observation]) -> list[Observation]:
    """Select the levels of the start with the lowest objective."""
    start = min(solved, key=lambda row: number(row, "objective"))["start"]
    return [row for row in solved if row["start"] == start]


def _drawings(config: MUFMConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw the objective and PFC1-3 along the descent, with the minimum dashed."""
    path, best = part_of(rows, "descent"), _lowest(part_of(rows, "fast solver"))
    caption = (
        "Objective and metrics along gradient descent. Dashed: values at the minimum, by the fast "
        "solver. Grey: the data. The features end between the data and a collapsed simplex."
    )
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.7), layout="constrained")
        titles = {"objective": "Objective"} | PFC_TITLES
        for axes, (key, title) in zip(figure.subplots(1, 4), titles.items(), strict=True):
            _panel(axes, path, best, key, title)
        figure.axes[1].legend()
    return [Drawing("descent", caption, figure)]


PFC_TITLES = {
    "pfc1": "PFC1: within / between",
    "pfc2": "PFC2: distance to ETF",
    "pfc3": "PFC3: nearest-mean accuracy",
}


def _panel(
    axes: Axes, path: Sequence[Observation], best: Sequence[Observation], key: str, title: str
) -> None:
    names = [row.layer for row in best]
    for index, row in enumerate(best[1:]):
        colour = panels.SERIES[index % len(panels.SERIES)]
        layer_rows = [line for line in path if line.layer == row.layer]
        steps = [line.step / 1000 for line in layer_rows]
        values = [number(line, key) for line in layer_rows]
        axes.plot(steps, values, "o-", color=colour, markersize=2.5, label=row.layer)
        axes.axhline(number(row, key), color=colour, linestyle=panels.DASHED, linewidth=1)
        if key == "objective":
            break
    if key != "objective":
        axes.axhline(number(best[0], key), color=panels.SOFT, linewidth=1, label=names[0])
    if key in ("objective", "pfc1"):
        axes.set_yscale("log")
    axes.set_title(title)
    axes.set_xlabel("thousand steps")


STUDY: Study[MUFMConfig] = Study(
    id="mufm",
    title="Multilayer unconstrained features model",
    lead=(
        "Features are free, but moving them away from the data costs energy. The minimum lies "
        "between the data and a collapsed simplex; the transport cost determines its position."
    ),
    source="PFC III-C and IV-B",
    config=MUFMConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=COLUMNS,
)
