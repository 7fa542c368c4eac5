"""Gradient descent on the extended model, linear and with ReLU: `ncscope simulate extended`.

Source: XUFM (23), (24), theorems 4.1 and 4.2. Expected with the settings given here: both
descents end within 1e-6 of the closed form's minimum. The seed is one of those from which no sample
is lost; see `ncscope.lab.papers.xufm.extended` for the share of such seeds.
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
from ncscope.lab.runs.resources import Resources
from ncscope.lab.simulations.bounds import Positive, Positives, Seed
from ncscope.lab.simulations.ufm import VANISHED, recorded_steps, vanishing
from ncscope.lab.surrogates.descent import gradient_descent
from ncscope.lab.surrogates.extended import Activation, ExtendedUFM
from ncscope.lab.surrogates.problem import Point
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.measurement.records import Measurement
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("nc1", "nc2", "nc3")
COLUMNS = (
    "objective", "minimum", "nc1", "nc2_of", "nc2_etf", "nc3_alignment", "nuclear_ratio",
    "lost_samples",
)  # fmt: skip
SEPARABLE = 1e-10
"""Values of NC1 below this are not compared between levels, as rounding affects them."""
ARRIVED = 1e-6
"""Distance from the minimum at which a descent counts as arrived."""
LOST = 0.01
"""A sample counts as lost if its last features are shorter than this share of the median."""
KEPT = 0.1
"""Least distance from the orthogonal frame of features that have not become one."""


class ExtendedConfig(BaseModel):
    """Settings of the model and of its descent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


def _parts(config: ExtendedConfig) -> list[Part]:
    """Return a descent for each activation from the same start, and the closed form."""
    record = recorded_steps(config.steps, config.every)
    both = [
        descent_part(name, _problem(config, name), config.rate, record, config.seed)
        for name in _activations(config)
    ]
    problem = _problem(config, "linear")
    best = problem.collapsed_point()
    return [*both, Part("closed form", 1, lambda _: iter([measured(problem, best, 0)]))]


def descent_part(
    name: str, problem: ExtendedUFM, rate: float, record: Collection[int], seed: int
) -> Part:
    """Return plain gradient descent from a seeded start, with every level measured."""
    compact, start = problem.compact(problem.start(torch.Generator().manual_seed(seed)))

    def run(_: Resources) -> Iterator[Measurement]:
        for step, point in gradient_descent(compact, start, rate, record):
            yield measured(compact, point, step)

    return Part(name, len(record), run)


def measured(problem: ExtendedUFM, point: Point, step: int) -> Measurement:
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
        "minimum": problem.collapsed_objective(),
        "nuclear_ratio": norms[0] / norms[1] if norms[1] > 0 else math.nan,
        "nuclear_cost": price * (norms[0] - norms[1]),
        "samples": len(problem.labels),
        "lost_samples": int((lengths <= LOST * lengths.median()).sum()),
    }
    return measured_point(problem, point, step, GROUPS).with_values(whole)


