"""PFC figures 4 and 5, section IV-B: features between the data and the simplex.

Figure 4 compares descents on MUFM, whose features are tied to the data, and on UFM; figure 5 shows
MUFM's minima against the price of moving features. Both scalings of the regularisers are run:
divided by K and Kn as printed in (13), and plain as in the paper's UFM (2). The fast solver also
computes the minima. The model is a surrogate, so the small scale is the paper's; all is done for
five draws of data and starts.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ncscope.lab.claims import Claim, above, below, within
from ncscope.lab.experiment import Experiment, Part
from ncscope.lab.experiments.models.bounds import Positives, Seed
from ncscope.lab.experiments.models.descents import recorded_steps
from ncscope.lab.experiments.models.mufm import COLLAPSED, PFC_TITLES, measure_levels, minimise
from ncscope.lab.figures import collect_points, draw_band, draw_grid
from ncscope.lab.observations import Observation, observations_of
from ncscope.lab.quantities import (
    Path,
    Run,
    Runs,
    average,
    first,
    last,
    last_over_first,
    ratio,
    values,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.surrogates.descent import gradient_descent
from ncscope.lab.surrogates.mufm import MUFM
from ncscope.lab.surrogates.problem import gaussian_classes
from ncscope.lab.surrogates.trajectory import measured_point
from ncscope.lab.surrogates.ufm import UFM
from ncscope.measurement.records import Measurement
from ncscope.report import panels

K, D, N = 5, 20, 100
WEIGHT_DECAY, TRANSPORT, RATE = 0.005, 0.001, 0.1
SCALINGS = ("plain", "printed")


class PFCConfig(BaseModel):
    """Settings of the experiment."""

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
        """Seeds of all draws."""
        return range(self.seed, self.seed + self.seeds)

    @field_validator("transports")
    @classmethod
    def _ascending(cls, prices: tuple[float, ...]) -> tuple[float, ...]:
        if any(later <= earlier for earlier, later in pairwise(prices)):
            msg = "ascending prices"
            raise ValueError(msg)
        return prices


PFC = ("pfc1", "pfc2", "pfc3")
DISTANCE = "data_distance"
NEAR = 0.05  # largest PFC2 that counts as close to a simplex; the paper states no number
FACTOR = 1.1  # least factor by which a metric rises or falls; the paper states no number
ARRIVED = 0.01  # relative distance from the minimum at which a descent counts as arrived
ZERO = 1e-9  # smaller values of PFC1 are zero but for rounding


def list_claims(settings: PFCConfig) -> list[Claim]:
    """Return the paper's statements about figures 4 and 5, under each scaling."""
    return [claim for scaling in SCALINGS for claim in list_scaling_claims(settings, scaling)]


