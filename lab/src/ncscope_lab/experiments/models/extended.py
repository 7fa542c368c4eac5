"""Gradient descent on the extended model, linear and with ReLU: ``ncscope run extended``.

Source: XUFM (23), (24), theorems 4.1 and 4.2. The seed is one of those from which no sample is
lost; ``xufm/extended`` counts such seeds. There is one start, so a claim holds if its value lies in
the region.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from ncscope.measurement.records import Measurement
from ncscope.report import panels
from ncscope_lab.claims import Claim, above, within
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import Positive, Positives, Seed
from ncscope_lab.experiments.models.descents import (
    ARRIVED,
    GROUPS,
    ROUNDING,
    VANISHED,
    choose_steps,
    claim_vanishing,
    draw_falls,
    draw_start,
    gap,
)
from ncscope_lab.figures import draw_grid, draw_reference
from ncscope_lab.quantities import Quantity, Run, Runs, last, quantity, values
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.descent import gradient_descent
from ncscope_lab.surrogates.extended import Activation, ExtendedUFM
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.problem import Point

SEPARABLE = 1e-10  # smaller values of NC1 are rounding, and are not compared between levels
LOST = 0.01  # a sample whose features are shorter than this share of the median is lost
KEPT = 0.1  # least distance from the orthogonal frame of features that have not become one

LABELS: Mapping[Activation, str] = {"linear": "Linear", "relu": "ReLU"}
FORMS: Mapping[Activation, str] = {
    "linear": "closed form's minimum",
    "relu": "value of the collapsed point",
}
THEOREMS: Mapping[Activation, str] = {"linear": "XUFM, theorem 4.1", "relu": "XUFM, theorem 4.2"}
STATEMENTS = {
    "nc1": "collapses to its class means",
    "nc2_of": "becomes an orthogonal frame",
    "nc3_alignment": "is aligned with the classifier",
}


class ExtendedConfig(Config):
    """Settings of the model and of its descent."""

    num_classes: int = Field(4, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=1, description="Dimension d of the features at every level.")
    per_class: int = Field(50, ge=1, description="Samples n in each class.")
    weight_decays: Positives = Field(
        (0.005, 0.0025), min_length=1, description="Decays of the weights, the classifier's first."
    )
    feature_decay: Positive = Field(0.001, description="Decay of the first level's features.")
    activation: Literal["linear", "relu", "both"] = Field(
        "both", description="Activation between the layers of weights."
    )
    rate: Positive = Field(0.1, description="Step size of gradient descent.")
    steps: int = Field(60_000, ge=1, description="Steps of gradient descent.")
    every: int = Field(2_500, ge=1, description="Steps from one measurement to the next.")
    seed: Seed = Field(5, description="Seed of the start.")

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activations to compare."""
        return ("linear", "relu") if self.activation == "both" else (self.activation,)

    def model(self, activation: Activation) -> ExtendedUFM:
        """Return the model with an activation."""
        sizes = self.num_classes, self.dim, self.per_class
        return ExtendedUFM(*sizes, self.weight_decays, self.feature_decay, activation)


def list_claims(settings: ExtendedConfig) -> list[Claim]:
    """Return theorems 4.1 and 4.2 on the descents, and the paper's comparison of the two."""
    zero = settings.model("linear").objective_at_collapse() == 0.5
    deepest = f"H{len(settings.weight_decays)}"
    claims: list[Claim] = []
    for name in settings.activations:
        claims.append(claim_collapsed_point(name))
        if zero:  # nothing collapses to a frame
            continue
        every_level = [f"H{level + 1}" for level in range(len(settings.weight_decays))]
        for level in every_level if name == "linear" else [deepest]:
            keys = ["nc1"] if settings.per_class > 1 else []  # else it is zero for all features
            keys += ["nc2_of"] if settings.dim >= settings.num_classes else []
            keys += ["nc3_alignment"] if level == deepest else []
            claims += claim_vanishing(
                name,
                {key: STATEMENTS[key] for key in keys},
                source=THEOREMS[name],
                before=f"{LABELS[name]}: {level} ",
                layer=level,
            )
    if not zero and "relu" in settings.activations and deepest != "H1":
        claims.append(NORMS_AGREE)
        if settings.activation == "both":
            claims += [RATES_SEPARATE, STRUCTURES_SEPARATE]
    return claims


def claim_collapsed_point(name: Activation) -> Claim:
    """Claim that a descent's last objective equals that of the collapsed point."""

    def tell(runs: Runs) -> str:
        end = runs[0].rows[-1]
        lost = f"; {end['lost_samples']} lost samples" if name == "relu" else ""
        return (
            f"objective {end['objective']:.9f} after {end.step:,} steps, {gap(runs[0]):+.1e} from "
            f"{end['minimum']:.9f}{lost}"
        )

    return Claim(
        text=f"{LABELS[name]}: gradient descent arrives at the {FORMS[name]}, to 1e-6",
        source=THEOREMS[name],
        where=name,
        quantity=gap,
        region=within(ARRIVED),
        rule="all",
        tell=tell,
    )


