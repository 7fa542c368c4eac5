"""Gradient descent on the unconstrained features model under MSE: `ncscope simulate ufm`.

Source: XUFM (3), section 6. Cost: 4 seconds on one core. Expected with the settings given here:
the objective within 2e-7 of the closed form, NC1, NC2 and NC3 at 1e-9 or less.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import logarithmic_values
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Study
from ncscope.lab.simulations.bounds import Positive, Seed
from ncscope.lab.surrogates.descent import gradient_descent, quasi_newton
from ncscope.lab.surrogates.problem import Minimiser, Point, Problem
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.lab.surrogates.ufm import UFM
from ncscope.measurement.records import Measurement
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("nc1", "nc2", "nc3")
COLUMNS = ("objective", "nc1", "nc2_of", "nc2_etf", "nc3_alignment", "mean_share")
VANISHED = 1e-3
"""A metric of collapse counts as vanished if it has fallen below this value."""
ROUNDING = 1e-12
"""A metric below this value at the start is zero for all features, for example NC1 with n = 1."""


class UFMConfig(BaseModel):
    """Settings of the model and of its descent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    num_classes: int = Field(4, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=1, description="Dimension d of the features.")
    per_class: int = Field(50, ge=1, description="Samples n in each class.")
    weight_decay: Positive = Field(0.005, description="Decay of the classifier.")
    feature_decay: Positive = Field(0.001, description="Decay of the features.")
    bias: Literal["none", "free", "regularised"] = Field("none", description="Kind of bias.")
    bias_decay: Positive = Field(0.1, description="Decay of the bias, if it is regularised.")
    rate: Positive = Field(0.1, description="Step size of gradient descent.")
    steps: int = Field(80_000, ge=1, description="Steps of gradient descent.")
    every: int = Field(5_000, ge=1, description="Steps from one measurement to the next.")
    seed: Seed = Field(0, description="Seed of the start.")


def recorded_steps(steps: int, every: int) -> list[int]:
    """Return the steps to measure: the start, a few early steps, the regular steps, the last."""
    early = [size * 10**power for power in range(7) for size in (1, 3)]
    regular = range(0, steps, every)
    return sorted({step for step in early if step < min(every, steps)} | {*regular, steps})


def descent(
    problem: Problem, best: Minimiser | None, start: Point, rate: float, record: Collection[int]
) -> Iterator[Measurement]:
    """Yield the metrics along plain gradient descent, with the closed form's minimum."""
    for step, point in gradient_descent(problem, start, rate, record):
        yield measured(problem, best, point, step)


def measured(problem: Problem, best: Minimiser | None, point: Point, step: int) -> Measurement:
    """Measure a point of a model with one level.

    The measurement also holds ``minimum`` (NaN if there is no closed form) and ``mean_share``, the
    share of the global mean in the class means' energy: 0 for a simplex, 1/K for an orthogonal
    frame.
    """
    minimum = math.nan if best is None else best.objective
    values = {"minimum": minimum, "mean_share": mean_share(problem, point)}
    return measured_point(problem, point, step, GROUPS).with_values(values)


def mean_share(problem: Problem, point: Point) -> float:
    """Compute the share of the global mean in the class means' energy."""
    (features,) = problem.levels(point).values()
    means = features.unflatten(1, (problem.num_classes, problem.per_class)).mean(2)
    return float(means.mean(1).square().sum() / means.square().sum(0).mean())


def fastest(problem: Problem, best: Minimiser | None, start: Point) -> Iterator[Measurement]:
    """Yield the minimum by the fast solver; ``step`` counts its evaluations."""
    result = quasi_newton(problem, start)
    yield measured(problem, best, result.point, result.evaluations)


def _parts(config: UFMConfig) -> list[Part]:
    """Return the closed form, the fast solver, and descent from the same start."""
    problem = _problem(config)
    best = problem.minimiser()
    begin = problem.start(torch.Generator().manual_seed(config.seed))
    compact, start = problem.compact(begin)
    record = recorded_steps(config.steps, config.every)
    return [
        Part("closed form", 1, lambda _: iter([measured(problem, best, best.point, 0)])),
        Part("fast solver", 1, lambda _: fastest(compact, best, start)),
        Part("descent", len(record), lambda _: descent(compact, best, start, config.rate, record)),
    ]


