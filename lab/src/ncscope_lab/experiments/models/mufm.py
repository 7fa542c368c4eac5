"""The multilayer model, its descent and its minimum: ``ncscope run mufm``.

Source: PFC III-C and IV-B. The layered model with transport multiplied by its depth agrees with the
reduced model. There is one draw of the data, so a claim holds if its value lies in the region.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, pairwise
from typing import Literal

import torch
from matplotlib.axes import Axes
from pydantic import Field

from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.report import panels
from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import Positive, Seed
from ncscope_lab.experiments.models.descents import choose_steps
from ncscope_lab.figures import draw_grid
from ncscope_lab.observations import Observation, observations_of
from ncscope_lab.quantities import Path, Quantity, Run, Runs, first, last, quantity, values
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.descent import SolverResult, gradient_descent, quasi_newton
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.mufm import MUFM, ClassifierMUFM, LayeredMUFM, data_distance
from ncscope_lab.surrogates.problem import Point, gaussian_classes

PFC_TITLES = {
    "pfc1": "PFC1: within / between",
    "pfc2": "PFC2: distance to ETF",
    "pfc3": "PFC3: nearest-mean accuracy",
}
SOLVER_STARTS = 4
COLLAPSED = 0.01  # features whose PFC1 (or PFC2) is below this value count as collapsed
SAME = 1e-9  # relative difference of the objectives of one minimum
ARRIVED = 1.01  # objective over the minimum at which a descent counts as arrived


class MUFMConfig(Config):
    """Settings of the data, of the model and of its descent."""

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


def list_claims(settings: MUFMConfig) -> list[Claim]:
    """Return theorems 3 and 4 at the minimum, and that descent reaches the minimum."""
    objective, pfc1 = last("objective"), last("pfc1")
    claim = partial(Claim, source="PFC", rule="all")
    minimum, solver, descent = (
        partial(claim, where=where) for where in (select_minimum, "fast solver", "descent")
    )
    falls = minimum(
        text="PFC1 falls from layer to layer at the minimum",
        quantity=Quantity(
            "largest rise of PFC1",
            lambda run: max(b - a for a, b in pairwise(values(run.rows, "pfc1"))),
        ),
        region=below(0),
        tell=lambda runs: ", ".join(f"{value:.4g}" for value in values(runs[0].rows, "pfc1")),
    )
    return [
        minimum(
            text="The minimum is more concentrated than the data: PFC1(H) < PFC1(X)",
            quantity=pfc1 / first("pfc1", layer="X"),
            region=below(1),
        ),
        minimum(
            text=f"The minimum is not collapsed: PFC1 above {COLLAPSED}",
            quantity=pfc1,
            region=above(COLLAPSED),
        ),
        solver(
            text=f"The solver finds the same minimum from {SOLVER_STARTS} random starts",
            quantity=largest_objective / least_objective,
            region=below(1 + SAME),
            tell=tell_starts,
        ),
        *([falls] if settings.model == "layered" else []),
        descent(
            text="Gradient descent arrives at the minimum, to 1 %",
            quantity=objective
            / least_objective.of(lambda run: run.experiment.find("fast solver"), "least objective"),
            region=below(ARRIVED),
        ),
    ]


def select_minimum(runs: Runs) -> Runs:
    """Select the fast solver's start with the lowest objective; its rows are the levels."""
    starts = Runs([runs.find("fast solver")]).split("start")
    return Runs(sorted(starts, key=last("objective"))[:1])


@quantity("least objective")
def least_objective(run: Run) -> float:
    """Return the least objective that the fast solver finds."""
    return min(values(run.path(layer="X"), "objective"), default=math.nan)


@quantity("largest objective")
def largest_objective(run: Run) -> float:
    """Return the largest objective that the fast solver finds from a start."""
    return max(values(run.path(layer="X"), "objective"), default=math.nan)


def tell_starts(runs: Runs) -> str:
    """Write the objectives with the digits in which minima differ."""
    largest, least = largest_objective(runs[0]), least_objective(runs[0])
    norm = max(values(runs[0].rows, "gradient_norm"))
    return f"objectives {least:.9g} to {largest:.9g}; gradient norms up to {norm:.1e}"


def draw_figures(settings: MUFMConfig, runs: Runs) -> list[Drawing]:
    """Draw the objective and PFC1-3 along the descent, with the minimum dashed."""
    caption = (
        "Objective and metrics along gradient descent. Dashed: values at the minimum, by the fast "
        "solver. Grey: the data. The features end between the data and a collapsed simplex."
    )
    descent, best = runs.find("descent"), select_minimum(runs)[0].rows
    titles = {"objective": "Objective"} | PFC_TITLES
    row = [partial(draw_panel, descent, best, key, title) for key, title in titles.items()]
    return [Drawing("descent", caption, draw_grid([row], cell=(2.75, 2.6)))]