NORMS_AGREE = Claim(
    text="ReLU: the nuclear norms before and after the last ReLU agree, to 1e-6 in the objective",
    source="XUFM, theorem 4.2, its assumption",
    where="relu",
    quantity=last("nuclear_cost"),
    region=within(ARRIVED),
    rule="all",
)


def of_linear(number: Quantity) -> Quantity:
    """Return the quantity of the linear descent beside the ReLU's."""
    return number.of(lambda run: run.experiment.find("linear"), f"{number.name} without ReLU")


@quantity("decades between NC1 of H1 and of the last level, median")
def separate_levels(run: Run) -> float:
    """Return the median over the measured steps of the decades between first and last NC1."""
    levels = list_levels(run)
    if not levels:
        return math.nan
    pairs = zip(run.path(layer=levels[0]), run.path(layer=levels[-1]), strict=True)
    both = [(float(shallow["nc1"]), float(deep["nc1"])) for shallow, deep in pairs]
    apart = [abs(math.log10(a / b)) for a, b in both if min(a, b) > SEPARABLE]
    return sorted(apart)[len(apart) // 2] if apart else math.nan


RATES_SEPARATE = Claim(
    text="The levels differ more in the rate of collapse with ReLU than without",
    source="XUFM, section 6, figures 3 and 4",
    where="relu",
    quantity=separate_levels - of_linear(separate_levels),
    region=above(0),
    rule="all",
)

first_level = last("nc2_of", layer="H1")

STRUCTURES_SEPARATE = Claim(
    text="H1 becomes an orthogonal frame without ReLU, but not with ReLU",
    source="XUFM, section 6, figures 3 and 4",
    where="relu",
    quantity=Quantity(
        "nc2_of of H1, or 0 if it is no frame without ReLU",
        lambda run: first_level(run) if of_linear(first_level)(run) < VANISHED else 0.0,
        parts=(first_level, of_linear(first_level)),
    ),
    region=above(KEPT),
    rule="all",
)


def list_levels(run: Run) -> list[str]:
    """List the names of the levels, shallow to deep."""
    return list(dict.fromkeys(row.layer for row in run.rows))


def draw_figures(settings: ExtendedConfig, runs: Runs) -> list[Drawing]:
    """Draw objective, NC1, NC2 and NC3 at every level, with one row of panels per activation."""
    caption = (
        f"Gradient descent on the extended model, K = {settings.num_classes}, d = {settings.dim}, "
        f"n = {settings.per_class}. NC2 is the distance to the orthogonal frame. {ROUNDED}"
    )
    descents = {name: runs.find(name) for name in settings.activations}
    return [Drawing("descent", caption, draw_two_levels(descents))]


ROUNDED = (
    f"The horizontal line is {ARRIVED:g}, from which on a descent counts as arrived; values below "
    f"{ROUNDING:g} are rounding and stand in the grey strip, at 0."
)


def draw_two_levels(
    descents: Mapping[Activation, Run],
    starts: Mapping[Activation, Runs] = {},
    kept: float | None = None,
) -> Figure:
    """Draw a column of four panels for each activation, with shared scales along the rows.

    Args:
        descents: Descent by activation.
        starts: Descents from all starts by activation, whose objectives are drawn too.
        kept: Share of its start that a metric of the last level may keep; drawn as a line.
    """
    titles = {
        "nc1": "NC1: within / between",
        "nc2_of": "NC2: distance to OF",
        "nc3_alignment": "NC3: last W against means",
    }
    runs = {name: Runs([*starts.get(name, ()), run]) for name, run in descents.items()}
    gaps = [x for own in runs.values() for run in own for x in list_gaps(run)]
    rows = [[partial(draw_gaps, own, gaps, LABELS[name]) for name, own in runs.items()]]
    for key, title in titles.items():
        scale = [x for run in descents.values() for x in values(run.rows, key)]
        rows.append(
            [
                partial(draw_levels, run, key, scale, f"{LABELS[name]}, {title}", kept)
                for name, run in descents.items()
            ]
        )
    return draw_grid(rows, cell=(3.7, 2.1), share_y="row", legend="below")


def list_gaps(run: Run) -> list[float]:
    """List the distances of the objective from the collapsed point's along a descent."""
    pairs = zip(values(run.path(), "objective"), values(run.path(), "minimum"), strict=True)
    return [abs(objective - minimum) for objective, minimum in pairs]


def draw_gaps(runs: Runs, scale: Sequence[float], label: str, axes: Axes) -> None:
    """Draw the distance of the objective from the collapsed point's; the last run's strongly."""
    *others, shown = runs
    thin = {"color": panels.SOFT, "marker": "", "linewidth": 0.5, "label": "other starts"}
    for run in others:
        draw_falls(axes, {"": (run.path(), list_gaps(run))}, scale, {"": thin})
    look = {"color": panels.SERIES[2], "marker": "D"}
    name = "this start" if others else "descent"
    draw_falls(axes, {name: (shown.path(), list_gaps(shown))}, scale, {name: look})
    draw_reference(axes, ARRIVED, "arrived", panels.DASHED)
    scale_steps(axes)
    axes.set_title(f"{label}, objective less collapsed point's")


def scale_steps(axes: Axes) -> None:
    """Make the axis of steps logarithmic, from 0 on."""
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.4)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("thousand steps, logarithmic")


