"""The central path: two flows, a discrete algorithm, and the unrestricted flow.

Source: MSE section 3 and appendix D, which have no figure and state no sizes; the sizes are ours.
Theorem 3 with its corollaries, our errata to them, and assumption A1 are tested. The law that the
paper prints is that of the projected flow; its algorithm comes to the renormalised flow, whose law
is ours. There is one start, so a claim holds if its value lies in the region.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import torch
from matplotlib.axes import Axes
from pydantic import Field, model_validator
from torch import Tensor

from ncscope.measurement.samples import measure_samples
from ncscope.metrics.layerwise import order_breaks
from ncscope.report.labels import find_label
from ncscope.report.panels import ACCENT, DASHED, SECOND, SERIES, SOFT
from ncscope_lab.claims import Claim, Region, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import Seed
from ncscope_lab.figures import draw_grid, draw_reference, logarithmic_values
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import (
    Quantity,
    Run,
    Runs,
    decades,
    ends,
    first,
    last,
    quantity,
    ratio,
    values,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.resources import Resources
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.dynamics.central_path import least_squares
from ncscope_lab.surrogates.dynamics.flows import (
    Velocity,
    descend_and_renormalise,
    flow,
    velocity_by_projection,
    velocity_by_renormalisation,
)
from ncscope_lab.surrogates.dynamics.laws import Law, law_of_projection, law_of_renormalisation
from ncscope_lab.surrogates.dynamics.snr import (
    Alignment,
    align,
    random_features,
    snr_matrix,
    split,
    spread_over_samples,
)
from ncscope_lab.surrogates.dynamics.unrestricted import State, distance, flow_unrestricted

GROUPS = ("nc1", "nc2", "nc3", "nc4", "mse")
COLLAPSE = ("nc1", "nc2_etf", "nc3_self_duality", "nc4_disagreement")
UNRESTRICTED = ("on the path", "off the path")
PER_RUN = 8
ROUNDING = 1e-12
"""A metric of collapse below this value counts as zero, at the start or in the end."""
REMAINDER = 0.01
"""Share of its first value below which a metric of collapse must end."""
FLOWS = (("projected", ACCENT), ("renormalised", SECOND))
INK = "#1d2327"


class CentralPath(Config):
    """Settings. The unit of time is n K^2, the time in which small signals grow by a factor e."""

    num_classes: int = Field(4, ge=2, le=20, description="Classes K.")
    dim: int = Field(8, ge=1, le=60, description="Dimension d of the features, at least K - 1.")
    per_class: int = Field(10, ge=2, le=200, description="Samples n in each class.")
    separation: float = Field(
        0.3,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="Root mean square of the singular values at the start.",
    )
    first: float = Field(
        0.01, gt=0, le=1, allow_inf_nan=False, description="First time measured, in units of n K^2."
    )
    last: float = Field(
        1e6, ge=10, le=1e8, allow_inf_nan=False, description="Last time, in units of n K^2."
    )
    points: int = Field(33, ge=9, le=400, description="Measurements between these times.")
    descent_time: float = Field(
        8.0,
        gt=0,
        le=100,
        allow_inf_nan=False,
        description="Time of the discrete algorithm, in units of n K^2.",
    )
    descent_steps: tuple[int, ...] = Field(
        (16, 64, 256, 1024), min_length=2, description="Numbers of steps for that time, ascending."
    )
    unrestricted_time: float = Field(
        25.0,
        gt=0,
        le=40,
        allow_inf_nan=False,
        description="Time of the unrestricted flow, in units of n K.",
    )
    seed: Seed = Field(0, description="Seed of the features at the start.")

    @model_validator(mode="after")
    def _fits(self) -> "CentralPath":
        if self.dim < self.num_classes - 1:
            msg = "dim of at least num_classes - 1, or there is no room for a simplex"
            raise ValueError(msg)
        if self.dim > self.num_classes * (self.per_class - 1):
            msg = "per_class of at least dim / num_classes + 1, for a covariance of full rank"
            raise ValueError(msg)
        steps = self.descent_steps
        if sorted(set(steps)) != list(steps) or any(m < 1 or m % PER_RUN for m in steps):
            msg = f"descent_steps ascending, each a multiple of {PER_RUN}"
            raise ValueError(msg)
        return self

    @property
    def unit(self) -> float:
        """The unit of time, n K^2."""
        return float(self.per_class * self.num_classes**2)

    @property
    def times(self) -> list[float]:
        """Times at which the flows are measured; 0 is the start."""
        low, high = math.log10(self.first), math.log10(self.last)
        spaced = torch.logspace(low, high, self.points - 1, dtype=torch.float64)
        return [0.0, *(self.unit * spaced).tolist()]

    @property
    def laws(self) -> tuple[Law, Law]:
        """The laws of both flows."""
        sizes = self.num_classes, self.per_class
        return law_of_projection(*sizes), law_of_renormalisation(*sizes)

    def start(self) -> Tensor:
        """Renormalised features."""
        generator = torch.Generator().manual_seed(self.seed)
        sizes = self.num_classes, self.dim, self.per_class
        return random_features(*sizes, self.separation, generator)


EXPONENTS: Mapping[str, float] = {"projected": 1 / 4, "renormalised": 1 / 2}
"""Exponents of time with which the singular values grow, by law."""


def list_claims(settings: CentralPath) -> list[Claim]:
    """Return the claims on each flow, on the discrete algorithm, and on the unrestricted flow."""
    flows = [claim for law in settings.laws for claim in list_flow_claims(law.name)]
    if settings.num_classes == 2:  # one singular value, and nothing to equalise
        flows = [claim for claim in flows if claim.quantity is not last_excess]
    shortest = f"descent in {settings.descent_steps[-1]} steps"
    return [
        *flows,
        Claim(
            text="The paper's algorithm, gradient steps that are each renormalised, follows the "
            "printed law in the end, with the smallest steps",
            source="MSE, proposition 2",
            quantity=last("projected_deviation"),
            region=below(0.01),
            rule="all",
            where=shortest,
        ),
        Claim(
            text="Renormalised flow, the limit of the paper's algorithm: singular values grow like "
            "t^(1/4), as in the printed law",
            source="MSE, corollary 1",
            quantity=deviation_of_exponent("projected"),
            region=below(0.01),
            rule="all",
            where="renormalised",
        ),
        Claim(
            text="As the step size shrinks, renormalised gradient steps converge to the "
            "renormalised law, not to the projected law",
            source="ours",
            quantity=order_of_descent,
            region=Region(0.8, 1.2),
            rule="all",
            where=shortest,
        ),
        *(
            Claim(
                text=f"Unrestricted, {start}: the loss off the central path is negligible",
                source="ours",  # MSE figure 2 shows trained networks
                quantity=largest_share_off_path,
                region=below(0.01),
                rule="all",
                where=f"unrestricted, {start}",
            )
            for start in UNRESTRICTED
        ),
    ]


def list_flow_claims(law: str) -> list[Claim]:
    """Return the claims on one of the two flows; the law that the paper prints is the projected."""
    claim = partial(Claim, rule="all", where=law)
    title = f"{law.capitalize()} flow"
    is_printed = law == "projected"
    return [
        claim(
            text=f"{title}: simulated features follow the closed form",
            source="ours",
            quantity=Quantity(
                "largest relative deviation of a singular value from the closed form",
                lambda run: max(values(run.rows, "law_deviation")),
            ),
            region=below(1e-6),
        ),
        claim(
            text=f"{title}: singular values grow like t^(1/{1 / EXPONENTS[law]:.0f})",
            source="MSE, corollary 1" if is_printed else "ours",
            quantity=deviation_of_exponent(law),
            region=below(0.01),
        ),
        claim(
            text=f"{title}: the ratio of largest to least singular value falls to 1",
            source="MSE, corollary 1",
            quantity=last_excess,
            region=below(0.01),
        ),
        claim(
            text=f"{title}: singular vectors and deviations of samples from their class means do "
            "not change",
            source="MSE, lemma 6",
            quantity=Quantity(
                "largest turn of class means or move of samples in their class",
                lambda run: max(values(run.rows, "turned") + values(run.rows, "within_moved")),
            ),
            region=below(1e-6),
        ),
        claim(
            text=f"{title}: features divided by the largest singular value converge to U V^T for "
            "every sample",
            source="MSE, corollary 2",
            quantity=last_distance / first("limit_distance"),
            region=below(0.1),
        ),
        claim(
            text=f"{title}: NC1 to NC4 emerge: each metric ends below {100 * REMAINDER:g} % of its "
            "first value, and none rises over the later half of the measurements",
            source="MSE, theorem 3",
            quantity=largest_remainder,
            region=below(REMAINDER),
        ),
    ]


def deviation_of_exponent(law: str) -> Quantity:
    """Return the quantity of the deviation from a law's exponent of the growth along a flow."""

    def compute(run: Run) -> float:
        keys = [key for key in run.rows[-1].values if key.startswith("omega_")]
        return max(abs(fit_exponent(run, key) / EXPONENTS[law] - 1) for key in keys)

    name = "largest relative deviation of an exponent, over the last decade of time"
    return Quantity(name, compute)


