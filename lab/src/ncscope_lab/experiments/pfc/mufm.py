"""PFC figures 4 and 5, section IV-B: features between the data and the simplex.

Figure 4 compares 50,000 steps of gradient descent at rate 0.1 on MUFM, whose features are tied to
the data, with those on UFM; figure 5 shows MUFM's minima against the price of moving features. Both
scalings of the regularisers are run: divided by K and Kn as printed in (13), and plain as in the
paper's UFM (2). With the printed scaling the regulariser of the features is 2e-6, so that descent
has not ended after these steps; the minima are computed by a quasi-Newton solver too.

The model is a surrogate, so the small scale is the paper's: 5 classes of 100 samples in 20
dimensions, standard normal around class means on the unit sphere. Beyond the paper are eight draws
of data and starts, three starts of the solver, of which the lowest minimum counts, and lambdas down
to 1e-8 (chosen on draws 100 and 101).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import Field, field_validator

from ncscope.measurement.records import Measurement
from ncscope.report import panels
from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import Positives, Seed
from ncscope_lab.experiments.models.descents import choose_steps
from ncscope_lab.experiments.models.mufm import COLLAPSED, PFC_TITLES, measure_levels, minimise
from ncscope_lab.figures import collect_points, draw_band, draw_grid, draw_reference
from ncscope_lab.observations import Event, Observation, observations_of
from ncscope_lab.quantities import (
    Path,
    Quantity,
    Run,
    Runs,
    average,
    first,
    last,
    last_over_first,
    quantity,
    ratio,
    values,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.descent import gradient_descent
from ncscope_lab.surrogates.measurement import measure_solution
from ncscope_lab.surrogates.mufm import MUFM
from ncscope_lab.surrogates.problem import gaussian_classes
from ncscope_lab.surrogates.ufm import UFM

K, D, N = 5, 20, 100
WEIGHT_DECAY, TRANSPORT, RATE = 0.005, 0.001, 0.1
SCALINGS = ("plain", "printed")
STARTS = 3  # there are up to two minima


class PFCConfig(Config):
    """Settings of the experiment."""

    steps: int = Field(50_000, ge=1, description="Steps of gradient descent, figure 4.")
    every: int = Field(2_500, ge=1, description="Steps from one measurement to the next.")
    transports: Positives = Field(
        (0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.0175, 0.02),
        min_length=2,
        description="Prices of moving features to compare, lambda, figure 5.",
    )
    small_transports: Positives = Field(
        (1e-8, 1e-7, 1e-6, 1e-5, 5e-5, 1e-4, 2e-4, 3e-4, 5e-4),
        min_length=2,
        description="Prices below those of figure 5.",
    )
    seeds: int = Field(8, ge=1, description="Draws of the data and of the starts.")
    seed: Seed = Field(0, description="Seed of the first draw.")

    @field_validator("transports", "small_transports")
    @classmethod
    def _check_order(cls, prices: tuple[float, ...]) -> tuple[float, ...]:
        if any(later <= earlier for earlier, later in pairwise(prices)):
            msg = "ascending prices"
            raise ValueError(msg)
        return prices


PFC = ("pfc1", "pfc2", "pfc3")
DISTANCE = "data_distance"
# The paper states no number for any of these.
FACTOR = 1.1  # least factor by which a metric rises or falls
TENTH = 0.1  # largest ratio of a metric that is much closer to collapse, or close to it
SHRUNK = 0.01  # largest share of features whose descent has ended
ARRIVED = 1.01  # largest objective over the minimum at which a descent has arrived
ZERO = 1e-9  # smaller values of PFC1 are zero but for rounding


def list_claims(settings: PFCConfig) -> list[Claim]:
    """Return the paper's statements about figures 4 and 5, under each scaling."""
    # By the rule "each" the value of every draw must lie in the region: these are statements of
    # mathematics. Trends along lambda are judged by the 95 % interval of the geometric mean over
    # the draws.
    claim = partial(Claim, per=name_scaling, rule="each", over="draws")
    descent, minimum, sweep, small = (
        partial(claim, where=partial(select_parts, model))
        for model in ("UFM", "minima", "sweep", "small")
    )
    trend = partial(sweep, rule="mean", scale="ratio", source="PFC, section IV-B and figure 5")
    return [
        descent(
            text=f"gradient descent takes UFM to collapse (PFC1 and PFC2 below {COLLAPSED})",
            source="PFC, section IV-B and figure 4",
            quantity=larger_end,
            region=below(COLLAPSED),
        ),
        # As figure 4 can't follow from the printed scaling, whose time is too short.
        descent(
            text="gradient descent runs long enough to shrink UFM's features, where the "
            "classifier does not read them, to 1 % of their start",
            source="ours",
            quantity=last("unread_norm") / first("unread_norm"),
            region=below(SHRUNK),
        ),
        *(
            descent(
                text=f"gradient descent takes UFM much closer to collapse than MUFM: {key.upper()} "
                "is less than a tenth",
                source="PFC, section IV-B and figure 4",
                quantity=last(key) / of_part("MUFM", last(key, layer="H")),
                region=below(TENTH),
            )
            for key in PFC[:2]
        ),
        minimum(
            text=f"MUFM's minimum lies between collapse and the data: PFC1 is above {COLLAPSED} "
            "and below the data's, and 0 at UFM's minimum",
            source="PFC, theorem 4 and figure 4",
            quantity={
                "above collapse": of_model("MUFM", "pfc1"),
                "below the data": minimum(
                    text="below the data",
                    source="PFC, theorem 4",
                    quantity=of_model("MUFM", "pfc1") / of_model("data", "pfc1"),
                    region=below(1),
                ),
                "UFM": minimum(
                    text="UFM is collapsed",
                    source="PFC, section II-B",
                    quantity=of_model("UFM", "pfc1"),
                    region=below(ZERO),
                ),
            },
            region=above(COLLAPSED),
            unit="conditions",
        ),
        *(
            minimum(
                text=f"{key.upper()} of MUFM's minimum is {'lower' if falls else 'higher'} than "
                "that of the data",
                source="PFC, section IV-B and figure 4",
                quantity=of_model("MUFM", key) / of_model("data", key),
                region=below(1) if falls else above(1),
            )
            for key, falls in (("pfc2", True), ("pfc3", False))
        ),
        sweep(
            text="the minimum is more concentrated than the data and not collapsed, at every "
            f"lambda and in every draw: PFC1 is below the data's and above {COLLAPSED}",
            source="PFC, theorem 4",
            quantity=lambda run: min(1 / largest_share(run), least_pfc1(run) / COLLAPSED),
            region=above(1),
            rule="all",
            tell=lambda runs: (
                f"PFC1 is at most {max(map(largest_share, runs)):.3f} of the data's and at least "
                f"{min(map(least_pfc1, runs)):.3g}, in {len(runs)} draws"
            ),
        ),
        *(
            sweep(
                text="the smaller lambda, the closer the minimum to the simplex: "
                f"{key.upper()} rises from each lambda to the next",
                source="PFC, section IV-B and figure 5",
                quantity=count_falls(key),
                region=below(1),
            )
            for key in PFC[:2]
        ),
        *(
            trend(
                text=f"{text} by a factor of {FACTOR}",
                quantity=last_over_first(key),
                region=below(1 / FACTOR) if falls else above(FACTOR),
            )
            for key, text, falls in (
                ("pfc1", "as lambda grows, the minimum leaves the simplex: PFC1 rises", False),
                ("pfc2", "as lambda grows, the minimum leaves the simplex: PFC2 rises", False),
                (DISTANCE, "as lambda grows, the features approach the data", True),
                ("pfc3", "as lambda grows, the nearest-mean accuracy falls", True),
            )
        ),
        *(
            small(
                text=f"with lambda a fifty-thousandth of figure 5's least, {key.upper()} is less "
                "than a tenth of the data's",
                source="ours",
                quantity=first(key) / first(f"data_{key}"),
                region=below(TENTH),
            )
            for key in PFC[:2]
        ),
        *(
            small(
                text="the smaller lambda, the closer the minimum to the simplex, also below "
                f"figure 5's least: {key.upper()} rises from each lambda to the next",
                source="ours",
                quantity=count_falls(key),
                region=below(1),
            )
            for key in PFC[:2]
        ),
        descent(
            text="gradient descent on MUFM arrives at the minimum, to 1 %",
            source="ours",
            quantity=of_part("MUFM", last("objective")) / of_part("minima", minimal_objective),
            region=below(ARRIVED),
        ),
    ]