def list_scaling_claims(settings: PFCConfig, scaling: str) -> list[Claim]:
    """Return the claims on the descents in each draw, and on the sweep of prices."""
    before, sweep = f"{scaling.capitalize()}: ", f"sweep, {scaling}"
    in_draws = partial(
        Claim, where=partial(select_draws, settings, scaling), rule="each", over="draws"
    )
    over_draws = partial(
        Claim,
        source="PFC, section IV-B and figure 5",
        where=lambda runs: Runs([runs.named(sweep)]).split("seed"),
        over="draws",
    )

    def claim_trend(key: str, text: str, falls: bool = False) -> Claim:
        return over_draws(
            text=f"{before}{text} by a factor of {FACTOR}",
            quantity=last_over_first(key),
            region=below(1 / FACTOR) if falls else above(FACTOR),
            scale="ratio",
            tell=lambda runs: (
                "ratio of the largest lambda's to the smallest's; means "
                f"{average(list(map(last(key), runs))):.3g} and "
                f"{average(list(map(first(key), runs))):.3g}"
            ),
        )

    def tell_first(runs: Runs) -> str:
        data, pfc1 = (average(list(map(first(key), runs))) for key in ("data_pfc2", "pfc1"))
        return (
            f"at lambda {runs[0].rows[0]['transport']}; PFC2 of the data {data:.3g}; "
            f"PFC1 {pfc1:.3g}"
        )

    return [
        in_draws(
            text=f"{before}gradient descent takes UFM to collapse (PFC1 and PFC2 below "
            f"{COLLAPSED})",
            source="PFC, section IV-B and figure 4",
            quantity=lambda draw: max(last(key)(find_part(draw, "UFM")) for key in PFC[:2]),
            region=below(COLLAPSED),
            tell=tell_collapse,
        ),
        in_draws(
            text=f"{before}MUFM ends between collapse and the data, by gradient descent and at the "
            f"minimum (PFC1 above {COLLAPSED} and below the data's), and UFM is collapsed at its "
            "minimum",
            source="PFC, theorem 4 and figure 4",
            quantity=ends_apart,
            region=above(0),
            tell=tell_apart,
        ),
        Claim(
            text=f"{before}the minimum is more concentrated than the data at every lambda, in "
            "every draw",
            source="PFC, theorem 4",
            where=sweep,
            quantity=lambda run: max(list_shares(run)),
            region=below(1),
            rule="all",
            tell=lambda runs: (
                f"PFC1 is {min(list_shares(runs[0])):.3g} to {max(list_shares(runs[0])):.3g} of "
                f"the data's, {len(runs[0].rows)} minima"
            ),
        ),
        over_draws(
            text=f"{before}with a small lambda the class means are close to the simplex (PFC2 "
            f"below {NEAR})",
            quantity=first("pfc2"),
            region=below(NEAR),
            tell=tell_first,
        ),
        claim_trend("pfc1", "as lambda grows, the minimum leaves the simplex: PFC1 rises"),
        claim_trend("pfc2", "as lambda grows, the minimum leaves the simplex: PFC2 rises"),
        claim_trend(DISTANCE, "as lambda grows, the features approach the data", falls=True),
        claim_trend("pfc3", "as lambda grows, the nearest-mean accuracy falls", falls=True),
        in_draws(
            text=f"{before}gradient descent on MUFM arrives at the minimum, to 1 %",
            source="ours",
            quantity=lambda draw: ratio(*list_objectives(draw)) - 1,
            region=within(ARRIVED),
            tell=tell_arrival,
        ),
    ]


def select_draws(settings: PFCConfig, scaling: str, runs: Runs) -> Runs:
    """Return a run for each draw of the data, which stands for the parts of the draw."""
    names = [f"{scaling}, seed {seed}" for seed in settings.draws]
    return Runs(Run(name, None, [], [], runs) for name in names if runs.named(f"UFM, {name}").rows)


def find_part(draw: Run, model: str) -> Run:
    """Return the descent on a model in a draw, or its minima."""
    return draw.experiment.named(f"{model}, {draw.name}")


def tell_collapse(draws: Runs) -> str:
    """Write where the descent on UFM ends."""
    descent = find_part(draws[0], "UFM")
    return (
        f"PFC1 {last('pfc1')(descent):.2g}, PFC2 {last('pfc2')(descent):.2g} after "
        f"{descent.rows[-1].step:,} steps"
    )


def ends_apart(draw: Run) -> float:
    """Return 1 if MUFM ends between collapse and the data and UFM's minimum is collapsed, else 0.

    NaN if descent does not take UFM to collapse, since then it says nothing of MUFM either.
    """
    if not last("pfc1")(find_part(draw, "UFM")) < COLLAPSED:
        return math.nan
    data, tied, free = values(find_part(draw, "minima").rows, "pfc1")
    reached = last("pfc1")(find_part(draw, "MUFM"))
    return float(min(tied, reached) > COLLAPSED and max(tied, reached) < data and free < ZERO)


def tell_apart(draws: Runs) -> str:
    """Write PFC1 of MUFM's descent and minimum, of the data and of UFM's minimum."""
    data, tied, free = values(find_part(draws[0], "minima").rows, "pfc1")
    reached = last("pfc1")(find_part(draws[0], "MUFM"))
    told = f"PFC1 {reached:.4g} and {tied:.4g}, data {data:.4g}; at UFM's minimum {free:.1g}"
    if math.isnan(ends_apart(draws[0])):
        told += "; nothing is said of MUFM, since descent has not taken UFM to collapse either"
    return told


