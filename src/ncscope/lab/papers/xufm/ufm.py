"""Gradient descent on the unconstrained features model to the minimisers of theorems 3.1 and 3.2.

Source: XUFM figures 1-2 and 6-7, theorems 3.1 and 3.2, the remarks on the regularised bias and on
the optimisation procedure, section 2 (no decays) and section 7 (ReLU).
The paper's text does not state sizes and decays; those here are this project's.
Cost: 90 seconds on one core at the small scale, 2 minutes estimated at the paper's. Command:
``ncscope reproduce xufm/ufm --scale paper``.

Expected (seed 0): the objective ends within 2e-7 of the closed form in all four runs. NC1 is below
1e-20, the distance of NC2 to its frame below 2e-10. NC3 is below 1e-9 without a bias and below 1e-3
with a bias: the global mean vanishes most slowly, by a factor of e in about 10,000 steps. In the
sweep of the bias decay the centred means are a simplex ETF and the classifier is aligned with the
means, to 1e-10; the global mean is zero up to a decay of c / (1-c) = 0.0675, and not zero beyond.

Small scale (measured once, K = 4): 15 of 15 claims are held. Of 10 starts all arrive and collapse
with decays; without decays all fit the labels to 7e-10 and keep an NC1 of 0.06 to 0.10; with a ReLU
on the features none arrives: the objective ends 0.026 to 0.033 above the minimum of 0.061, NC1 at
0.002 to 0.010.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation, observations_of
from ncscope.lab.papers.xufm import plain_starts
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.simulations import ufm
from ncscope.lab.simulations.bounds import Positives, Seed
from ncscope.lab.surrogates.ufm import UFM
from ncscope.report import panels
from ncscope.report.claims import Claim

FIRST = ufm.UFMConfig()
SIZES: tuple[tuple[int, int, int, float, float], ...] = (
    (FIRST.num_classes, FIRST.dim, FIRST.per_class, FIRST.weight_decay, FIRST.feature_decay),
    (10, 60, 100, 0.005, 0.0005),
)
"""K, d, n, decay of the weights and decay of the features of each setting."""
FIGURES = {
    (0, None): ("fig-1", "figure 1, theorem 3.1", "nc2_of"),
    (0, 0.0): ("fig-2", "figure 2, theorem 3.2", "nc2_etf"),
    (1, None): ("fig-6", "figure 6, theorem 3.1", "nc2_of"),
    (1, 0.0): ("fig-7", "figure 7, theorem 3.2", "nc2_etf"),
}
"""File name, reproduced figure and metric of NC2, by setting and decay of the bias."""
SWEEP = "bias decay"


class XUFMConfig(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    settings: Literal["first", "both"] = Field("both", description="Only K = 4, or also K = 10.")
    first_steps: int = Field(FIRST.steps, ge=1, description="Steps of descent with K = 4.")
    second_steps: int = Field(180_000, ge=1, description="Steps of descent with K = 10.")
    every: int = Field(FIRST.every, ge=1, description="Steps from one measurement to the next.")
    bias_decays: Positives = Field(
        (0.003, 0.01, 0.03, 0.05, 0.06, 0.0675, 0.0676, 0.08, 0.1, 0.15, 0.3, 1.0, 3.0, 10.0),
        min_length=1,
        description="Decays of the bias to compare, with K = 4.",
    )
    seed: Seed = Field(0, description="Seed of the measured descents' starts.")
    starts: int = Field(
        10, ge=2, description="Random starts of descent with, without decays and with a ReLU."
    )


def _parts(config: XUFMConfig) -> list[Part]:
    """Return a descent for each setting and bias, the sweep of bias decays, and many starts."""
    parts = []
    for setting, bias_decay in _runs(config):
        steps = (config.first_steps, config.second_steps)[setting]
        record = ufm.recorded_steps(steps, config.every)
        parts.append(_descent(UFM(*SIZES[setting], bias_decay), record, config.seed))
    sweep = Part(SWEEP, len(config.bias_decays), lambda _: _sweep(config))
    starts = plain_starts.parts(SIZES[0], FIRST.rate, config.first_steps, config.starts)
    return [*parts, sweep, *starts]


def _runs(config: XUFMConfig) -> list[tuple[int, float | None]]:
    return [key for key in FIGURES if key[0] == 0 or config.settings == "both"]


def _descent(problem: UFM, record: Sequence[int], seed: int) -> Part:
    start = problem.start(torch.Generator().manual_seed(seed))
    compact, begin = problem.compact(start)
    best = problem.minimiser()
    name = part_name(problem.num_classes, problem.bias_decay)
    return Part(name, len(record), lambda _: ufm.descent(compact, best, begin, FIRST.rate, record))


def part_name(num_classes: int, bias_decay: float | None) -> str:
    """Return the name of the descent with this many classes, without or with a free bias."""
    return f"K = {num_classes}, {'no bias' if bias_decay is None else 'free bias'}"


def _sweep(config: XUFMConfig) -> Iterator[Observation]:
    """Yield the minimiser reached from a random start at every decay of the bias."""
    generator = torch.Generator().manual_seed(config.seed)
    for bias_decay in config.bias_decays:
        problem = UFM(*SIZES[0], bias_decay)
        compact, start = problem.compact(problem.start(generator))
        best = problem.minimiser()
        stated = ufm.mean_share(problem, best.point)
        (measurement,) = ufm.fastest(compact, best, start)
        (observation,) = observations_of(measurement)
        yield observation.with_values({"bias_decay": bias_decay, "stated_mean_share": stated})


def _claims(config: XUFMConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test theorems 3.1 and 3.2, the remarks on the bias and on descent, and the counterparts."""
    claims: list[Claim] = []
    for setting, bias_decay in _runs(config):
        problem = UFM(*SIZES[setting], bias_decay)
        name = part_name(problem.num_classes, bias_decay)
        path = part_of(rows, name)
        owner = f"XUFM, {FIGURES[setting, bias_decay][1]}"
        descent_claims = [
            ufm.descent_arrives(path, source=owner),
            *ufm.vanishing(path, ufm.predicted(problem), source=owner),
        ]
        claims += [replace(claim, text=f"{name}: {claim.text}") for claim in descent_claims]
    sweep = part_of(rows, SWEEP)
    claims += [_shape_everywhere(sweep), _simplex_up_to(sweep), _lowest_everywhere(sweep)]
    return claims + plain_starts.claims(rows)