def draw_figures(settings: PFCConfig, runs: Runs) -> list[Drawing]:
    """Draw figures 4 and 5 under each scaling."""
    drawings = []
    for scaling in SCALINGS:
        said = "plain regularisers" if scaling == "plain" else "regularisers divided by K and Kn"
        rows = [
            row
            for part in ("small", "sweep")
            for run in select_parts(part, runs)
            if name_scaling(run) == scaling.capitalize()
            for row in run.rows
        ]
        drawings += [
            Drawing(
                f"fig-4-{scaling}",
                f"PFC figure 4, {said}. (a) Features of MUFM along gradient descent, beside the "
                "data and the minimum by the fast solver. (b) Features of UFM, whose minimum is "
                "collapsed. The first draw.",
                draw_descents(runs.find(f"UFM, {scaling}, seed {settings.seed}")),
            ),
            Drawing(
                f"fig-5-{scaling}",
                f"PFC figure 5, {said}, and smaller prices (grey). Minima of MUFM against the "
                f"price of moving features, the mean over {settings.seeds} draws of the data and "
                "their range. PFC1, PFC2 and the error of the nearest class mean, 1 - PFC3, are "
                "divided by those of the same draw's data: 1 is the data, 0 the simplex. The last "
                f"panel is the distance of the features from the data.{DIP[scaling]}",
                draw_grid(
                    [
                        [partial(draw_prices, settings, rows, key) for key in keys]
                        for keys in (PFC[:2], (PFC[2], DISTANCE))
                    ],
                    cell=(3.7, 2.5),
                    legend="below",
                ),
            ),
        ]
    return drawings


