"""The central path as a study: two flows, a discrete algorithm, and the unrestricted flow."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from ncscope.lab.evidence.judging import decided
from ncscope.lab.experiments.models.bounds import Seed
from ncscope.lab.observations import Observation
from ncscope.lab.report.rows import number, part_of
from ncscope.lab.runs.recipe import Part, Study
from ncscope.lab.simulations.central_path_figures import drawings
from ncscope.lab.surrogates.dynamics.central_path import least_squares
from ncscope.lab.surrogates.dynamics.flows import (
    Velocity,
    flow,
    projected_velocity,
    renormalised_descent,
    renormalised_velocity,
)
from ncscope.lab.surrogates.dynamics.laws import Law, projected_law, renormalised_law
from ncscope.lab.surrogates.dynamics.snr import (
    Aligned,
    aligned,
    random_features,
    snr_matrix,
    split,
    spread_over_samples,
)
from ncscope.lab.surrogates.dynamics.unrestricted import State, distance, unrestricted_flow
from ncscope.measurement.samples import measure_samples
from ncscope.metrics.layerwise import order_breaks
from ncscope.report.claims import Claim

GROUPS = ("nc1", "nc2", "nc3", "nc4", "mse")
COLLAPSE = ("nc1", "nc2_etf", "nc3_self_duality", "nc4_disagreement")
PER_RUN = 8
ROUNDING = 1e-12
"""A metric of collapse below this value counts as zero, at the start or in the end."""


class CentralPathConfig(BaseModel):
    """Settings. The unit of time is n K^2, the time in which small signals grow by a factor e."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    def _fits(self) -> "CentralPathConfig":
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

    def start(self) -> Tensor:
        """Renormalised features."""
        generator = torch.Generator().manual_seed(self.seed)
        sizes = self.num_classes, self.dim, self.per_class
        return random_features(*sizes, self.separation, generator)


def _parts(config: CentralPathConfig) -> list[Part]:
    """Return both flows, the discrete algorithm at each step size, and two unrestricted flows."""
    sizes = config.num_classes, config.per_class
    return [
        _flow_part(config, projected_law(*sizes), projected_velocity),
        _flow_part(config, renormalised_law(*sizes), renormalised_velocity),
        *(_descent_part(config, steps) for steps in config.descent_steps),
        _unrestricted_part(config, "unrestricted, on the path", on_path=True),
        _unrestricted_part(config, "unrestricted, off the path", on_path=False),
    ]


def _flow_part(config: CentralPathConfig, law: Law, velocity: Velocity) -> Part:
    return Part(law.name, config.points, lambda _: _flow_rows(config, law, velocity))


def _descent_part(config: CentralPathConfig, steps: int) -> Part:
    name = f"descent in {steps} steps"
    return Part(name, PER_RUN + 1, lambda _: _descent_rows(config, steps))


def _unrestricted_part(config: CentralPathConfig, name: str, *, on_path: bool) -> Part:
    return Part(name, config.points, lambda _: _unrestricted_rows(config, on_path))


def _flow_rows(config: CentralPathConfig, law: Law, velocity: Velocity) -> Iterator[Observation]:
    start, k, times = config.start(), config.num_classes, config.times
    before = aligned(snr_matrix(start, k))
    closed = law.singular_values(before.values, torch.tensor(times, dtype=torch.float64))
    for step, (time, here) in enumerate(flow(velocity, start, k, times)):
        now = aligned(snr_matrix(here, k))
        yield _at(
            step,
            time,
            _numbered("omega", now.values)
            | _numbered("closed", closed[step])
            | {"law_deviation": float((now.values / closed[step] - 1).abs().max())}
            | _kept(start, here, before, k)
            | _collapse(here, *least_squares(here, k)),
        )