def threshold() -> float:
    r"""$c/(1-c)$ of the first setting: the largest bias decay whose minimiser is a simplex."""
    c = UFM(*SIZES[0]).c
    return c / (1 - c)


def _shape_everywhere(sweep: Sequence[Observation]) -> Claim:
    worst = {key: max(number(row, key) for row in sweep) for key in ("nc2_etf", "nc3_alignment")}
    return decided(
        "Regularised bias: centred means are a simplex ETF, aligned with the classifier",
        source="XUFM, section 3, remark on the regularised bias",
        held=max(worst.values()) < 1e-6,
        evidence=f"at most {worst['nc2_etf']:.1e} off the simplex and "
        f"{worst['nc3_alignment']:.1e} off alignment, over {len(sweep)} decays",
    )


def _simplex_up_to(sweep: Sequence[Observation]) -> Claim:
    simplex = [number(row, "mean_share") < 1e-9 for row in sweep]
    stated = [number(row, "bias_decay") <= threshold() for row in sweep]
    decays = [
        number(row, "bias_decay") for row, is_one in zip(sweep, simplex, strict=True) if is_one
    ]
    return decided(
        "Regularised bias: the minimiser is a simplex exactly for decays up to c / (1-c)",
        source="ours",
        held=simplex == stated,
        evidence=f"mean of zero up to a decay of {max(decays, default=math.nan):g}; "
        f"c / (1-c) = {threshold():.5f}",
    )


def _lowest_everywhere(sweep: Sequence[Observation]) -> Claim:
    gaps = [abs(number(row, "objective") - number(row, "minimum")) for row in sweep]
    shares = [abs(number(row, "mean_share") - number(row, "stated_mean_share")) for row in sweep]
    return decided(
        "Regularised bias: the solver's objective and mean equal those of the closed form",
        source="ours",
        held=max(gaps) < 1e-9 and max(shares) < 1e-6,
        evidence=f"objectives differ by {max(gaps):.1e} at most, "
        f"shares of the mean by {max(shares):.1e}",
    )