DATA = "#b3261e"
DIP = {
    "plain": " Where the metrics fall although the price rises, from about 0.04 to 0.1, the "
    "classifier shrinks, and the features move farther to be read.",
    "printed": "",
}


def draw_descents(run: Run) -> Figure:
    """Draw PFC1-3 along the descents on MUFM, above those on UFM, of a draw's run of UFM."""
    data, tied, _ = find_part("minima", run).rows
    constrained, free = find_part("MUFM", run).path(layer="H"), run.rows

    def draw_tied(key: str, axes: Axes) -> None:
        draw_steps(axes, constrained, key)
        axes.axhline(float(data[key]), color=DATA, linewidth=1.2, linestyle="-.", label="data")
        draw_reference(axes, float(tied[key]), "minimum", panels.DASHED)
        axes.set_title(f"(a) MUFM: {key.upper()}")

    def draw_free(key: str, axes: Axes) -> None:
        draw_steps(axes, free, key)
        axes.set_yscale("linear" if key == "pfc3" else "log")
        axes.set_title(f"(b) UFM: {key.upper()}")

    rows = [[partial(draw, key) for key in PFC] for draw in (draw_tied, draw_free)]
    return draw_grid(rows, cell=(2.5, 2.2), share_x=True, legend="below")


def draw_steps(axes: Axes, path: Path, key: str) -> None:
    """Draw a metric against the step of a descent."""
    steps = [row.step / 1000 for row in path]
    axes.plot(steps, values(path, key), "o-", color=panels.ACCENT, markersize=2.5, label="descent")
    axes.set_ylabel(PFC_TITLES[key].split(": ")[1])
    axes.set_xlabel("thousand steps")


def draw_prices(settings: PFCConfig, rows: Path, key: str, axes: Axes) -> None:
    """Draw a metric of the minima against the price of moving features, as a share of the data's.

    The accuracy is drawn as an error, so that all shares are 1 at the data and 0 at the simplex.
    """
    titles = {"pfc1": "PFC1", "pfc2": "PFC2", "pfc3": "1 - PFC3"}
    axes.set_title(f"{titles[key]} over the data's" if key in titles else "Distance from the data")
    points = collect_points(rows, "ratio", key)
    if key in titles:
        data = collect_points(rows, "ratio", f"data_{key}")
        top = 1 if key == "pfc3" else 0  # the accuracy at the simplex
        points = {
            price: [
                ratio(top - one, top - own) for one, own in zip(found, data[price], strict=True)
            ]
            for price, found in points.items()
        }
        axes.axhline(1, color=DATA, linewidth=1.2, linestyle=panels.DASHED, label="data")
        draw_reference(axes, 0, "simplex", "-.")
    draw_band(axes, points, "minimum")
    axes.set_xscale("log")
    least = min(settings.transports) / WEIGHT_DECAY
    axes.axvspan(min(points, default=least), least, color=panels.GRID, linewidth=0, zorder=0)
    axes.set_xlabel(r"$\lambda/\lambda_W$")


def name_scaling(run: Run) -> str:
    """Name the scaling of a part's regularisers."""
    return run.name.split(", ")[1].capitalize()


def select_parts(model: str, runs: Runs) -> Runs:
    """Select the parts with the descents on a model, with minima or with a sweep."""
    return Runs(run for run in runs if run.name.startswith(f"{model}, "))


def find_part(model: str, run: Run) -> Run:
    """Return the part of another model in the draw and scaling of a run."""
    return run.experiment.find(f"{model}, {run.name.split(', ', 1)[1]}")


def of_part(model: str, number: Quantity) -> Quantity:
    """Return a quantity of the part of another model in the same draw and scaling."""
    return number.of(partial(find_part, model), f"{number.name} of {model}")


