"""XUFM figures 1-2 and 6-7: gradient descent on unconstrained features ends on the minimisers.

Theorems 3.1 (no bias) and 3.2 (free bias), the remarks of section 3 on the regularised bias and on
the optimisation procedure, section 2 (no decays) and section 7 (ReLU). The paper's text does not
state sizes and decays; those here are this project's.

From many starts, three descents begin at one point, drawn as in section 6. With decays each of them
reaches the closed form's minimum and collapses. Without decays each fits the labels, which makes it
a global minimiser, and keeps within-class variability. With a ReLU on the features an entry that
starts negative stays at zero for good, so that no two samples of a class can agree; descent ends
above the minimum, which the ReLU does not change.

The small scale leaves out K = 10. Measured descents start at seed 0 and take 80,000 steps at rate
0.1; the descents from many starts, at seeds 0 to 9, are measured at their end. The claims are
mathematics that a computation checks: a value must lie in the region in every descent, or in every
row. One claim says "typically": it holds if the exact binomial interval of the share of starts lies
above one half.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field

from ncscope.report import panels
from ncscope_lab.claims import Claim, Region, above, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import Positives, Seed
from ncscope_lab.experiments.models.descents import (
    COLUMNS,
    DESCENT_CAPTION,
    FRAMES,
    GROUPS,
    arrives,
    choose_steps,
    claim_arrival,
    claim_vanishing,
    descend,
    draw_descent,
    draw_start,
    gap,
    mean_share,
    solve,
)
from ncscope_lab.experiments.models.ufm import predict_zeros
from ncscope_lab.figures import draw_grid
from ncscope_lab.observations import Observation, observations_of
from ncscope_lab.quantities import Path, Run, Runs, last, values
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.descent import descend_together
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.plain import PlainUFM
from ncscope_lab.surrogates.ufm import UFM

SIZES: tuple[tuple[int, int, int, float, float], ...] = (
    (4, 20, 50, 0.005, 0.001),
    (10, 60, 100, 0.005, 0.0005),
)
"""K, d, n, decay of the weights and decay of the features of each setting."""
RATE = 0.1
FIGURES = {
    (0, None): ("fig-1", "figure 1, theorem 3.1", "nc2_of"),
    (0, 0.0): ("fig-2", "figure 2, theorem 3.2", "nc2_etf"),
    (1, None): ("fig-6", "figure 6, theorem 3.1", "nc2_of"),
    (1, 0.0): ("fig-7", "figure 7, theorem 3.2", "nc2_etf"),
}
"""File name, reproduced figure and metric of NC2, by setting and decay of the bias."""


class XUFMConfig(Config):
    """Settings of the experiment."""

    settings: Literal["first", "both"] = Field("both", description="Only K = 4, or also K = 10.")
    first_steps: int = Field(80_000, ge=1, description="Steps of descent with K = 4.")
    second_steps: int = Field(180_000, ge=1, description="Steps of descent with K = 10.")
    every: int = Field(5_000, ge=1, description="Steps from one measurement to the next.")
    bias_decays: Positives = Field(
        (0.003, 0.01, 0.03, 0.05, 0.06, 0.0675, 0.0676, 0.08, 0.1, 0.15, 0.3, 1.0, 3.0, 10.0),
        min_length=1,
        description="Decays of the bias to compare, with K = 4.",
    )
    seed: Seed = Field(0, description="Seed of the measured descents' starts.")
    starts: int = Field(
        10, ge=2, description="Random starts of descent with, without decays and with a ReLU."
    )

    @property
    def descents(self) -> list[tuple[int, float | None]]:
        """Setting and decay of the bias of each measured descent."""
        return [key for key in FIGURES if key[0] == 0 or self.settings == "both"]


PAPER = XUFMConfig()
SMALL = XUFMConfig(settings="first")

SWEEP = "bias decay"
DECAYS, NO_DECAYS, RELU = "starts, decays", "starts, no decays", "starts, ReLU"
COLLAPSED, UNCOLLAPSED = 1e-3, 1e-2  # NC1 below the first is collapse, above the second is none
AT_ZERO = 0.5  # objective of features and weights that are zero
SHAPES = {
    "nc2_of": "means to OF",
    "nc2_etf": "centred means to ETF",
    "nc3_alignment": "W against means",
}


def list_claims(settings: XUFMConfig) -> list[Claim]:
    """Return theorems 3.1 and 3.2, the remarks on the bias and on descent, and the counterparts."""
    claims: list[Claim] = []
    for setting, bias_decay in settings.descents:
        problem = UFM(*SIZES[setting], bias_decay)
        part = part_name(problem.num_classes, bias_decay)
        source = f"XUFM, {FIGURES[setting, bias_decay][1]}"
        claims += [
            claim_arrival(part, source=source, before=f"{part}: "),
            *claim_vanishing(part, predict_zeros(problem), source=source, before=f"{part}: "),
        ]
    return [*claims, *list_bias_claims(), *list_start_claims()]


def part_name(num_classes: int, bias_decay: float | None) -> str:
    """Return the name of the descent with this many classes, without or with a free bias."""
    return f"K = {num_classes}, {'no bias' if bias_decay is None else 'free bias'}"


def list_bias_claims() -> list[Claim]:
    """Return the claims on the minimisers under a regularised bias, over all its decays."""

    def most(key: str, minus: str | None = None) -> Callable[[Run], float]:
        def quantity(run: Run) -> float:
            # Python's max loses a NaN, and with it that a value was not measured.
            subtrahends = [0 if minus is None else float(row[minus]) for row in run.rows]
            pairs = zip(values(run.rows, key), subtrahends, strict=True)
            return float(np.max([abs(value - other) for value, other in pairs]))

        return quantity

    off_simplex, off_alignment = most("nc2_etf"), most("nc3_alignment")
    off_minimum, off_share = most("objective", "minimum"), most("mean_share", "stated_mean_share")

    def has_simplex(row: Observation) -> bool:
        return float(row["mean_share"]) < 1e-9

    def count_exceptions(run: Run) -> float:
        stated = [float(row["bias_decay"]) <= threshold() for row in run.rows]
        return sum(has_simplex(row) != says for row, says in zip(run.rows, stated, strict=True))

    def tell_largest(runs: Runs) -> str:
        decays = [float(row["bias_decay"]) for row in runs[0].rows if has_simplex(row)]
        return (
            f"mean of zero up to a decay of {max(decays, default=math.nan):g}; "
            f"c / (1-c) = {threshold():.5f}"
        )

    return [
        Claim(
            text="Regularised bias: centred means are a simplex ETF, aligned with the classifier",
            source="XUFM, section 3, remark on the regularised bias",
            where=SWEEP,
            quantity=lambda run: float(np.maximum(off_simplex(run), off_alignment(run))),
            region=below(1e-6),
            rule="all",
            tell=lambda runs: (
                f"at most {off_simplex(runs[0]):.1e} off the simplex and "
                f"{off_alignment(runs[0]):.1e} off alignment, over {len(runs[0].rows)} decays"
            ),
        ),
        Claim(
            text="Regularised bias: the minimiser is a simplex exactly for decays up to c / (1-c)",
            source="ours",
            where=SWEEP,
            quantity=count_exceptions,
            region=below(1),
            rule="all",
            tell=tell_largest,
        ),
        Claim(
            text="Regularised bias: the solver's objective and mean equal those of the closed form",
            source="ours",
            where=SWEEP,
            quantity=lambda run: float(np.maximum(off_minimum(run) / 1e-9, off_share(run) / 1e-6)),
            region=below(1),
            rule="all",
            tell=lambda runs: (
                f"objectives differ by {off_minimum(runs[0]):.1e} at most, "
                f"shares of the mean by {off_share(runs[0]):.1e}"
            ),
        ),
    ]


def threshold() -> float:
    r"""$c/(1-c)$ of the first setting: the largest bias decay whose minimiser is a simplex."""
    c = UFM(*SIZES[0]).c
    return c / (1 - c)


def list_start_claims() -> list[Claim]:
    """Return the claims that decays lead to collapse from any start, and that nothing else does."""
    nc1 = last("nc1")

    def way_left(run: Run) -> float:
        """Share of the way from zero to the minimum that is left; 0 if it arrives or collapses."""
        doomed = not arrives(run) and nc1(run) >= COLLAPSED
        return gap(run) / (AT_ZERO - last("minimum")(run)) if doomed else 0.0

    def tell_decays(runs: Runs) -> str:
        good = sum(arrives(run) and nc1(run) < COLLAPSED for run in runs)
        return f"{good} of {len(runs)} starts; {tell_starts(runs)}"

    def tell_relu(runs: Runs) -> str:
        gained = sum(gap(run) < (AT_ZERO - last("minimum")(run)) / 2 for run in runs)
        collapsed = sum(nc1(run) < COLLAPSED for run in runs)
        return (
            f"{gained} of {len(runs)} starts went more than half of the way, "
            f"{sum(map(arrives, runs))} arrived, {collapsed} collapsed; {tell_starts(runs)}"
        )

    return [
        Claim(
            text="With decays gradient descent arrives at a collapsed global minimiser from every "
            "start",
            source="XUFM, section 3, remark on the optimisation procedure",
            where=partial(split_starts, DECAYS),
            quantity=lambda run: nc1(run) if arrives(run) else math.inf,
            region=below(COLLAPSED),
            rule="all",
            tell=tell_decays,
        ),
        Claim(
            text="Without decays descent typically ends at a global minimiser that is not "
            "collapsed",
            source="XUFM, section 2",
            where=partial(split_starts, NO_DECAYS),
            quantity=lambda run: nc1(run) if arrives(run) else 0.0,
            region=above(UNCOLLAPSED),
            rule="share",
            over="starts",
            tell=tell_starts,
        ),
        Claim(
            text="With a ReLU on the features of the plain model descent fails from every start: "
            f"it goes more than half of the way from the objective at zero, {AT_ZERO}, to the "
            f"minimum, but neither arrives at the minimum nor collapses to an NC1 below "
            f"{COLLAPSED:g}",
            source="XUFM, section 7",
            where=partial(split_starts, RELU),
            quantity=way_left,
            region=Region(0, 0.5),
            rule="all",
            tell=tell_relu,
        ),
    ]


def split_starts(part: str, runs: Runs) -> Runs:
    """Return the descents from each start of a part."""
    return Runs([runs.find(part)]).split("seed")


def tell_starts(runs: Runs) -> str:
    """Write the range in which descents from many starts end."""
    far, nc1 = [gap(run) for run in runs], [last("nc1")(run) for run in runs]
    return (
        f"objective {min(far):.1e} to {max(far):.1e} above the minimum, NC1 {min(nc1):.2g} to "
        f"{max(nc1):.2g}"
    )


def draw_figures(settings: XUFMConfig, runs: Runs) -> list[Drawing]:
    """Draw one figure per descent, as in the paper, and one of the sweep of bias decays."""
    drawings = []
    for setting, bias_decay in settings.descents:
        (k, d, n, weight_decay, feature_decay) = SIZES[setting]
        file, reproduces, key = FIGURES[setting, bias_decay]
        part = part_name(k, bias_decay)
        caption = (
            f"XUFM {reproduces}: K = {k}, d = {d}, n = {n}, decays {weight_decay} (W) and "
            f"{feature_decay} (H), {part.split(', ')[1]}; one start. NC2 is the distance to "
            f"{FRAMES[key]}. {DESCENT_CAPTION}"
        )
        drawings.append(Drawing(file, caption, draw_descent(runs.find(part), key)))
    caption = (
        "Minimisers under a regularised bias. The mean of the features vanishes, and they are a "
        "simplex, up to a decay of c / (1-c), the vertical line; with a growing decay they "
        "approach the orthogonal frame."
    )
    return [*drawings, Drawing("bias-decay", caption, draw_sweep(runs.find(SWEEP)))]


def draw_sweep(run: Run) -> Figure:
    """Draw objective, share of the mean and shape of the minimisers against the bias decay."""
    rows = sorted(run.rows, key=lambda row: float(row["bias_decay"]))
    titles = {
        "objective": "Objective",
        "mean_share": "Share of the mean: 0 simplex, 1/K frame",
        "shapes": "Distances",
    }
    row = [partial(draw_minimisers, rows, key, title) for key, title in titles.items()]
    return draw_grid([row], cell=(3.6, 2.8))


def draw_minimisers(rows: Path, key: str, title: str, axes: Axes) -> None:
    """Draw a value of the minimisers found, and the closed form as a line; or their distances."""
    decays = values(rows, "bias_decay")
    if key == "shapes":
        for colour, (shape, label) in zip(panels.SERIES, SHAPES.items(), strict=False):
            numbers = [max(number, 1e-17) for number in values(rows, shape)]
            axes.plot(decays, numbers, "o-", color=colour, markersize=3, label=label)
        axes.set_yscale("log")
    else:
        line = [decays[0] * (decays[-1] / decays[0]) ** (at / 200) for at in range(201)]
        problems = [UFM(*SIZES[0], decay) for decay in line]
        best = [(problem, problem.minimiser()) for problem in problems]
        stated = [
            found.objective if key == "objective" else mean_share(problem, found.point)
            for problem, found in best
        ]
        axes.plot(line, stated, color=panels.SECOND, linestyle=panels.DASHED, label="closed form")
        axes.plot(decays, values(rows, key), "o", color=panels.ACCENT, markersize=4, label="found")
    axes.axvline(threshold(), color=panels.SOFT, linewidth=0.9)
    axes.set_xscale("log")
    axes.set_xlabel("bias decay")
    axes.set_title(title)
    axes.legend()


def list_parts(settings: XUFMConfig) -> list[Part]:
    """Return a descent for each setting and bias, the sweep of bias decays, and many starts."""
    parts = []
    for setting, bias_decay in settings.descents:
        problem = UFM(*SIZES[setting], bias_decay)
        compact, start = problem.compact(draw_start(problem, settings.seed))
        record = choose_steps(
            (settings.first_steps, settings.second_steps)[setting], settings.every
        )
        name = part_name(problem.num_classes, bias_decay)
        parts.append(descend(name, compact, problem.minimiser(), start, RATE, record))
    parts.append(Part(SWEEP, len(settings.bias_decays), lambda _: sweep_bias_decays(settings)))
    k, d, n, *_ = SIZES[0]
    minimum = UFM(*SIZES[0]).minimiser().objective
    models: dict[str, tuple[UFM | PlainUFM, float]] = {
        DECAYS: (UFM(*SIZES[0]), minimum),
        NO_DECAYS: (PlainUFM(k, d, n, weight_decay=0.0, feature_decay=0.0), 0.0),
        RELU: (PlainUFM(*SIZES[0], activation="relu"), minimum),
    }

    def starts(name: str, model: UFM | PlainUFM, lowest: float) -> Part:
        return Part(name, settings.starts, lambda _: descend_from_starts(settings, model, lowest))

    return [*parts, *(starts(name, *model) for name, model in models.items())]


def sweep_bias_decays(settings: XUFMConfig) -> Iterator[Observation]:
    """Yield the minimiser reached from a random start at every decay of the bias."""
    generator = torch.Generator().manual_seed(settings.seed)
    for bias_decay in settings.bias_decays:
        problem = UFM(*SIZES[0], bias_decay)
        compact, start = problem.compact(problem.start(generator))
        best = problem.minimiser()
        (row,) = observations_of(solve(compact, best, start))
        stated = mean_share(problem, best.point)
        yield row.with_values({"bias_decay": bias_decay, "stated_mean_share": stated})


def descend_from_starts(
    settings: XUFMConfig, model: UFM | PlainUFM, minimum: float
) -> Iterator[Observation]:
    """Yield the last point of the descent from each start, beside the minimum."""
    steps = settings.first_steps
    starts = [draw_start(model, seed) for seed in range(settings.starts)]
    for seed, (problem, end) in enumerate(descend_together(model, starts, RATE, steps)):
        (row,) = observations_of(measure_solution(problem, end, steps, GROUPS))
        yield row.with_values({"seed": seed, "minimum": minimum})


EXPERIMENT = Experiment(
    id="xufm/ufm",
    title="Minimisers of the unconstrained features model",
    question=(
        "Plain gradient descent from random features and weights ends on an orthogonal frame "
        "without a bias, on a simplex ETF with a free bias, and between the two with a regularised "
        "bias."
    ),
    source="XUFM figures 1-2 and 6-7; theorems 3.1 and 3.2; sections 2, 3 and 7",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "2 minutes on one core (estimated)", "small": "90 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=COLUMNS,
    unit="step",
)
