"""Descents of surrogate models, as parts of experiments, with their claims and their figure.

A part holds the measurements along one descent. Its claims are mathematics that a computation
checks, so they need no interval: the descent arrives at the minimum, and metrics vanish.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from ncscope.measurement.records import Measurement
from ncscope.report import panels
from ncscope_lab.claims import Claim, below, within
from ncscope_lab.experiment import Part
from ncscope_lab.experiments.models.bounds import Positive, Seed
from ncscope_lab.figures import draw_grid, draw_reference
from ncscope_lab.quantities import Path, Run, Runs, ends, last, values
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.problem import Minimiser, Point, Problem

GROUPS = ("nc1", "nc2", "nc3")
COLUMNS = ("objective", "nc1", "nc2_of", "nc2_etf", "nc3_alignment", "mean_share")
VANISHED = 1e-3  # a metric of collapse counts as vanished if it has fallen below this value
ARRIVED = 1e-6  # distance from the minimum at which a descent counts as arrived
ROUNDING = 1e-16  # smaller values of a metric, or of a distance of objectives, are rounding
EXACT = 1e-9  # distance from the minimum at which the fast solver counts as arrived
FRAMES = {"nc2_of": "the orthogonal frame", "nc2_etf": "the simplex ETF"}


class DescentConfig(Config):
    """Settings of a model with one level, and of its descent."""

    num_classes: int = Field(4, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=1, description="Dimension d of the features.")
    per_class: int = Field(50, ge=1, description="Samples n in each class.")
    weight_decay: Positive = Field(0.005, description="Decay of the classifier.")
    feature_decay: Positive = Field(0.001, description="Decay of the features.")
    rate: Positive = Field(0.1, description="Step size of gradient descent.")
    steps: int = Field(80_000, ge=1, description="Steps of gradient descent.")
    every: int = Field(5_000, ge=1, description="Steps from one measurement to the next.")
    seed: Seed = Field(0, description="Seed of the start.")


def list_descent_parts(
    settings: DescentConfig, problem: Problem, best: Minimiser | None, start: Point
) -> list[Part]:
    """Return the fast solver and gradient descent, from one start."""
    record = choose_steps(settings.steps, settings.every)
    return [
        Part("fast solver", 1, lambda _: iter([solve(problem, best, start)])),
        descend("descent", problem, best, start, settings.rate, record),
    ]


def choose_steps(steps: int, every: int) -> list[int]:
    """Return the steps to measure: the start, a few early steps, the regular steps, the last."""
    early = [size * 10**power for power in range(7) for size in (1, 3)]
    regular = range(0, steps, every)
    return sorted({step for step in early if step < min(every, steps)} | {*regular, steps})


def descend(
    name: str,
    problem: Problem,
    best: Minimiser | None,
    start: Point,
    rate: float,
    record: Collection[int],
) -> Part:
    """Return the part of a gradient descent, measured at chosen steps.

    Args:
        name: Name of the part.
        problem: Model with one level.
        best: Minimum in closed form; None if there is none.
        start: Initial point.
        rate: Step size.
        record: Steps to measure; the last one ends the descent.
    """

    def run(_: object) -> Iterator[Measurement]:
        for step, point in gradient_descent(problem, start, rate, record):
            yield measure_point(problem, best, point, step)

    return Part(name, len(record), run)


def state(problem: Problem, best: Minimiser) -> Part:
    """Return the part of the minimiser in closed form."""
    return Part("closed form", 1, lambda _: iter([measure_point(problem, best, best.point, 0)]))


def solve(problem: Problem, best: Minimiser | None, start: Point) -> Measurement:
    """Measure the minimum that the fast solver finds; ``step`` counts its evaluations."""
    result = quasi_newton(problem, start)
    return measure_point(problem, best, result.point, result.evaluations)


def measure_point(problem: Problem, best: Minimiser | None, point: Point, step: int) -> Measurement:
    """Measure a point of a model with one level.

    The measurement also holds ``minimum`` (NaN if there is no closed form) and ``mean_share``, the
    share of the global mean in the class means' energy: 0 for a simplex, 1/K for an orthogonal
    frame.
    """
    minimum = math.nan if best is None else best.objective
    whole = {"minimum": minimum, "mean_share": mean_share(problem, point)}
    return measure_solution(problem, point, step, GROUPS).with_values(whole)


def mean_share(problem: Problem, point: Point) -> float:
    """Compute the share of the global mean in the class means' energy."""
    (features,) = problem.levels(point).values()
    means = features.unflatten(1, (problem.num_classes, problem.per_class)).mean(2)
    return float(means.mean(1).square().sum() / means.square().sum(0).mean())


def draw_start(problem: Problem, seed: int) -> Point:
    """Draw the start of a seed."""
    return problem.start(torch.Generator().manual_seed(seed))


def gap(run: Run) -> float:
    """Return the distance of the last objective from the minimum; NaN without rows."""
    return last("objective")(run) - last("minimum")(run)


def arrives(run: Run) -> bool:
    """Return whether a descent ends at the minimum."""
    return abs(gap(run)) < ARRIVED


