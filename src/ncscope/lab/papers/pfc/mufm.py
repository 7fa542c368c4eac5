"""Features between the data and the simplex: MUFM against UFM, and the trade-off.

Source: PFC IV-B, figures 4 and 5. Both scalings of the regularisers are run: divided by K and Kn as
printed in (13), and plain as in the paper's UFM (2). The fast solver also computes the minima.
The model is a surrogate, so the small scale is the paper's; all is done for five draws of data and
starts. Cost: 35 seconds on one core of a shared machine.
Command: ``ncscope reproduce pfc/mufm``.

Expected (draw 0; data: PFC1 25):

| | plain | printed |
|---|---|---|
| UFM after 50,000 steps: PFC1, PFC2 | .0044, 2e-6 | 5.9, .16 |
| MUFM after 50,000 steps: objective, PFC1 | .3838, 14.1 | .133, 5.9 |
| MUFM's minimum: objective, PFC1 | .3832, 14.3 | .0033, 6.0 |

With the plain regularisers 8 of 9 claims hold: at the smallest lambda the minimum is not close to a
simplex (PFC2 .15 to .20, PFC1 8). With the printed regularisers 5 hold; neither descent has
converged, so whether MUFM stays apart from collapse is undecided.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import mean

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ncscope.lab.evidence.judging import above, below, decided, judged
from ncscope.lab.experiments.models.bounds import Positives, Seed
from ncscope.lab.experiments.models.descents import recorded_steps
from ncscope.lab.observations import Observation, observations_of
from ncscope.lab.papers.trained import on_runs, ratio
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.runs.resources import Resources
from ncscope.lab.simulations.mufm import COLLAPSED, PFC_TITLES, measured, minimum
from ncscope.lab.surrogates.descent import gradient_descent
from ncscope.lab.surrogates.mufm import MUFM
from ncscope.lab.surrogates.problem import gaussian_classes
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.lab.surrogates.ufm import UFM
from ncscope.measurement.records import Measurement
from ncscope.report import panels
from ncscope.report.claims import Claim

K, D, N = 5, 20, 100
WEIGHT_DECAY, TRANSPORT, RATE = 0.005, 0.001, 0.1
SCALINGS = ("plain", "printed")
PFC = ("pfc1", "pfc2", "pfc3")
DISTANCE = "data_distance"
NEAR = 0.05
"""Largest PFC2 that counts as close to a simplex; the paper states no number."""
FACTOR = 1.1
"""Least factor by which a metric rises or falls; the paper states no number."""


class PFCConfig(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(50_000, ge=1, description="Steps of gradient descent, figure 4.")
    every: int = Field(2_500, ge=1, description="Steps from one measurement to the next.")
    transports: Positives = Field(
        (0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.0175, 0.02),
        min_length=2,
        description="Prices of moving features to compare, lambda, figure 5.",
    )
    seeds: int = Field(5, ge=1, description="Draws of the data and of the starts.")
    seed: Seed = Field(0, description="Seed of the first draw.")

    @property
    def draws(self) -> range:
        """Return the seeds of all draws."""
        return range(self.seed, self.seed + self.seeds)

    @field_validator("transports")
    @classmethod
    def _ascending(cls, prices: tuple[float, ...]) -> tuple[float, ...]:
        if any(later <= earlier for earlier, later in pairwise(prices)):
            msg = "ascending prices"
            raise ValueError(msg)
        return prices


def model(scaling: str, seed: int, transport: float = TRANSPORT) -> tuple[MUFM, torch.Generator]:
    """Build the model on a seed's data, in PFC IV-B's sizes, and the generator of its starts."""
    generator = torch.Generator().manual_seed(seed)
    data = gaussian_classes(K, N, D, generator)
    return MUFM(data, K, WEIGHT_DECAY, transport, normalised=scaling == "printed"), generator


def _parts(config: PFCConfig) -> list[Part]:
    """Return, for both scalings, figure 4's descents, their minima, and figure 5's sweep."""
    return [part for scaling in SCALINGS for part in _scaled(config, scaling)]


def _scaled(config: PFCConfig, scaling: str) -> list[Part]:
    record = recorded_steps(config.steps, config.every)
    swept = len(config.transports) * config.seeds
    parts = []
    for seed in config.draws:
        name = f"{scaling}, seed {seed}"
        parts += [
            Part(f"MUFM, {name}", len(record), partial(_mufm, record, scaling, seed)),
            Part(f"UFM, {name}", len(record), partial(_ufm, record, scaling, seed)),
            Part(f"minima, {name}", 3, partial(_minima, scaling, seed)),
        ]
    return [*parts, Part(f"sweep, {scaling}", swept, lambda _: _sweep(config, scaling))]


def _mufm(
    record: Sequence[int], scaling: str, seed: int, resources: Resources
) -> Iterator[Measurement]:
    problem, generator = model(scaling, seed)
    compact, begin = problem.compact(problem.start(generator))
    for step, point in gradient_descent(compact, begin, RATE, record):
        yield measured(compact, point, step)


def _unconstrained(tied: MUFM) -> UFM:
    """Build the model without data, which penalises the features' distance from zero."""
    return UFM(K, D, N, tied.omega, tied.tau)