def of_model(model: str, key: str) -> Quantity:
    """Return the quantity of a metric of the data, or at the minimum of a model."""

    def compute(run: Run) -> float:
        return average(values([row for row in run.rows if row["model"] == model], key))

    return Quantity(f"{key} of {model}", compute)


minimal_objective = of_model("MUFM", "objective")


@quantity("larger of PFC1 and PFC2 at the end")
def larger_end(run: Run) -> float:
    """Return the larger of PFC1 and PFC2 at the end of a descent."""
    return max(last(key)(run) for key in PFC[:2])


@quantity("largest PFC1 over the data's")
def largest_share(run: Run) -> float:
    """Return the largest of the minima's PFC1 as shares of the data's."""
    pairs = zip(values(run.rows, "pfc1"), values(run.rows, "data_pfc1"), strict=True)
    return max((ratio(*pair) for pair in pairs), default=math.nan)


@quantity("least PFC1")
def least_pfc1(run: Run) -> float:
    """Return the least PFC1 of the minima."""
    return min(values(run.rows, "pfc1"), default=math.nan)


def count_falls(key: str) -> Quantity:
    """Return the quantity of the number of falls of a metric from one lambda to the next."""

    def compute(run: Run) -> float:
        course = values(run.rows, key)
        known = len(course) > 1 and all(map(math.isfinite, course))
        return sum(b <= a for a, b in pairwise(course)) if known else math.nan

    return Quantity(f"falls of {key}", compute)


def list_parts(settings: PFCConfig) -> list[Part]:
    """Return figure 4's descents, their minima, and figure 5's sweep, by scaling and draw."""
    record = choose_steps(settings.steps, settings.every)
    parts: list[tuple[str, int, Callable[[str, int, object], Iterator[Event]]]] = [
        ("MUFM", len(record), partial(descend, record, "MUFM")),
        ("UFM", len(record), partial(descend, record, "UFM")),
        ("minima", 3, find_minima),
        ("sweep", len(settings.transports), partial(sweep_prices, settings.transports)),
        ("small", len(settings.small_transports), partial(sweep_prices, settings.small_transports)),
    ]
    return [
        Part(f"{name}, {scaling}, seed {seed}", count, partial(run, scaling, seed))
        for scaling in SCALINGS
        for seed in range(settings.seed, settings.seed + settings.seeds)
        for name, count, run in parts
    ]


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
    record: Sequence[int], model: str, scaling: str, seed: int, resources: object
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
    for step, (weight, features) in gradient_descent(free, begin, RATE, record):
        measurement = measure_solution(free, (weight, features), step, ("pfc",))
        read = torch.linalg.qr(weight.mT).Q
        unread = float((features - read @ (read.mT @ features)).norm())
        yield replace(measurement, values={**measurement.values, "unread_norm": unread})


def find_minimum(model: MUFM, generator: torch.Generator) -> Measurement:
    """Measure the data and the features at the lowest minimum from several starts."""
    found = [minimise(model, generator) for _ in range(STARTS)]
    point, result = min(found, key=lambda each: each[1].objective)
    return measure_levels(model, point, result.evaluations)


def find_minima(scaling: str, seed: int, resources: object) -> Iterator[Observation]:
    """Yield the data and MUFM's features at its minimum, and UFM's at its minimum."""
    tied, generator = make_model(scaling, seed)
    data, features = observations_of(find_minimum(tied, generator))
    free = leave_data(tied)
    collapsed = observations_of(measure_solution(free, free.minimiser().point, 0, ("pfc",)))[0]
    yield data.with_values({"model": "data"})
    yield features.with_values({"model": "MUFM"})
    yield collapsed.with_values({"model": "UFM"})


def sweep_prices(
    transports: Sequence[float], scaling: str, seed: int, resources: object
) -> Iterator[Observation]:
    """Yield MUFM's features at the minimum for each price of moving them."""
    for transport in transports:
        data, features = observations_of(find_minimum(*make_model(scaling, seed, transport)))
        data_values = {f"data_{key}": data[key] for key in PFC}
        prices = {"transport": transport, "ratio": transport / WEIGHT_DECAY}
        yield features.with_values({**data_values, **prices})


EXPERIMENT = Experiment(
    id="pfc/mufm",
    title="Features between the data and the simplex",
    question=(
        "If moving features away from the data costs energy, they do not collapse: the minimum "
        "lies between the data and a simplex, and the transport cost determines its position."
    ),
    source="PFC IV-B, figures 4-5",
    scales={"paper": PFCConfig(), "small": PFCConfig()},
    cost={"paper": "2 minutes on one core", "small": "2 minutes on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=("objective", "gradient_norm", *PFC, DISTANCE),
    unit="step",
)