def claim_arrival(part: str, *, source: str, before: str = "") -> Claim:
    """Claim that a descent's last objective equals the closed form's minimum.

    Args:
        part: Name of the part.
        source: Owner of the claim.
        before: Beginning of the claim's text.
    """

    def tell(runs: Runs) -> str:
        end = runs[0].rows[-1]
        return (
            f"objective {end['objective']:.9f} after {end.step:,} steps, {gap(runs[0]):.1e} above "
            f"{end['minimum']:.9f}"
        )

    return Claim(
        text=f"{before}Gradient descent arrives at the closed form's minimum, to 1e-6",
        source=source,
        where=part,
        quantity=gap,
        region=within(ARRIVED),
        rule="all",
        tell=tell,
    )


def claim_solver(part: str) -> Claim:
    """Claim that the fast solver's objective equals the closed form's minimum."""

    def tell(runs: Runs) -> str:
        end = runs[0].rows[-1]
        return (
            f"{gap(runs[0]):.1e} above the minimum with a gradient of {end['gradient_norm']:.1e}, "
            f"after {end.step:,} evaluations"
        )

    return Claim(
        text="The fast solver ends at the closed form's minimum, to 1e-9",
        source="ours",
        where=part,
        quantity=gap,
        region=within(EXACT),
        rule="all",
        tell=tell,
    )


def claim_vanishing(
    part: str,
    statements: Mapping[str, str],
    *,
    source: str,
    before: str = "",
    layer: str | None = None,
) -> list[Claim]:
    """Claim that metrics vanish along a descent.

    Args:
        part: Name of the part.
        statements: Statement that holds if a metric vanishes, by metric.
        source: Owner of the claims.
        before: Beginning of the claims' texts.
        layer: Name of the level; default the last level.
    """

    def tell(key: str, runs: Runs) -> str:
        path = runs[0].path(layer=layer)
        start, end = ends(path, key)
        return f"{key} {start:.2g} at the start, {end:.2g} after {path[-1].step:,} steps"

    return [
        Claim(
            text=f"{before}{statement}",
            source=source,
            where=part,
            quantity=last(key, layer=layer),
            region=below(VANISHED),
            rule="all",
            tell=partial(tell, key),
        )
        for key, statement in statements.items()
    ]


def draw_descent(run: Run, nc2: str) -> Figure:
    """Draw four panels: the objective above its minimum, and one metric each of NC1, NC2 and NC3.

    Args:
        run: The descent.
        nc2: Key of the metric of NC2, which determines the frame to compare the class means with.
    """
    titles = {
        "objective": "Objective above the minimum",
        "nc1": "NC1: within / between",
        nc2: f"NC2: distance to {'OF' if nc2 == 'nc2_of' else 'ETF'}",
        "nc3_alignment": "NC3: W against means",
    }
    first, second, *others = (
        partial(draw_steps, run.path(), key, title) for key, title in titles.items()
    )
    return draw_grid([[first, second], others], cell=(3.7, 2.3), legend="below")


DESCENT_CAPTION = (
    f"The dashed lines are the borders of the claims, {ARRIVED:g} of the objective and "
    f"{VANISHED:g} of the metrics; values below {ROUNDING:g} are rounding and stand in the grey "
    "strip, at 0."
)


def draw_steps(path: Path, key: str, title: str, axes: Axes) -> None:
    """Draw a metric, or the objective above its minimum, against the step."""
    minimum = ends(path, "minimum")[1]
    known = key == "objective" and math.isfinite(minimum)
    numbers = [abs(value - minimum) if known else value for value in values(path, key)]
    border = ARRIVED if key == "objective" else VANISHED
    draw_falls(axes, {"descent": (path, numbers)}, [*numbers, border])
    if known or key != "objective":
        draw_reference(axes, border, "border of the claim", panels.DASHED)
    axes.set_title(title if known or key != "objective" else "Objective")


def draw_falls(
    axes: Axes,
    falls: Mapping[str, tuple[Path, Sequence[float]]],
    scale: Sequence[float],
    looks: Mapping[str, Mapping[str, Any]] = {},
) -> None:
    """Draw values that fall to 0 against the step, on a logarithmic axis.

    Args:
        axes: Axes to draw on.
        falls: Rows and their values, by name in the legend.
        scale: All values on the axes, and on those that share their scale.
        looks: Appearance of the curves, by name.
    """
    scale = round_off(scale)
    for name, (path, numbers) in falls.items():
        drawn = panels.place_on_log_axis(round_off(numbers), scale)
        look: dict[str, Any] = {
            "color": panels.ACCENT,
            "marker": "o",
            "markersize": 2.8,
            "label": name,
        }
        axes.plot([row.step / 1000 for row in path], drawn, **(look | dict(looks.get(name, {}))))
    panels.make_logarithmic(axes, "y", scale)
    axes.set_xlabel("thousand steps")


def round_off(numbers: Sequence[float]) -> list[float]:
    """Return values, those that are rounding as 0."""
    return [0.0 if number < ROUNDING else number for number in numbers]