def _kept(start: Tensor, here: Tensor, before: Aligned, k: int) -> dict[str, float]:
    """Measure what the flow conserves, and the distance from its limit."""
    was, now = split(start, k), split(here, k)
    along = (before.left.mT @ now.classes @ before.right).diag()
    limit = spread_over_samples(before.left @ before.right.mT, here.shape[1] // k)
    values = aligned(now.classes).values
    return {
        "ratio": float(values[0] / values[-1]),
        "turned": float(
            (now.classes - before.left * along @ before.right.mT).norm() / now.classes.norm()
        ),
        "within_moved": float((now.within - was.within).norm() / was.within.norm()),
        "limit_distance": float((here / values[0] - limit).norm() / limit.norm()),
    }


def _descent_rows(config: CentralPathConfig, steps: int) -> Iterator[Observation]:
    start, k, n = config.start(), config.num_classes, config.per_class
    before = aligned(snr_matrix(start, k)).values
    rate = config.descent_time * config.unit / steps
    path = [start, *renormalised_descent(start, k, rate, steps)]
    for step in range(0, steps + 1, steps // PER_RUN):
        now = aligned(snr_matrix(path[step], k)).values
        values = {"rate": rate} | _numbered("omega", now)
        for law in (projected_law(k, n), renormalised_law(k, n)):
            at = torch.tensor([rate * step], dtype=torch.float64)
            closed = law.singular_values(before, at)[0]
            values |= _numbered(law.name, closed)
            values[f"{law.name}_deviation"] = float((now / closed - 1).abs().max())
        yield _at(step, rate * step, values)


def _unrestricted_rows(config: CentralPathConfig, on_path: bool) -> Iterator[Observation]:
    features, k = config.start(), config.num_classes
    weight, bias = least_squares(features, k)
    if not on_path:
        generator = torch.Generator().manual_seed(config.seed)
        weight = torch.randn(weight.shape, dtype=torch.float64, generator=generator)
        weight, bias = weight / config.dim**0.5, torch.zeros_like(bias)
    unit = config.num_classes * config.per_class
    last = math.log10(config.unrestricted_time)
    spaced = torch.logspace(last - 4, last, config.points - 1, dtype=torch.float64)
    times = [0.0, *(unit * spaced).tolist()]
    for step, (time, here) in enumerate(unrestricted_flow(State(weight, bias, features), times)):
        values = _collapse(here.features, here.weight, here.bias)
        values["classifier_distance"] = distance(here).classifier
        yield _at(step, time, values)


def _at(step: int, time: float, values: Mapping[str, float]) -> Observation:
    return Observation(step, step, layer="features", values={"time": time, **values})


def _numbered(name: str, values: Tensor) -> dict[str, float]:
    return {f"{name}_{index}": float(value) for index, value in enumerate(values, 1)}


def _collapse(features: Tensor, weight: Tensor, bias: Tensor) -> dict[str, float]:
    k = len(weight)
    labels = torch.arange(k).repeat_interleave(features.shape[1] // k)
    record, _ = measure_samples("features", features.mT, labels, k, weight, bias, groups=GROUPS)
    return dict(record.metrics)


def _claims(config: CentralPathConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test MSE theorem 3 with its corollaries, our errata to them, and assumption A1."""
    k, n = config.num_classes, config.per_class
    claims: list[Claim] = []
    for law in (projected_law(k, n), renormalised_law(k, n)):
        path = part_of(rows, law.name)
        claims += [_follows(law, path), _exponent(law, path)]
        if k > 2:  # with two classes there is one singular value, and nothing to equalise
            claims.append(_equalised(law, path))
        claims += [_unturned(law, path), _limit(law, path), _collapsed(law, path)]
    claims.append(_descent(config, rows))
    for name in ("unrestricted, on the path", "unrestricted, off the path"):
        claims.append(_near_path(name, part_of(rows, name)))
    return claims


def _owner(law: Law, printed: str) -> str:
    """Return the owner of a claim on a law: the paper states the projected law for both flows."""
    return printed if law.name == "projected" else "ours"


def _follows(law: Law, path: list[Observation]) -> Claim:
    worst = max(number(row, "law_deviation") for row in path)
    times = [number(row, "time") for row in path[1:]]
    decades = math.log10(times[-1] / times[0])
    return decided(
        f"{law.name.capitalize()} flow: simulated features follow the closed form",
        source=_owner(law, "MSE, proposition 2"),
        held=worst < 1e-6,
        evidence=f"singular values within {worst:.1e} of the closed form over {decades:.1f} "
        "decades of time",
    )


def _exponent(law: Law, path: list[Observation]) -> Claim:
    last = path[-1]
    early = [row for row in path[1:] if number(row, "time") <= 0.1001 * number(last, "time")]
    before = early[-1]
    span = math.log(number(last, "time") / number(before, "time"))
    grown = [math.log(number(last, key) / number(before, key)) / span for key in _omegas(last)]
    worst = max(abs(value / law.exponent - 1) for value in grown)
    return decided(
        f"{law.name.capitalize()} flow: singular values grow like t^(1/{1 / law.exponent:.0f})",
        source=_owner(law, "MSE, corollary 1"),
        held=worst < 0.01,
        evidence=f"exponents {min(grown):.5f} to {max(grown):.5f} over the last decade",
    )


def _equalised(law: Law, path: list[Observation]) -> Claim:
    ratios = [number(row, "ratio") for row in path]
    return decided(
        f"{law.name.capitalize()} flow: the ratio of largest to least singular value falls to 1",
        source="MSE, corollary 1",
        held=_falling([ratio - 1 for ratio in ratios]) and ratios[-1] < 1.01,
        evidence=f"{ratios[0]:.3f} at the start, 1 + {ratios[-1] - 1:.1e} in the end",
    )


def _unturned(law: Law, path: list[Observation]) -> Claim:
    turned = max(number(row, "turned") for row in path)
    moved = max(number(row, "within_moved") for row in path)
    return decided(
        f"{law.name.capitalize()} flow: singular vectors and deviations of samples "
        "from their class means do not change",
        source="MSE, lemma 6",
        held=max(turned, moved) < 1e-6,
        evidence=f"class means turned by {turned:.1e}, samples moved in their class by {moved:.1e}",
    )


def _limit(law: Law, path: list[Observation]) -> Claim:
    gaps = [number(row, "limit_distance") for row in path]
    return decided(
        f"{law.name.capitalize()} flow: features divided by the largest singular value "
        "converge to U V^T for every sample",
        source="MSE, corollary 2",
        held=_falling(gaps) and gaps[-1] < gaps[0] / 10,
        evidence=f"distance {gaps[0]:.3g} at the start, {gaps[-1]:.2g} in the end",
    )


def _collapsed(law: Law, path: list[Observation]) -> Claim:
    ends = [(key, number(path[0], key), number(path[-1], key)) for key in COLLAPSE]
    late = path[len(path) // 2 :]
    courses = [[max(number(row, key), ROUNDING) for row in late] for key in COLLAPSE]
    said = "; ".join(f"{key} {first:.3g} to {last:.2g}" for key, first, last in ends)
    fallen = all(last < max(first / 100, ROUNDING) for _, first, last in ends)
    return decided(
        f"{law.name.capitalize()} flow: NC1 to NC4 emerge: each metric ends below 1 % of its first "
        "value, and none rises over the later half of the measurements",
        source="MSE, theorem 3",
        held=fallen and not any(order_breaks(course, falling=True) for course in courses),
        evidence=said,
    )


def _descent(config: CentralPathConfig, rows: Sequence[Observation]) -> Claim:
    last = [part_of(rows, f"descent in {m} steps")[-1] for m in config.descent_steps]
    renormalised = [number(row, "renormalised_deviation") for row in last]
    projected = [number(row, "projected_deviation") for row in last]
    order = math.log(renormalised[-2] / renormalised[-1]) / math.log(
        number(last[-2], "rate") / number(last[-1], "rate")
    )
    return decided(
        "As the step size shrinks, renormalised gradient steps converge to the "
        "renormalised law, not to the projected law",
        source="ours",
        held=_falling(renormalised) and 0.8 < order < 1.2 and projected[-1] > 10 * renormalised[-1],
        evidence=f"{config.descent_steps[-1]} steps: {renormalised[-1]:.1e} from the "
        f"renormalised law (of order {order:.2f} in the step), {projected[-1]:.2g} from the "
        "projected law",
    )


def _near_path(name: str, path: list[Observation]) -> Claim:
    """Test that the loss off the path becomes and stays negligible, as it does for networks.

    The claim asks for less than 1 % of the loss from a tenth of the time on.
    """
    end = number(path[-1], "time")
    late = [row for row in path if number(row, "time") >= end / 10]
    worst = max(number(row, "mse_off_path") / number(row, "mse_loss") for row in late)
    first = number(path[0], "mse_off_path") / number(path[0], "mse_loss")
    return decided(
        f"{name.capitalize()}: the loss off the central path is negligible",
        source="ours",  # MSE figure 2 shows trained networks
        held=worst < 0.01,
        evidence=f"{first:.2g} of the loss at the start, at most {worst:.1e} in the last decade "
        f"of time, in which the loss falls to {number(path[-1], 'mse_loss'):.1e}",
    )


def _omegas(row: Observation) -> list[str]:
    return [key for key in row.values if key.startswith("omega_")]


def _falling(values: list[float]) -> bool:
    return all(after < before for before, after in pairwise(values))


STUDY = Study(
    id="central-path",
    title="The central path",
    lead=(
        "Features follow the gradient flow of the MSE loss under their least-squares classifier, "
        "in coordinates in which their within-class covariance is the identity. Their "
        "signal-to-noise matrix keeps its singular vectors, and its singular values become equal."
    ),
    source="MSE section 3 and appendix D",
    config=CentralPathConfig,
    parts=_parts,
    claims=_claims,
    drawings=drawings,
    unit="step",
    columns=("time", "ratio", "law_deviation", "limit_distance", "nc1", "nc2_etf", "mse_loss"),
)