def _ufm(
    record: Sequence[int], scaling: str, seed: int, resources: Resources
) -> Iterator[Measurement]:
    tied, generator = model(scaling, seed)
    compact, begin = _unconstrained(tied).compact(tied.start(generator))
    for step, point in gradient_descent(compact, begin, RATE, record):
        yield measured_point(compact, point, step, ("pfc",))


def _minima(scaling: str, seed: int, resources: Resources) -> Iterator[Observation]:
    """Yield the data and MUFM's features at its minimum, and UFM's at its minimum."""
    problem, generator = model(scaling, seed)
    point, result = minimum(problem, generator)
    data, features = observations_of(measured(problem, point, result.evaluations))
    free = _unconstrained(problem)
    collapsed = observations_of(measured_point(free, free.minimiser().point, 0, ("pfc",)))[0]
    yield data.with_values({"model": "data"})
    yield features.with_values({"model": "MUFM"})
    yield collapsed.with_values({"model": "UFM"})


def _sweep(config: PFCConfig, scaling: str) -> Iterator[Observation]:
    for transport in config.transports:
        for seed in config.draws:
            problem, generator = model(scaling, seed, transport)
            point, result = minimum(problem, generator)
            data, features = observations_of(measured(problem, point, result.evaluations))
            data_values = {f"data_{key}": data[key] for key in PFC}
            prices = {"transport": transport, "ratio": transport / WEIGHT_DECAY}
            yield features.with_values({**data_values, **prices, "seed": seed})