def list_shares(sweep: Run) -> list[float]:
    """List PFC1 of the minima as shares of the data's."""
    return [ratio(*pair) for pair in zip(
        values(sweep.rows, "pfc1"), values(sweep.rows, "data_pfc1"), strict=True)]  # fmt: skip


def list_objectives(draw: Run) -> tuple[float, float]:
    """Return the objective of MUFM at the end of descent and at the minimum."""
    reached = last("objective")(find_part(draw, "MUFM"))
    return reached, values(find_part(draw, "minima").rows, "objective")[1]


def tell_arrival(draws: Runs) -> str:
    """Write the objective of MUFM at the end of descent and at the minimum."""
    reached, least = list_objectives(draws[0])
    steps = find_part(draws[0], "MUFM").rows[-1].step
    return f"objective {reached:.5g} after {steps:,} steps, least {least:.5g}"


def draw_figures(settings: PFCConfig, runs: Runs) -> list[Drawing]:
    """Draw figures 4 and 5 under each scaling."""
    drawings = []
    for scaling in SCALINGS:
        said = "plain regularisers" if scaling == "plain" else "regularisers divided by K and Kn"
        compared = (
            f"PFC figure 4, {said}. (a) Features of MUFM along gradient descent; red: the data, "
            "dashed: the minimum by the fast solver. (b) Features of UFM, whose minimum is "
            "collapsed. The first draw."
        )
        traded = (
            f"PFC figure 5, {said}. Minima of MUFM against the price of moving features, the mean "
            f"over {settings.seeds} draws of the data and their range; red: the data."
        )
        first_draw = select_draws(settings, scaling, runs)[0]
        sweep = runs.named(f"sweep, {scaling}")
        titles = PFC_TITLES | {DISTANCE: "Distance from the data"}
        row = [partial(draw_prices, sweep.rows, key, title) for key, title in titles.items()]
        drawings += [
            Drawing(f"fig-4-{scaling}", compared, draw_descents(first_draw)),
            Drawing(f"fig-5-{scaling}", traded, draw_grid([row], cell=(2.75, 2.7), legend="first")),
        ]
    return drawings


DATA = "#b3261e"


def draw_descents(run: Run) -> Figure:
    """Draw PFC1-3 along the descents on MUFM, above those on UFM."""
    data, tied, _ = find_part(run, "minima").rows
    constrained, free = find_part(run, "MUFM").path(layer="H"), find_part(run, "UFM").rows

    def draw_tied(key: str, axes: Axes) -> None:
        draw_steps(axes, constrained, key)
        axes.axhline(float(data[key]), color=DATA, linewidth=1.2, label="data")
        axes.axhline(float(tied[key]), color=panels.ACCENT, linestyle=panels.DASHED, linewidth=1)
        axes.set_title(f"(a) MUFM: {key.upper()}")

    def draw_free(key: str, axes: Axes) -> None:
        draw_steps(axes, free, key)
        axes.set_yscale("linear" if key == "pfc3" else "log")
        axes.set_title(f"(b) UFM: {key.upper()}")

    rows = [[partial(draw, key) for key in PFC] for draw in (draw_tied, draw_free)]
    return draw_grid(rows, cell=(3.1, 2.55), share_x=True, legend="first")


def draw_steps(axes: Axes, path: Path, key: str) -> None:
    """Draw a metric against the step of a descent."""
    steps = [row.step / 1000 for row in path]
    axes.plot(steps, values(path, key), "o-", color=panels.ACCENT, markersize=2.5)
    axes.set_ylabel(PFC_TITLES[key].split(": ")[1])
    axes.set_xlabel("thousand steps")


def draw_prices(rows: Path, key: str, title: str, axes: Axes) -> None:
    """Draw a metric of the minima against the price of moving features."""
    draw_band(axes, collect_points(rows, "ratio", key))
    if key != DISTANCE:
        data = average(values(rows, f"data_{key}"))
        axes.axhline(data, color=DATA, linewidth=1.2, label="data")
    axes.set_title(title)
    axes.set_xlabel(r"$\lambda/\lambda_W$")