def draw_levels(
    run: Run, key: str, scale: Sequence[float], title: str, kept: float | None, axes: Axes
) -> None:
    """Draw a metric against the step, one curve a level."""
    paths, looks = {}, {}
    for index, level in enumerate(list_levels(run)):
        path = [row for row in run.path(layer=level) if key in row]
        before = level.startswith("W")  # weights times features, before the ReLU
        label = f"{level}, before ReLU" if before else level
        paths[label] = path, values(path, key)
        looks[label] = {
            "color": panels.SOFT if before else panels.SERIES[1 if index == 0 else 0],
            "linestyle": ":" if before else panels.DASHED if index == 0 else "-",
            "marker": "^" if before else "s" if index == 0 else "o",
            "fillstyle": "none" if before else "full",
        }
    draw_falls(axes, paths, scale, looks)
    if kept is not None:
        level = list_levels(run)[-1]
        draw_reference(axes, kept * paths[level][1][0], f"{kept:.0%} of {level}'s start", "-.")
    scale_steps(axes)
    axes.set_title(title)


def list_parts(settings: ExtendedConfig) -> list[Part]:
    """Return a descent for each activation from the same start, and the closed form."""
    record = choose_steps(settings.steps, settings.every)
    linear = settings.model("linear")
    best = linear.point_at_collapse()
    return [
        *(
            descend_levels(name, settings.model(name), settings.rate, record, settings.seed)
            for name in settings.activations
        ),
        Part("closed form", 1, lambda _: iter([measure_levels(linear, best, 0)])),
    ]


def descend_levels(
    name: str, problem: ExtendedUFM, rate: float, record: Collection[int], seed: int
) -> Part:
    """Return the part of a descent from the start of a seed, with every level measured."""
    compact, start = problem.compact(draw_start(problem, seed))

    def run(_: object) -> Iterator[Measurement]:
        for step, point in gradient_descent(compact, start, rate, record):
            yield measure_levels(compact, point, step)

    return Part(name, len(record), run)


def measure_levels(problem: ExtendedUFM, point: Point, step: int) -> Measurement:
    """Measure every level, and four numbers of the whole point.

    ``minimum`` is the objective of the collapsed point, which is the linear model's minimum.
    ``nuclear_ratio`` is the nuclear norm of the last activation's input over that of its output;
    it is 1 in theorem 4.2 and without activation. ``nuclear_cost`` is the amount that the
    difference of these norms adds to the objective of three factors. ``lost_samples`` is the
    number of samples whose last features have faded, see `LOST`. They need not be exactly zero: the
    gradient vanishes with the features, and the decay shrinks them by a factor a step.
    """
    levels = list(problem.levels(point).values())
    before, after = (
        levels[-2:] if problem.activation == "relu" and len(levels) > 1 else levels[-1:] * 2
    )
    norms = [float(torch.linalg.svdvals(level).sum()) for level in (before, after)]
    price = math.sqrt(problem.decays[-1] * problem.decays[-2])
    lengths = torch.linalg.vector_norm(after, dim=0)
    whole = {
        "minimum": problem.objective_at_collapse(),
        "nuclear_ratio": norms[0] / norms[1] if norms[1] > 0 else math.nan,
        "nuclear_cost": price * (norms[0] - norms[1]),
        "samples": len(problem.labels),
        "lost_samples": int((lengths <= LOST * lengths.median()).sum()),
    }
    return measure_solution(problem, point, step, GROUPS).with_values(whole)


EXPERIMENT = Experiment(
    id="extended",
    title="Extended unconstrained features model",
    question=(
        "Several layers of weights are applied to free features. Without activations all levels "
        "collapse to orthogonal frames together; with ReLU the deepest level does, and the levels "
        "before it have other structures."
    ),
    source="XUFM section 4 and figures 3-4",
    scales={"small": ExtendedConfig()},
    cost={"small": "a minute on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=(
        "objective", "minimum", "nc1", "nc2_of", "nc2_etf", "nc3_alignment", "nuclear_ratio",
        "lost_samples",
    ),
    unit="step",
)  # fmt: skip