def _claims(config: PFCConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test the paper's statements about figures 4 and 5, under each scaling."""
    claims: list[Claim] = []
    for scaling in SCALINGS:
        sweep = part_of(rows, f"sweep, {scaling}")
        draws = [f"{scaling}, seed {seed}" for seed in config.draws]
        scaling_claims = [
            _descended_to_collapse(rows, draws),
            _stays_apart(rows, draws),
            _more_concentrated(sweep),
            _near_the_simplex(sweep),
            _trend(sweep, "pfc1", "as lambda grows, the minimum leaves the simplex: PFC1 rises"),
            _trend(sweep, "pfc2", "as lambda grows, the minimum leaves the simplex: PFC2 rises"),
            _trend(sweep, DISTANCE, "as lambda grows, the features approach the data", falls=True),
            _trend(sweep, "pfc3", "as lambda grows, the nearest-mean accuracy falls", falls=True),
            _arrived(rows, draws),
        ]
        claims += [
            replace(claim, text=f"{scaling.capitalize()}: {claim.text}") for claim in scaling_claims
        ]
    return claims


def _last(rows: Sequence[Observation], part: str) -> Observation:
    return part_of(rows, part)[-1]


def _descended_to_collapse(rows: Sequence[Observation], draws: Sequence[str]) -> Claim:
    verdicts = {}
    for draw in draws:
        last = _last(rows, f"UFM, {draw}")
        pfc1, pfc2 = number(last, "pfc1"), number(last, "pfc2")
        told = f"PFC1 {pfc1:.2g}, PFC2 {pfc2:.2g} after {last.step:,} steps"
        verdicts[draw] = max(pfc1, pfc2) < COLLAPSED, told
    return on_runs(
        f"gradient descent takes UFM to collapse (PFC1 and PFC2 below {COLLAPSED})",
        verdicts,
        source="PFC, section IV-B and figure 4",
        of="draws",
    )


def _stays_apart(rows: Sequence[Observation], draws: Sequence[str]) -> Claim:
    """Test that MUFM ends between collapse and the data; undecided if UFM does not collapse."""
    verdicts = {}
    for draw in draws:
        data, tied, free = (number(row, "pfc1") for row in part_of(rows, f"minima, {draw}"))
        reached = number(_last(rows, f"MUFM, {draw}"), "pfc1")
        told = f"PFC1 {reached:.4g} and {tied:.4g}, data {data:.4g}; at UFM's minimum {free:.1g}"
        descends = number(_last(rows, f"UFM, {draw}"), "pfc1") < COLLAPSED
        apart = min(tied, reached) > COLLAPSED and max(tied, reached) < data and free < 1e-9
        if not descends:
            told += "; nothing is said of MUFM, since descent has not taken UFM to collapse either"
        verdicts[draw] = apart if descends else None, told
    return on_runs(
        "MUFM ends between collapse and the data, by gradient descent and at the minimum (PFC1 "
        f"above {COLLAPSED} and below the data's), and UFM is collapsed at its minimum",
        verdicts,
        source="PFC, theorem 4 and figure 4",
        of="draws",
    )


def _more_concentrated(sweep: Sequence[Observation]) -> Claim:
    shares = [number(row, "pfc1") / number(row, "data_pfc1") for row in sweep]
    return decided(
        "the minimum is more concentrated than the data at every lambda, in every draw",
        source="PFC, theorem 4",
        held=max(shares) < 1,
        evidence=f"PFC1 is {min(shares):.3g} to {max(shares):.3g} of the data's, "
        f"{len(sweep)} minima",
    )


def _near_the_simplex(sweep: Sequence[Observation]) -> Claim:
    """Test that the distance to the simplex is small at the smallest lambda."""
    first = [row for row in sweep if row["transport"] == sweep[0]["transport"]]
    data, pfc1 = (mean(number(row, key) for row in first) for key in ("data_pfc2", "pfc1"))
    return judged(
        f"with a small lambda the class means are close to the simplex (PFC2 below {NEAR})",
        source="PFC, section IV-B and figure 5",
        values=[number(row, "pfc2") for row in first],
        region=below(NEAR),
        of="draws",
        evidence=f"at lambda {sweep[0]['transport']}; PFC2 of the data {data:.3g}; PFC1 {pfc1:.3g}",
    )


def _trend(sweep: Sequence[Observation], key: str, claim: str, falls: bool = False) -> Claim:
    """Test that a metric changes by a factor from the smallest lambda to the largest."""
    by_price = [
        [number(row, key) for row in sweep if row["transport"] == price]
        for price in (sweep[0]["transport"], sweep[-1]["transport"])
    ]
    return judged(
        f"{claim} by a factor of {FACTOR}",
        source="PFC, section IV-B and figure 5",
        values=[ratio(last, first) for first, last in zip(*by_price, strict=True)],
        region=below(1 / FACTOR) if falls else above(FACTOR),
        of="draws",
        scale="ratio",
        evidence="ratio of the largest lambda's to the smallest's; means "
        + " and ".join(f"{mean(values):.3g}" for values in reversed(by_price)),
    )


def _arrived(rows: Sequence[Observation], draws: Sequence[str]) -> Claim:
    verdicts = {}
    for draw in draws:
        last = _last(rows, f"MUFM, {draw}")
        reached = number(last, "objective")
        least = number(part_of(rows, f"minima, {draw}")[1], "objective")
        told = f"objective {reached:.5g} after {last.step:,} steps, least {least:.5g}"
        verdicts[draw] = abs(ratio(reached, least) - 1) < 0.01, told
    return on_runs(
        "gradient descent on MUFM arrives at the minimum, to 1 %",
        verdicts,
        source="ours",
        of="draws",
    )


def _drawings(config: PFCConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 4 and 5 under each scaling."""
    drawings = []
    for scaling in SCALINGS:
        said = {"plain": "plain regularisers", "printed": "regularisers divided by K and Kn"}[
            scaling
        ]
        compared = (
            f"PFC figure 4, {said}. (a) Features of MUFM along gradient descent; red: the data, "
            "dashed: the minimum by the fast solver. (b) Features of UFM, whose minimum is "
            "collapsed. The first draw."
        )
        traded = (
            f"PFC figure 5, {said}. Minima of MUFM against the price of moving features, the mean "
            f"over {config.seeds} draws of the data and their range; red: the data."
        )
        sweep = part_of(rows, f"sweep, {scaling}")
        first = f"{scaling}, seed {config.seed}"
        drawings += [
            Drawing(f"fig-4-{scaling}", compared, _compared(rows, first)),
            Drawing(f"fig-5-{scaling}", traded, _traded(sweep)),
        ]
    return drawings


def _compared(rows: Sequence[Observation], draw: str) -> Figure:
    data, tied, _ = part_of(rows, f"minima, {draw}")
    path = [row for row in part_of(rows, f"MUFM, {draw}") if row.layer == "H"]
    free = part_of(rows, f"UFM, {draw}")
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(9.5, 5.2), layout="constrained")
        upper, lower = figure.subplots(2, 3, sharex=True)
        for axes, (key, title) in zip(upper, PFC_TITLES.items(), strict=True):
            _curve(axes, path, key)
            axes.axhline(number(data, key), color=DATA, linewidth=1.2, label="data")
            axes.axhline(
                number(tied, key), color=panels.ACCENT, linestyle=panels.DASHED, linewidth=1
            )
            axes.set_title(f"(a) MUFM: {key.upper()}")
            axes.set_ylabel(title.split(": ")[1])
        for axes, (key, title) in zip(lower, PFC_TITLES.items(), strict=True):
            _curve(axes, free, key)
            axes.set_yscale("linear" if key == "pfc3" else "log")
            axes.set_title(f"(b) UFM: {key.upper()}")
            axes.set_ylabel(title.split(": ")[1])
            axes.set_xlabel("thousand steps")
        upper[0].legend()
    return figure


DATA = "#b3261e"


def _curve(axes: Axes, path: Sequence[Observation], key: str) -> None:
    steps = [row.step / 1000 for row in path]
    values = [number(row, key) for row in path]
    axes.plot(steps, values, "o-", color=panels.ACCENT, markersize=2.5)


def _traded(sweep: Sequence[Observation]) -> Figure:
    ratios = list(dict.fromkeys(number(row, "ratio") for row in sweep))
    titles = PFC_TITLES | {DISTANCE: "Distance from the data"}
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.8), layout="constrained")
        for axes, (key, title) in zip(figure.subplots(1, 4), titles.items(), strict=True):
            groups = [[number(r, key) for r in sweep if r["ratio"] == ratio] for ratio in ratios]
            low, high = [min(group) for group in groups], [max(group) for group in groups]
            axes.fill_between(ratios, low, high, color=panels.ACCENT, alpha=0.15, linewidth=0)
            axes.plot(ratios, [mean(g) for g in groups], "o-", color=panels.ACCENT, markersize=3)
            if key != DISTANCE:
                line = mean(number(row, f"data_{key}") for row in sweep)
                axes.axhline(line, color=DATA, linewidth=1.2, label="data")
            axes.set_title(title)
            axes.set_xlabel(r"$\lambda/\lambda_W$")
        figure.axes[0].legend()
    return figure


RECIPE: Recipe[PFCConfig] = Recipe(
    id="pfc/mufm",
    title="Features between the data and the simplex",
    lead=(
        "If moving features away from the data costs energy, they do not collapse: the minimum "
        "lies between the data and a simplex, and the transport cost determines its position."
    ),
    source="PFC IV-B, figures 4-5",
    config=PFCConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=("objective", "gradient_norm", *PFC, DISTANCE),
    scales={
        "paper": PFCConfig(),
        "medium": PFCConfig(),
        "small": PFCConfig(),
    },
    cost={
        "paper": "35 seconds on one core",
        "medium": "35 seconds on one core",
        "small": "35 seconds on one core",
    },
)