def draw_panel(descent: Run, best: Path, key: str, title: str, axes: Axes) -> None:
    """Draw a metric of each level along the descent, beside those of the minimum and the data."""
    data, *levels = best
    for row, colour in zip(levels, cycle(panels.SERIES), strict=False):
        path = descent.path(layer=row.layer)
        steps = [each.step / 1000 for each in path]
        axes.plot(steps, values(path, key), "o-", color=colour, markersize=2.5, label=row.layer)
        axes.axhline(float(row[key]), color=colour, linestyle=panels.DASHED, linewidth=1)
        if key == "objective":
            break  # which belongs to no level
    else:
        axes.axhline(float(data[key]), color=panels.SOFT, linewidth=1, label=data.layer)
    if key in ("objective", "pfc1"):
        axes.set_yscale("log")
    if key == "pfc1":
        axes.legend()
    axes.set_title(title)
    axes.set_xlabel("thousand steps")


def list_parts(settings: MUFMConfig) -> list[Part]:
    """Return the runs of the fast solver from several starts, and gradient descent."""
    layers = 2 if settings.model == "reduced" else settings.depth + 1
    record = choose_steps(settings.steps, settings.every)
    return [
        Part("fast solver", SOLVER_STARTS * layers, lambda _: solve(settings)),
        Part("descent", len(record), lambda _: descend(settings, record)),
    ]


def solve(settings: MUFMConfig) -> Iterator[Observation]:
    """Yield the levels at the minimum that the fast solver finds from each start."""
    generator = torch.Generator().manual_seed(settings.seed)
    model = make_model(settings, generator)
    for start in range(SOLVER_STARTS):
        reduced = model.reduce() if isinstance(model, LayeredMUFM) else model
        point, result = minimise(reduced, generator)
        whole = model.straight(point) if isinstance(model, LayeredMUFM) else point
        for observation in observations_of(measure_levels(model, whole, result.evaluations)):
            yield observation.with_values({"start": start})


def descend(settings: MUFMConfig, record: Sequence[int]) -> Iterator[Measurement]:
    """Yield the points of gradient descent at the given steps."""
    generator = torch.Generator().manual_seed(settings.seed)
    model = make_model(settings, generator)
    begin = model.start(generator)
    if isinstance(model, MUFM) and model.loss == "mse":
        model, begin = model.compact(begin)
    for step, point in gradient_descent(model, begin, settings.rate, record):
        yield measure_levels(model, point, step)


def make_model(settings: MUFMConfig, generator: torch.Generator) -> MUFM | LayeredMUFM:
    """Return the model on data of the generator."""
    k, n, d = settings.num_classes, settings.per_class, settings.dim
    data = gaussian_classes(k, n, d, generator)
    printed = settings.scaling == "printed"
    shared = (settings.weight_decay, settings.transport, settings.loss, printed)
    if settings.model == "layered":
        return LayeredMUFM(data, k, settings.depth, *shared)
    return MUFM(data, k, *shared)


def minimise(model: MUFM, generator: torch.Generator) -> tuple[Point, SolverResult]:
    """Minimise the reduced model by the fast solver from a random start.

    Under the squared loss the features are eliminated; with the default sizes a hundred variables
    remain.

    Returns:
        Point of the model, and the result of the solver.
    """
    if model.loss == "mse":
        classifier = ClassifierMUFM(model)
        result = quasi_newton(classifier, classifier.start(generator))
        return classifier.complete(result.point), result
    result = quasi_newton(model, model.start(generator), limit=3_000)
    return result.point, result


def measure_levels(model: MUFM | LayeredMUFM, point: Point, step: int) -> Measurement:
    """Measure every level, and its distance to the data after normalisation of both."""
    levels, measurement = model.levels(point), measure_solution(model, point, step, ("pfc",))
    records = []
    for record in measurement.model_record.layers:
        distance = float(data_distance(levels[record.layer], levels["X"]))
        records.append(replace(record, metrics={**record.metrics, "data_distance": distance}))
    return replace(measurement, model_record=ModelRecord(tuple(records)))


EXPERIMENT = Experiment(
    id="mufm",
    title="Multilayer unconstrained features model",
    question=(
        "Features are free, but moving them away from the data costs energy. The minimum lies "
        "between the data and a collapsed simplex; the transport cost determines its position."
    ),
    source="PFC III-C and IV-B",
    scales={"small": MUFMConfig()},
    cost={"small": "2 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=("objective", "gradient_norm", "pfc1", "pfc2", "pfc3", "data_distance"),
    unit="step",
)