def fit_exponent(run: Run, key: str) -> float:
    """Return the exponent of time with which a number grows over the last decade of time."""
    *_, end = run.rows
    early = [row for row in run.rows[1:] if float(row["time"]) <= 0.1001 * float(end["time"])]
    span, grown = (decades(float(end[each]), float(early[-1][each])) for each in ("time", key))
    return grown / span


def is_falling(course: Sequence[float]) -> bool:
    """Return whether values fall at every step."""
    return all(after < before for before, after in pairwise(course))


def last_of_falling(key: str, name: str, less: float = 0.0) -> Quantity:
    """Return the quantity of a number's last value less a constant; infinity unless it falls."""

    def compute(run: Run) -> float:
        course = values(run.rows, key)
        return course[-1] - less if is_falling(course) else math.inf

    return Quantity(name, compute, [first(key)])


last_excess = last_of_falling("ratio", "largest singular value over the least, less 1", less=1.0)
last_distance = last_of_falling("limit_distance", "distance from the limit at the end")


@quantity(
    "largest share that remains", parts=[end(key) for key in COLLAPSE for end in (first, last)]
)
def largest_remainder(run: Run) -> float:
    """Return the largest share of a metric of collapse that remains at the end.

    Infinity if one rises over the later half of the measurements.
    """
    late = run.rows[len(run.rows) // 2 :]
    courses = [[max(value, ROUNDING) for value in values(late, key)] for key in COLLAPSE]
    if any(order_breaks(course, falling=True) for course in courses):
        return math.inf
    pairs = [ends(run.rows, key) for key in COLLAPSE]
    return max(ratio(end, max(start, 100 * ROUNDING)) for start, end in pairs)


@quantity(
    "order in the step size",
    parts=[last("renormalised_deviation"), last("projected_deviation")],
)
def order_of_descent(run: Run) -> float:
    """Return the order in the step size of the deviation from the renormalised law.

    0 unless smaller steps end nearer to this law, and far from the projected law.
    """
    descents = list_descents(run.experiment)
    gap, rate = last("renormalised_deviation"), last("rate")
    gaps = [gap(each) for each in descents]
    if not is_falling(gaps) or last("projected_deviation")(run) <= 10 * gaps[-1]:
        return 0.0
    *_, few, many = descents
    return ratio(decades(gap(few), gap(many)), decades(rate(few), rate(many)))


@quantity("largest share of the loss off the central path, in the last decade of time")
def largest_share_off_path(run: Run) -> float:
    """Return the largest share from a tenth of the time on."""
    late = [row for row in run.rows if float(row["time"]) >= last("time")(run) / 10]
    return max(map(ratio, values(late, "mse_off_path"), values(late, "mse_loss")))


def draw_figures(settings: CentralPath, runs: Runs) -> list[Drawing]:
    """Draw the figures; all numbers come from the rows."""
    draw_wide = partial(draw_grid, cell=(3.75, 3.0))
    return [
        Drawing(
            "growth",
            "Singular values of the signal-to-noise matrix: simulated features (dots) and "
            "closed forms (lines). Dashed: the common asymptote.",
            draw_wide([[partial(draw_growth, runs, law) for law in settings.laws]]),
        ),
        Drawing(
            "limits",
            "The limits of MSE corollaries 1 and 2. Left: singular values become equal. Right: "
            "features over the largest singular value tend to the simplex of the first "
            "singular vectors.",
            draw_wide([[partial(draw_ratio, runs), partial(draw_limit, runs)]]),
        ),
        Drawing(
            "collapse",
            "NC1 to NC4 along both flows; time is in units of n K^2. Dotted: 1 % of the first "
            "value, below which the claims ask each to end. NC3 begins near 0 and rises: while "
            "omega^2 is far below K the least-squares classifier is parallel to the class means. "
            "It departs from them most where omega^2 is about K, until the omegas become equal.",
            draw_grid(
                [
                    [partial(draw_collapse, runs, settings.unit, key) for key in keys]
                    for keys in (COLLAPSE[:2], COLLAPSE[2:])
                ],
                cell=(3.75, 2.7),
                legend="first",
            ),
        ),
        Drawing(
            "descent",
            "Gradient steps, each followed by renormalisation. Left: the largest singular "
            "value and both laws. Right: largest relative deviation at the last time; the "
            "algorithm converges to the renormalised law, not to the projected law.",
            draw_wide(
                [[partial(draw_descent, runs, settings), partial(draw_deviation, runs, settings)]]
            ),
        ),
        Drawing(
            "unrestricted",
            "Gradient flow of classifier and features together, from the least-squares "
            "classifier and from a random one: parts of the MSE loss over time in units of "
            "n K. The part off the central path is small.",
            draw_wide(
                [[partial(draw_unrestricted, runs, settings, start) for start in UNRESTRICTED]],
                share_y=True,
                legend="below",
            ),
        ),
    ]


def draw_growth(runs: Runs, law: Law, axes: Axes) -> None:
    """Draw the singular values along a flow, with a guide of the slope of the law."""
    path = runs.find(law.name).rows[1:]
    times = values(path, "time")
    indices = [key.removeprefix("closed_") for key in path[0].values if key.startswith("closed_")]
    for index, name in enumerate(indices):
        colour, label = SERIES[index % len(SERIES)], rf"$\omega_{{{name}}}$"
        axes.plot(times, values(path, f"closed_{name}"), color=colour, linewidth=1)
        omegas = values(path, f"omega_{name}")
        axes.plot(times, omegas, "o", color=colour, markersize=2.6, label=label)
    final, least = float(path[-1]["closed_1"]), float(path[0]["omega_1"])
    guide = [(time, final * (time / times[-1]) ** law.exponent) for time in times]
    slope = f"slope 1/{1 / law.exponent:.0f}"
    shown = [(time, value) for time, value in guide if value > least]
    axes.plot(*zip(*shown, strict=True), color=SOFT, linestyle=DASHED, linewidth=0.9, label=slope)
    finish_axes(axes, "time t", f"{law.name.capitalize()} flow")
    if len(indices) <= 5:
        axes.legend()


def draw_flows(axes: Axes, runs: Runs, key: str, unit: float = 1.0, less: float = 0.0) -> None:
    """Draw a number along both flows, less a constant."""
    for name, colour in FLOWS:
        path = runs.find(name).rows[1:]
        times = [time / unit for time in values(path, "time")]
        numbers = [number - less for number in values(path, key)]
        axes.plot(times, numbers, "o-", color=colour, markersize=2.6, label=name)


def draw_ratio(runs: Runs, axes: Axes) -> None:
    """Draw how the singular values become equal."""
    draw_flows(axes, runs, "ratio", less=1.0)
    finish_axes(axes, "time t", r"$\omega_{\max}/\omega_{\min}-1$")
    axes.legend()


def draw_limit(runs: Runs, axes: Axes) -> None:
    """Draw the distance of the features from their limit."""
    draw_flows(axes, runs, "limit_distance")
    finish_axes(axes, "time t", r"Distance of $X/\omega_{\max}$ from its limit")


def draw_collapse(runs: Runs, unit: float, key: str, axes: Axes) -> None:
    """Draw a metric of collapse along both flows, and the share that the claims let remain."""
    draw_flows(axes, runs, key, unit)
    start = first(key)(runs.find("projected"))
    draw_reference(axes, REMAINDER * start, f"{REMAINDER:.0%} of the first value")
    is_share = key == "nc4_disagreement"
    finish_axes(axes, "time in units of $nK^2$", describe_fall(runs, key), both=not is_share)
    axes.set_ylabel(find_label(key).title.removeprefix("NC1: "))


def describe_fall(runs: Runs, key: str) -> str:
    """Say how a metric of collapse ends: at 0, or, if it has fallen, like powers of time."""
    name = key[:3].upper()
    flows = [runs.find(flow) for flow, _ in FLOWS]
    if all(last(key)(run) == 0 for run in flows):
        return f"{name} ends at 0"
    exponents = [fit_exponent(run, key) for run in flows]
    if not all(exponent < 0 for exponent in exponents):
        return name
    powers = dict.fromkeys(f"$t^{{{exponent:.2f}}}$" for exponent in exponents)
    return f"{name} falls like {' and '.join(powers)} in the end"


def draw_descent(runs: Runs, settings: CentralPath, axes: Axes) -> None:
    """Draw the largest singular value of the discrete algorithm at each number of steps."""
    paths = [run.rows for run in list_descents(runs)]
    start, *_, end = paths[-1]
    omegas = [start[f"omega_{index}"] for index in range(1, settings.num_classes)]
    line = torch.linspace(0, float(end["time"]), 201, dtype=torch.float64)
    styles = ("-", DASHED)
    for law, (_, colour), style in zip(settings.laws, FLOWS, styles, strict=True):
        law_values = law.singular_values(torch.tensor(omegas, dtype=torch.float64), line)[:, 0]
        at = (line / settings.unit).tolist()
        axes.plot(at, law_values.tolist(), color=colour, ls=style, label=f"{law.name} law")
    for index, (path, steps) in enumerate(zip(paths, settings.descent_steps, strict=True)):
        shade = 0.25 + 0.75 * index / max(1, len(paths) - 1)
        times = [time / settings.unit for time in values(path, "time")]
        marker, label = "osD^v"[index % 5], f"{steps:,} steps"
        own = values(path, "omega_1")
        axes.plot(times, own, marker, color=INK, alpha=shade, markersize=3.5, label=label)
    axes.set_xlabel("time in units of $nK^2$")
    axes.set_title(r"$\omega_1$ under renormalised steps")
    axes.legend()


def draw_deviation(runs: Runs, settings: CentralPath, axes: Axes) -> None:
    """Draw the last deviation from both laws against the step size."""
    descents = list_descents(runs)
    rates = [last("rate")(run) / settings.unit for run in descents]
    for (name, colour), style in zip(FLOWS, ("o-", "s--"), strict=True):
        gaps = [last(f"{name}_deviation")(run) for run in descents]
        axes.plot(rates, gaps, style, color=colour, markersize=4, label=f"from the {name} law")
    finish_axes(axes, "step size in units of $nK^2$", "Relative deviation")
    axes.legend()


def draw_unrestricted(runs: Runs, settings: CentralPath, start: str, axes: Axes) -> None:
    """Draw the parts of the loss along the unrestricted flow."""
    path = runs.find(f"unrestricted, {start}").rows[1:]
    unit = settings.num_classes * settings.per_class
    times = [time / unit for time in values(path, "time")]
    for key, colour, style, label in (
        ("mse_loss", INK, "-", r"$\mathcal{L}$"),
        ("mse_nc1", ACCENT, "-", r"$\mathcal{L}_{NC1}$"),
        ("mse_nc23", SERIES[2], "-", r"$\mathcal{L}_{NC2/3}$"),
        ("mse_off_path", SECOND, "-", r"$\mathcal{L}_{LS}^\perp$"),
        ("classifier_distance", SOFT, DASHED, r"$\|W-W_{LS}\|/\|W_{LS}\|$"),
    ):
        numbers = [number if number > 0 else math.nan for number in values(path, key)]
        axes.plot(times, numbers, color=colour, linestyle=style, label=label)
    finish_axes(axes, "time in units of $nK$", f"Started {start}")


def finish_axes(axes: Axes, across: str, title: str, both: bool = True) -> None:
    """Make the axes logarithmic, the vertical one unless told otherwise, and name them."""
    axes.set_xscale("log")
    if both:
        logarithmic_values(axes)
    axes.set_xlabel(across)
    axes.set_title(title)


def list_descents(runs: Runs) -> list[Run]:
    """Return the runs of the discrete algorithm, from few steps to many."""
    return [run for run in runs if run.name.startswith("descent in")]


def list_parts(settings: CentralPath) -> list[Part]:
    """Return both flows, the discrete algorithm at each step size, and two unrestricted flows."""
    flows = zip(settings.laws, (velocity_by_projection, velocity_by_renormalisation), strict=True)
    return [
        *(
            Part(law.name, settings.points, partial(flow_rows, settings, law, velocity))
            for law, velocity in flows
        ),
        *(
            Part(f"descent in {steps} steps", PER_RUN + 1, partial(descent_rows, settings, steps))
            for steps in settings.descent_steps
        ),
        *(
            Part(f"unrestricted, {start}", settings.points, partial(free_rows, settings, start))
            for start in UNRESTRICTED
        ),
    ]


def flow_rows(
    settings: CentralPath, law: Law, velocity: Velocity, resources: Resources
) -> Iterator[Observation]:
    """Measure a flow, beside the closed form of its law."""
    start, k, times = settings.start(), settings.num_classes, settings.times
    before = align(snr_matrix(start, k))
    closed = law.singular_values(before.values, torch.tensor(times, dtype=torch.float64))
    for step, (time, here) in enumerate(flow(velocity, start, k, times)):
        now = align(snr_matrix(here, k))
        yield observe(
            step,
            time,
            number_values("omega", now.values)
            | number_values("closed", closed[step])
            | {"law_deviation": float((now.values / closed[step] - 1).abs().max())}
            | measure_invariants(start, here, before, k)
            | measure_collapse(here, *least_squares(here, k)),
        )


def measure_invariants(start: Tensor, here: Tensor, before: Alignment, k: int) -> dict[str, float]:
    """Measure what the flow conserves, and the distance from its limit."""
    was, now = split(start, k), split(here, k)
    along = (before.left.mT @ now.classes @ before.right).diag()
    limit = spread_over_samples(before.left @ before.right.mT, here.shape[1] // k)
    omegas = align(now.classes).values
    return {
        "ratio": float(omegas[0] / omegas[-1]),
        "turned": float(
            (now.classes - before.left * along @ before.right.mT).norm() / now.classes.norm()
        ),
        "within_moved": float((now.within - was.within).norm() / was.within.norm()),
        "limit_distance": float((here / omegas[0] - limit).norm() / limit.norm()),
    }


def descent_rows(settings: CentralPath, steps: int, resources: Resources) -> Iterator[Observation]:
    """Measure the discrete algorithm, beside both laws."""
    start, k = settings.start(), settings.num_classes
    before = align(snr_matrix(start, k)).values
    rate = settings.descent_time * settings.unit / steps
    path = [start, *descend_and_renormalise(start, k, rate, steps)]
    for step in range(0, steps + 1, steps // PER_RUN):
        now = align(snr_matrix(path[step], k)).values
        measured = {"rate": rate} | number_values("omega", now)
        for law in settings.laws:
            at = torch.tensor([rate * step], dtype=torch.float64)
            closed = law.singular_values(before, at)[0]
            measured |= number_values(law.name, closed)
            measured[f"{law.name}_deviation"] = float((now / closed - 1).abs().max())
        yield observe(step, rate * step, measured)


def free_rows(settings: CentralPath, start: str, resources: Resources) -> Iterator[Observation]:
    """Measure the unrestricted flow, from the least-squares classifier or a random one."""
    features, k = settings.start(), settings.num_classes
    weight, bias = least_squares(features, k)
    if start == "off the path":
        generator = torch.Generator().manual_seed(settings.seed)
        weight = torch.randn(weight.shape, dtype=torch.float64, generator=generator)
        weight, bias = weight / settings.dim**0.5, torch.zeros_like(bias)
    unit = settings.num_classes * settings.per_class
    last = math.log10(settings.unrestricted_time)
    spaced = torch.logspace(last - 4, last, settings.points - 1, dtype=torch.float64)
    times = [0.0, *(unit * spaced).tolist()]
    for step, (time, here) in enumerate(flow_unrestricted(State(weight, bias, features), times)):
        measured = measure_collapse(here.features, here.weight, here.bias)
        measured["classifier_distance"] = distance(here).classifier
        yield observe(step, time, measured)


def observe(step: int, time: float, values: Mapping[str, float]) -> Observation:
    """Return an observation of the features."""
    return Observation(step, step, layer="features", values={"time": time, **values})


def number_values(name: str, values: Tensor) -> dict[str, float]:
    """Return values with numbers from 1 on in their keys."""
    return {f"{name}_{index}": float(value) for index, value in enumerate(values, 1)}


def measure_collapse(features: Tensor, weight: Tensor, bias: Tensor) -> dict[str, float]:
    """Measure NC1 to NC4 and the parts of the loss."""
    k = len(weight)
    labels = torch.arange(k).repeat_interleave(features.shape[1] // k)
    record, _ = measure_samples("features", features.mT, labels, k, weight, bias, groups=GROUPS)
    return dict(record.metrics)


EXPERIMENT = Experiment(
    id="central-path",
    title="The central path",
    question=(
        "Features follow the gradient flow of the MSE loss under their least-squares classifier, "
        "in coordinates in which their within-class covariance is the identity. Their "
        "signal-to-noise matrix keeps its singular vectors, and its singular values become equal."
    ),
    source="MSE section 3 and appendix D",
    scales={"small": CentralPath()},
    cost={"small": "5 seconds on one core"},
    parts=list_parts,
    claims=list_claims,
    figures=draw_figures,
    columns=("time", "ratio", "law_deviation", "limit_distance", "nc1", "nc2_etf", "mse_loss"),
    unit="step",
)