def _claims(config: ExtendedConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test theorems 4.1 and 4.2 on the descents, and the paper's comparison of the two."""
    names = _activations(config)
    paths = {name: part_of(rows, name) for name in names}
    if _problem(config, "linear").collapsed_objective() == 0.5:
        return [arrives(name, paths[name]) for name in names]
    return pair_claims(paths, full_rank=config.dim >= config.num_classes)


def pair_claims(
    paths: Mapping[Activation, Sequence[Observation]], full_rank: bool = True
) -> list[Claim]:
    """Test the claims on a linear and a ReLU descent with equal settings, or on one of them."""
    claims: list[Claim] = []
    for name, path in paths.items():
        claims.append(arrives(name, path))
        levels = level_names(path) if name == "linear" else level_names(path)[-1:]
        for level in levels:
            said = {"nc1": "collapses to its class means"}
            if full_rank:
                said["nc2_of"] = "becomes an orthogonal frame"
            if level == levels[-1]:
                said["nc3_alignment"] = "is aligned with the classifier"
            told = {key: f"{LABELS[name]}: {level} {what}" for key, what in said.items()}
            claims += vanishing(at_level(path, level), told, source=THEOREMS[name])
    if "relu" in paths and len(level_names(paths["relu"])) > 1:
        claims.append(_norms_agree(paths["relu"]))
        if "linear" in paths:
            claims += [_rates_separate(paths), _structures_separate(paths)]
    return claims


def arrives(name: Activation, path: Sequence[Observation]) -> Claim:
    """Test that the last objective equals that of the collapsed point."""
    last, minimum = number(path[-1], "objective"), number(path[-1], "minimum")
    lost = f"; {path[-1]['lost_samples']} lost samples" if name == "relu" else ""
    return decided(
        f"{LABELS[name]}: gradient descent arrives at the {FORMS[name]}, to 1e-6",
        source=THEOREMS[name],
        held=abs(last - minimum) < ARRIVED,
        evidence=f"objective {last:.9f} after {path[-1].step:,} steps, "
        f"{last - minimum:+.1e} from {minimum:.9f}{lost}",
    )


FORMS: Mapping[Activation, str] = {
    "linear": "closed form's minimum",
    "relu": "value of the collapsed point",
}
THEOREMS: Mapping[Activation, str] = {"linear": "XUFM, theorem 4.1", "relu": "XUFM, theorem 4.2"}


def separation(path: Sequence[Observation]) -> float:
    """Return the median over the measured steps of the decades between first and last NC1."""
    shallow, deep = (
        at_level(path, level) for level in (level_names(path)[0], level_names(path)[-1])
    )
    pairs = [(number(a, "nc1"), number(b, "nc1")) for a, b in zip(shallow, deep, strict=True)]
    apart = [abs(math.log10(a / b)) for a, b in pairs if min(a, b) > SEPARABLE]
    return sorted(apart)[len(apart) // 2] if apart else math.nan


def level_names(path: Sequence[Observation]) -> list[str]:
    """Return the names of the levels, shallow to deep."""
    return list(dict.fromkeys(row.layer for row in path))


def at_level(path: Sequence[Observation], level: str) -> list[Observation]:
    """Select the rows of one level, in order of time."""
    return [row for row in path if row.layer == level]


def _norms_agree(path: Sequence[Observation]) -> Claim:
    ratio, cost = (number(path[-1], key) for key in ("nuclear_ratio", "nuclear_cost"))
    return decided(
        "ReLU: the nuclear norms before and after the last ReLU agree, to 1e-6 in the objective",
        source="XUFM, theorem 4.2, its assumption",
        held=abs(cost) < ARRIVED,
        evidence=f"their ratio is 1 {ratio - 1:+.1e}, which costs {cost:.1e}",
    )


def _rates_separate(paths: Mapping[Activation, Sequence[Observation]]) -> Claim:
    apart = {name: separation(path) for name, path in paths.items()}
    return decided(
        "The levels differ more in the rate of collapse with ReLU than without",
        source="XUFM, section 6, figures 3 and 4",
        held=apart["relu"] > apart["linear"],
        evidence=f"NC1 at H1 and at the last level differ by {apart['relu']:.2f} decades "
        f"with ReLU, {apart['linear']:.2f} without (medians over the descent)",
    )


def _structures_separate(paths: Mapping[Activation, Sequence[Observation]]) -> Claim:
    ends = {name: number(at_level(path, "H1")[-1], "nc2_of") for name, path in paths.items()}
    return decided(
        "H1 becomes an orthogonal frame without ReLU, but not with ReLU",
        source="XUFM, section 6, figures 3 and 4",
        held=ends["relu"] > KEPT and ends["linear"] < VANISHED,
        evidence=f"nc2_of of H1 ends at {ends['relu']:.2g} with ReLU, {ends['linear']:.2g} without",
    )


LABELS: Mapping[Activation, str] = {"linear": "Linear", "relu": "ReLU"}


def _drawings(config: ExtendedConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw objective, NC1, NC2 and NC3 at every level, with one row of panels per activation."""
    paths = {name: part_of(rows, name) for name in _activations(config)}
    caption = (
        f"Gradient descent on the extended model, K = {config.num_classes}, d = {config.dim}, "
        f"n = {config.per_class}. NC2 is the distance to the orthogonal frame."
    )
    return [Drawing("descent", caption, levels_figure(paths))]


def levels_figure(paths: Mapping[Activation, Sequence[Observation]]) -> Figure:
    """Draw a row of four panels for each activation, with shared scales down the columns.

    Args:
        paths: Rows of the descent, by activation.

    Returns:
        The figure, logarithmic in the values.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.55 * len(paths)), layout="constrained")
        grid = figure.subplots(len(paths), 4, squeeze=False, sharex=True, sharey="col")
        for axes, (name, path) in zip(grid, paths.items(), strict=True):
            _objective_panel(axes[0], path)
            for index, (key, title) in enumerate(_PANELS.items(), start=1):
                _level_panel(axes[index], path, key, title)
            axes[0].set_ylabel(LABELS[name], fontweight="bold", fontsize=10)
            axes[1].legend()
        for axes in grid[-1]:
            axes.set_xlabel("thousand steps")
    return figure


_PANELS = {
    "nc1": "NC1: within / between",
    "nc2_of": "NC2: distance to OF",
    "nc3_alignment": "NC3: last W against means",
}


def _objective_panel(axes: Axes, path: Sequence[Observation]) -> None:
    rows = at_level(path, level_names(path)[-1])
    steps = [row.step / 1000 for row in rows]
    axes.plot(steps, [number(row, "objective") for row in rows], "o-", color=panels.SERIES[3],
              markersize=2.8)  # fmt: skip
    minimum = number(rows[-1], "minimum")
    axes.axhline(minimum, color=panels.SECOND, linestyle=panels.DASHED, label="closed form")
    axes.set_yscale("log")
    axes.set_title("Objective")
    axes.legend()


def _level_panel(axes: Axes, path: Sequence[Observation], key: str, title: str) -> None:
    for index, level in enumerate(level_names(path)):
        rows = [row for row in at_level(path, level) if key in row]
        if rows:
            values = [number(row, key) if number(row, key) > 0 else math.nan for row in rows]
            pre = level.startswith("W")
            colour = panels.SOFT if pre else panels.SERIES[2 if index == 0 else 0]
            axes.plot(
                [row.step / 1000 for row in rows], values, "o-" if not pre else "s--",
                color=colour, markersize=2.8, fillstyle="none" if pre else "full",
                label=f"{level}, before ReLU" if pre else level,
            )  # fmt: skip
    logarithmic_values(axes)
    axes.set_title(title)


def _activations(config: ExtendedConfig) -> tuple[Activation, ...]:
    return ("linear", "relu") if config.activation == "both" else (config.activation,)


def _problem(config: ExtendedConfig, activation: Activation) -> ExtendedUFM:
    return ExtendedUFM(
        config.num_classes,
        config.dim,
        config.per_class,
        config.weight_decays,
        config.feature_decay,
        activation,
    )


STUDY: Study[ExtendedConfig] = Study(
    id="extended",
    title="Extended unconstrained features model",
    lead=(
        "Several layers of weights are applied to free features. Without activations all levels "
        "collapse to orthogonal frames together; with ReLU the deepest level does, and the levels "
        "before it have other structures."
    ),
    source="XUFM section 4 and figures 3-4",
    config=ExtendedConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=COLUMNS,
)
