"""The straight line from data to collapsed features: ``ncscope run geodesic``.

Source: PFC III-B, theorems 1 and 2, and the predicted curve of figure 3. There is one draw of the
data, so a claim holds if its value lies in the region.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from pydantic import Field, model_validator
from torch import Tensor

from ncscope.math.frames import simplex_etf
from ncscope.report import panels
from ncscope.stats.paths import CrossMoments, nearest_hits_on_line
from ncscope_lab.claims import Claim, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.models.bounds import NotNegative, Positive, Seed
from ncscope_lab.experiments.models.mufm import PFC_TITLES
from ncscope_lab.figures import draw_grid
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Quantity, Run, Runs, first, last, values
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config
from ncscope_lab.surrogates.geodesic import line_between, pfc1_falls_from, pfc2_falls_from
from ncscope_lab.surrogates.problem import gaussian_classes


class GeodesicConfig(Config):
    """Settings of the first and last features, and of the line between them."""

    num_classes: int = Field(5, ge=2, description="Number of classes K.")
    dim: int = Field(20, ge=1, description="Dimension d of both layers, at least K - 1.")
    per_class: int = Field(100, ge=2, description="Samples n in each class.")
    size: Positive = Field(3.0, description="Length of the last layer's class means.")
    spread: NotNegative = Field(
        0.0, description="Share of the first layer's within-class spread left in the last."
    )
    orientation: Literal["nearest", "random", "opposite"] = Field(
        "nearest", description="Orientation of the last simplex to the first class means."
    )
    points: int = Field(101, ge=2, description="Points of the line to measure.")
    seed: Seed = Field(0, description="Seed of the data, and of a random simplex.")

    @model_validator(mode="after")
    def _fits(self) -> "GeodesicConfig":
        if self.dim < self.num_classes - 1:
            msg = "dim of at least num_classes - 1"
            raise ValueError(msg)
        return self


ZERO = 1e-9  # smaller values of PFC2 are zero but for rounding
ALIGNMENT, PFC1_FROM, PFC2_FROM = map(first, ("alignment", "pfc1_falls_from", "pfc2_falls_from"))


def list_claims(settings: GeodesicConfig) -> list[Claim]:
    """Return theorems 1 and 2, if the line ends in collapse, and that the accuracy never falls."""
    claim = partial(Claim, source="PFC", where="line", rule="all")
    theorems = [
        claim(
            text="Theorem 1: PFC1 falls on the whole line if, and only if, the class means of both "
            "ends are aligned",
            quantity=Quantity(
                "contradictions",
                lambda run: float((ALIGNMENT(run) >= 0) != (PFC1_FROM(run) <= 0)),
                parts=(ALIGNMENT, PFC1_FROM),
            ),
            region=below(1),
        ),
        claim(
            text="Theorem 2: PFC2 falls to 0 on a neighbourhood of t = 1",
            quantity=Quantity(
                "PFC2 at t = 1, or 1 if it does not fall",
                lambda run: last("pfc2")(run) if PFC2_FROM(run) < 1 else 1.0,
                parts=(PFC2_FROM, first("transport_cost")),
            ),
            region=below(ZERO),
        ),
    ]
    ordered = claim(
        text="PFC3 does not fall along the line",
        quantity=Quantity("falls", count_losses, parts=(first("pfc3"), last("pfc3"))),
        region=below(1),
    )
    return [*theorems, ordered] if settings.spread == 0 else [ordered]


def count_losses(run: Run) -> float:
    """Count the falls of the nearest-mean accuracy from one point to the next."""
    return sum(b < a for a, b in pairwise(values(run.rows, "pfc3")))


def draw_figures(settings: GeodesicConfig, runs: Runs) -> list[Drawing]:
    """Draw PFC1-3 against the relative position on the line, as predicted in figure 3."""
    caption = (
        "PFC1 to PFC3 on the straight line from the data (0) to the last features (1). Shaded: "
        "the part on which the metric falls up to the end, by theorems 1 and 2."
    )
    row = [partial(draw_panel, runs.find("line"), key) for key in PFC_TITLES]
    return [Drawing("line", caption, draw_grid([row], cell=(3.1, 2.7)))]


def draw_panel(run: Run, key: str, axes: Axes) -> None:
    """Draw a metric along the line, and shade where it falls up to the end."""
    axes.plot(values(run.rows, "t"), values(run.rows, key), color=panels.ACCENT, linewidth=1.8)
    if key != "pfc3":
        start = first(f"{key}_falls_from")(run)
        axes.axvspan(start, 1, color=panels.ACCENT, alpha=0.08, linewidth=0)
        axes.set_ylim(bottom=0)
    axes.set_title(PFC_TITLES[key])
    axes.set_xlabel("relative position t")
    axes.set_xlim(0, 1)


def measure_line(settings: GeodesicConfig) -> Iterator[Observation]:
    """Yield PFC1-3 at each point of the line, with the numbers of the whole line."""
    first, last, labels = make_ends(settings)
    line = line_between(first, last, labels)
    pair = CrossMoments(settings.num_classes, settings.dim)
    pair.update(first, last, labels)
    positions = torch.linspace(0, 1, settings.points, dtype=torch.float64)
    hits = nearest_hits_on_line(first, last, labels, pair.ends(), positions) / len(labels)
    whole = {
        "alignment": float(line.alignment()),
        "transport_cost": float(line.transport_cost()),
        "pfc1_falls_from": pfc1_falls_from(line),
        "pfc2_falls_from": pfc2_falls_from(line),
    }
    for step, (t, accuracy) in enumerate(zip(positions.tolist(), hits.tolist(), strict=True)):
        metrics = {"pfc1": float(line.pfc1(t)), "pfc2": float(line.pfc2(t)), "pfc3": accuracy}
        yield Observation(step, step, layer="line", values={"t": t, **metrics, **whole})


def make_ends(
    settings: GeodesicConfig,
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return first and last features, one row per sample, and the labels."""
    generator = torch.Generator().manual_seed(settings.seed)
    k, n = settings.num_classes, settings.per_class
    first = gaussian_classes(k, n, settings.dim, generator).mT
    means = first.unflatten(0, (k, n)).mean(1)
    simplex = simplex_etf(k, settings.dim, generator)
    if settings.orientation != "random":
        left, _, right = torch.linalg.svd(simplex.mT @ (means - means.mean(0)))
        simplex = simplex @ left @ right
    sign = -1 if settings.orientation == "opposite" else 1
    labels = torch.arange(k).repeat_interleave(n)
    within = first - means[labels]
    return first, sign * settings.size * simplex[labels] + settings.spread * within, labels


EXPERIMENT = Experiment(
    id="geodesic",
    title="The straight line to collapse",
    question=(
        "If a network moves every sample along a straight line from the data to a collapsed "
        "simplex, the class structure of the layers between follows."
    ),
    source="PFC III-B, theorems 1 and 2, figure 3",
    scales={"small": GeodesicConfig()},
    cost={"small": "below a second on one core"},
    parts=lambda settings: [Part("line", settings.points, lambda _: measure_line(settings))],
    claims=list_claims,
    figures=draw_figures,
    columns=("t", "pfc1", "pfc2", "pfc3", "alignment", "transport_cost"),
    unit="step",
)