def _claims(config: UFMConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test the predictions of the closed form on the run."""
    problem, path = _problem(config), part_of(rows, "descent")
    owner = OWNERS[config.bias]
    claims = [
        descent_arrives(path, source=owner),
        solver_agrees(part_of(rows, "fast solver")[-1]),
    ]
    if problem.c < 1:
        claims += vanishing(path, predicted(problem), source=owner)
        if config.bias == "regularised":
            claims.append(_mean_share_agrees(path[-1], part_of(rows, "closed form")[-1]))
    return claims


OWNERS = {
    "none": "XUFM, theorem 3.1",
    "free": "XUFM, theorem 3.2",
    "regularised": "XUFM, section 3, remark on the regularised bias",
}
"""Owner of the claims on the minimisers, by kind of bias."""


def predicted(problem: UFM) -> dict[str, str]:
    """Return the metrics that are zero at the minimiser if c < 1, with the statement of each.

    Without a bias the centred means are a simplex because the means are an orthogonal frame (13),
    so that is no claim.
    """
    k, d, bias = problem.num_classes, problem.dim, problem.bias_decay
    zero = {"nc1": "NC1: features collapse to their class means"}
    if bias is None and d >= k:
        zero["nc2_of"] = "NC2: class means become an orthogonal frame"
    if bias is not None and d >= k - 1:
        zero["nc2_etf"] = "NC2: centred class means become a simplex ETF"
    if bias == 0:
        zero["mean_share"] = "The global mean of the features vanishes"
    return zero | {"nc3_alignment": "NC3: the classifier aligns with the class means"}


def descent_arrives(path: Sequence[Observation], *, source: str) -> Claim:
    """Test that the descent's last objective equals the closed form's minimum."""
    last, minimum = number(path[-1], "objective"), number(path[-1], "minimum")
    return decided(
        "Gradient descent arrives at the closed form's minimum, to 1e-6",
        source=source,
        held=abs(last - minimum) < 1e-6,
        evidence=f"objective {last:.9f} after {path[-1].step:,} steps, "
        f"{last - minimum:.1e} above {minimum:.9f}",
    )


def solver_agrees(row: Observation) -> Claim:
    """Test that the fast solver's objective equals the closed form's minimum."""
    gap, slope = number(row, "objective") - number(row, "minimum"), number(row, "gradient_norm")
    return decided(
        "The fast solver ends at the closed form's minimum, to 1e-9",
        source="ours",
        held=abs(gap) < 1e-9,
        evidence=f"{gap:.1e} above the minimum with a gradient of {slope:.1e}, "
        f"after {row.step:,} evaluations",
    )


def vanishing(path: Sequence[Observation], said: Mapping[str, str], *, source: str) -> list[Claim]:
    """Test that metrics have vanished, except those that were already zero at the start.

    Args:
        path: Rows along a descent.
        said: Statement that holds if a metric vanishes, by metric.
        source: Owner of the statements.
    """
    claims: list[Claim] = []
    for key, claim in said.items():
        first, last = number(path[0], key), number(path[-1], key)
        after = f"after {path[-1].step:,} steps"
        if not first < ROUNDING:
            evidence = f"{key} {first:.2g} at the start, {last:.2g} {after}"
            claims.append(
                decided(
                    claim,
                    source=source,
                    held=last < VANISHED,
                    evidence=evidence,
                )
            )
    return claims


def _mean_share_agrees(last: Observation, stated: Observation) -> Claim:
    seen, expected = number(last, "mean_share"), number(stated, "mean_share")
    return decided(
        "The global mean's share of the class means' energy equals the closed form's",
        source="ours",
        held=abs(seen - expected) < VANISHED,
        evidence=f"{seen:.6f} of the energy, {expected:.6f} in closed form",
    )


def _drawings(config: UFMConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw the objective, NC1, NC2 and NC3 along the descent."""
    key = "nc2_of" if config.bias == "none" else "nc2_etf"
    caption = (
        f"Gradient descent on the unconstrained features model, K = {config.num_classes}, "
        f"{_BIAS[config.bias]}. NC2 is the distance to {FRAMES[key]}."
    )
    figure = descent_figure(part_of(rows, "descent"), key)
    return [Drawing("descent", caption, figure)]


FRAMES = {"nc2_of": "the orthogonal frame", "nc2_etf": "the simplex ETF"}
_BIAS = {"none": "no bias", "free": "free bias", "regularised": "regularised bias"}


def descent_figure(path: Sequence[Observation], nc2: str) -> Figure:
    """Draw four panels in a row: the objective, and one metric each of NC1, NC2 and NC3.

    Args:
        path: Rows along the descent.
        nc2: Key of the metric of NC2, which determines the frame to compare the class means with.

    Returns:
        The figure, logarithmic in the values.
    """
    curves = {
        "objective": "Objective",
        "nc1": "NC1: within / between",
        nc2: f"NC2: distance to {'OF' if nc2 == 'nc2_of' else 'ETF'}",
        "nc3_alignment": "NC3: W against means",
    }
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.6), layout="constrained")
        for axes, (key, title) in zip(figure.subplots(1, 4), curves.items(), strict=True):
            _curve(axes, path, key, title)
    return figure


def _curve(axes: Axes, path: Sequence[Observation], key: str, title: str) -> None:
    steps = [row.step / 1000 for row in path]
    values = [number(row, key) if number(row, key) > 0 else math.nan for row in path]
    axes.plot(steps, values, "o-", color=panels.ACCENT, markersize=2.8)
    minimum = number(path[-1], "minimum")
    if key == "objective" and math.isfinite(minimum):
        axes.axhline(minimum, color=panels.SECOND, linestyle=panels.DASHED, label="closed form")
        axes.legend()
    logarithmic_values(axes)
    axes.set_title(title)
    axes.set_xlabel("thousand steps")


def _problem(config: UFMConfig) -> UFM:
    decays: Mapping[str, float | None] = {
        "none": None,
        "free": 0.0,
        "regularised": config.bias_decay,
    }
    return UFM(
        config.num_classes,
        config.dim,
        config.per_class,
        config.weight_decay,
        config.feature_decay,
        decays[config.bias],
    )


STUDY: Study[UFMConfig] = Study(
    id="ufm",
    title="Unconstrained features model, MSE loss",
    lead=(
        "Features and classifier are free. Gradient descent converges to a minimiser that is "
        "known in closed form. Its class means are an orthogonal frame without a bias, a simplex "
        "ETF with a free bias, and a frame between the two with a regularised bias."
    ),
    source="XUFM section 3 and figures 1-2",
    config=UFMConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=COLUMNS,
)