def list_parts(settings: PFCConfig) -> list[Part]:
    """Return, for both scalings, figure 4's descents, their minima, and figure 5's sweep."""
    record = recorded_steps(settings.steps, settings.every)
    parts = []
    for scaling in SCALINGS:
        for seed in settings.draws:
            name = f"{scaling}, seed {seed}"
            tied, free = (
                partial(descend, record, scaling, seed, model) for model in ("MUFM", "UFM")
            )
            parts += [
                Part(f"MUFM, {name}", len(record), tied),
                Part(f"UFM, {name}", len(record), free),
                Part(f"minima, {name}", 3, partial(find_minima, scaling, seed)),
            ]
        swept = len(settings.transports) * settings.seeds
        parts.append(Part(f"sweep, {scaling}", swept, partial(sweep_prices, settings, scaling)))
    return parts


def make_model(
    scaling: str, seed: int, transport: float = TRANSPORT
) -> tuple[MUFM, torch.Generator]:
    """Return the model on a seed's data, in PFC IV-B's sizes, and the generator of its starts."""
    generator = torch.Generator().manual_seed(seed)
    data = gaussian_classes(K, N, D, generator)
    return MUFM(data, K, WEIGHT_DECAY, transport, normalised=scaling == "printed"), generator


def leave_data(tied: MUFM) -> UFM:
    """Return the model without data, which penalises the features' distance from zero."""
    return UFM(K, D, N, tied.omega, tied.tau)


def descend(
    record: Sequence[int], scaling: str, seed: int, model: str, resources: object
) -> Iterator[Measurement]:
    """Yield the points of a descent on MUFM or UFM, both from the same start."""
    tied, generator = make_model(scaling, seed)
    start = tied.start(generator)
    if model == "MUFM":
        compact, begin = tied.compact(start)
        for step, point in gradient_descent(compact, begin, RATE, record):
            yield measure_levels(compact, point, step)
        return
    free, begin = leave_data(tied).compact(start)
    for step, point in gradient_descent(free, begin, RATE, record):
        yield measured_point(free, point, step, ("pfc",))


def find_minima(scaling: str, seed: int, resources: object) -> Iterator[Observation]:
    """Yield the data and MUFM's features at its minimum, and UFM's at its minimum."""
    tied, generator = make_model(scaling, seed)
    point, result = minimise(tied, generator)
    data, features = observations_of(measure_levels(tied, point, result.evaluations))
    free = leave_data(tied)
    collapsed = observations_of(measured_point(free, free.minimiser().point, 0, ("pfc",)))[0]
    yield data.with_values({"model": "data"})
    yield features.with_values({"model": "MUFM"})
    yield collapsed.with_values({"model": "UFM"})


def sweep_prices(settings: PFCConfig, scaling: str, resources: object) -> Iterator[Observation]:
    """Yield MUFM's features at the minimum for each price of moving them, in each draw."""
    for transport in settings.transports:
        for seed in settings.draws:
            model, generator = make_model(scaling, seed, transport)
            point, result = minimise(model, generator)
            data, features = observations_of(measure_levels(model, point, result.evaluations))
            data_values = {f"data_{key}": data[key] for key in PFC}
            prices = {"transport": transport, "ratio": transport / WEIGHT_DECAY}
            yield features.with_values({**data_values, **prices, "seed": seed})


EXPERIMENT = Experiment(
    id="pfc/mufm",
    title="Features between the data and the simplex",
    question=(
        "If moving features away from the data costs energy, they do not collapse: the minimum "
        "lies between the data and a simplex, and the transport cost determines its position."
    ),
    source="PFC IV-B, figures 4-5",
    scales={"paper": PFCConfig(), "small": PFCConfig()},
    cost={"paper": "35 seconds on one core", "small": "35 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=("objective", "gradient_norm", *PFC, DISTANCE),
    unit="step",
)