def _drawings(config: XUFMConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw one figure per descent, as in the paper, and one of the sweep."""
    drawings = []
    for setting, bias_decay in _runs(config):
        (k, d, n, weight_decay, feature_decay) = SIZES[setting]
        file, reproduces, key = FIGURES[setting, bias_decay]
        caption = (
            f"XUFM {reproduces}: K = {k}, d = {d}, n = {n}, decays {weight_decay} (W) and "
            f"{feature_decay} (H), {part_name(k, bias_decay).split(', ')[1]}. "
            f"NC2 is the distance to {ufm.FRAMES[key]}."
        )
        path = part_of(rows, part_name(k, bias_decay))
        drawings.append(Drawing(file, caption, ufm.descent_figure(path, key)))
    caption = (
        "Minimisers under a regularised bias. The mean of the features vanishes, and they are a "
        "simplex, up to a decay of c / (1-c), the vertical line; with a growing decay they "
        "approach the orthogonal frame."
    )
    return [*drawings, Drawing("bias-decay", caption, _sweep_figure(part_of(rows, SWEEP)))]


def _sweep_figure(sweep: Sequence[Observation]) -> Figure:
    rows = sorted(sweep, key=lambda row: number(row, "bias_decay"))
    decays = [number(row, "bias_decay") for row in rows]
    line = [decays[0] * (decays[-1] / decays[0]) ** (at / 200) for at in range(201)]
    stated = [_stated(decay) for decay in line]
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.9), layout="constrained")
        objective, share, shape = figure.subplots(1, 3)
        for axes, key, curve in (
            (objective, "objective", [minimum for minimum, _ in stated]),
            (share, "mean_share", [mean for _, mean in stated]),
        ):
            axes.plot(
                line, curve, color=panels.SECOND, linestyle=panels.DASHED, label="closed form"
            )
            values = [number(row, key) for row in rows]
            axes.plot(decays, values, "o", color=panels.ACCENT, markersize=4, label="found")
        for index, (key, label) in enumerate(_SHAPES.items()):
            values = [max(number(row, key), 1e-17) for row in rows]
            colour = panels.SERIES[index]
            shape.plot(decays, values, "o-", color=colour, markersize=3, label=label)
        titles = ("Objective", "Share of the mean: 0 simplex, 1/K frame", "Distances")
        for axes, title in zip((objective, share, shape), titles, strict=True):
            axes.axvline(threshold(), color=panels.SOFT, linewidth=0.9)
            axes.set_xscale("log")
            axes.set_xlabel("bias decay")
            axes.set_title(title)
            axes.legend()
        shape.set_yscale("log")
    return figure


_SHAPES = {
    "nc2_of": "means to OF",
    "nc2_etf": "centred means to ETF",
    "nc3_alignment": "W against means",
}


def _stated(bias_decay: float) -> tuple[float, float]:
    """Return the closed form's minimum and share of the mean, in the first setting."""
    problem = UFM(*SIZES[0], bias_decay)
    best = problem.minimiser()
    return best.objective, ufm.mean_share(problem, best.point)


RECIPE: Recipe[XUFMConfig] = Recipe(
    id="xufm/ufm",
    title="Minimisers of the unconstrained features model",
    lead=(
        "Plain gradient descent from random features and weights ends on an orthogonal frame "
        "without a bias, on a simplex ETF with a free bias, and between the two with a regularised "
        "bias."
    ),
    source="XUFM figures 1-2 and 6-7; theorems 3.1 and 3.2; sections 2, 3 and 7",
    config=XUFMConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=ufm.COLUMNS,
    scales={
        "paper": XUFMConfig(),
        "medium": XUFMConfig(),
        "small": XUFMConfig(settings="first"),
    },
    cost={
        "paper": "2 minutes on one core (estimated)",
        "medium": "as at the paper's scale",
        "small": "90 seconds on one core",
    },
)
