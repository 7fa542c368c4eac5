"""The straight line from data to collapsed features: `ncscope simulate geodesic`.

Source: PFC III-B, theorems 1 and 2, and figure 3's predicted curve. Cost: below a second. Expected
with the settings given here: the premise of theorem 1 holds, PFC1 falls from 25 to 0 and PFC2 from
0.37 to 0 on the whole line.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import matplotlib as mpl
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from ncscope.lab.evidence.judging import decided
from ncscope.lab.experiments.models.bounds import NotNegative, Positive, Seed
from ncscope.lab.observations import Observation
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.rows import number
from ncscope.lab.runs.recipe import Part, Study
from ncscope.lab.simulations.mufm import PFC_TITLES
from ncscope.lab.surrogates.geodesic import line_between, pfc1_falls_from, pfc2_falls_from
from ncscope.lab.surrogates.problem import gaussian_classes
from ncscope.math.frames import simplex_etf
from ncscope.report import panels
from ncscope.report.claims import Claim
from ncscope.stats.paths import CrossMoments, nearest_hits_on_line


class GeodesicConfig(BaseModel):
    """Settings of the first and last features, and of the line between them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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


def _parts(config: GeodesicConfig) -> list[Part]:
    """Return the measurements along the line from data to features."""
    return [Part("line", config.points, lambda _: _line(config))]


def ends(
    config: GeodesicConfig,
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return first and last features, one row per sample, and the labels."""
    generator = torch.Generator().manual_seed(config.seed)
    k, n = config.num_classes, config.per_class
    first = gaussian_classes(k, n, config.dim, generator).mT
    means = first.unflatten(0, (k, n)).mean(1)
    simplex = simplex_etf(k, config.dim, generator)
    if config.orientation != "random":
        left, _, right = torch.linalg.svd(simplex.mT @ (means - means.mean(0)))
        simplex = simplex @ left @ right
    sign = -1 if config.orientation == "opposite" else 1
    labels = torch.arange(k).repeat_interleave(n)
    within = first - means[labels]
    return first, sign * config.size * simplex[labels] + config.spread * within, labels


def _line(config: GeodesicConfig) -> Iterator[Observation]:
    first, last, labels = ends(config)
    line = line_between(first, last, labels)
    pair = CrossMoments(config.num_classes, config.dim)
    pair.update(first, last, labels)
    positions = torch.linspace(0, 1, config.points, dtype=torch.float64)
    hits = nearest_hits_on_line(first, last, labels, pair.ends(), positions) / len(labels)
    whole = {
        "alignment": float(line.alignment()),
        "transport_cost": float(line.transport_cost()),
        "pfc1_falls_from": pfc1_falls_from(line),
        "pfc2_falls_from": pfc2_falls_from(line),
    }
    for step, (t, accuracy) in enumerate(zip(positions.tolist(), hits.tolist(), strict=True)):
        values = {"pfc1": float(line.pfc1(t)), "pfc2": float(line.pfc2(t)), "pfc3": accuracy}
        yield Observation(step, step, layer="line", values={"t": t, **values, **whole})


def _claims(config: GeodesicConfig, rows: Sequence[Observation]) -> list[Claim]:
    """Test theorems 1 and 2 on this line, and that the nearest-mean accuracy does not fall."""
    claims = [_ordered(rows)]
    if config.spread == 0:
        claims = [_first_theorem(rows), _second_theorem(rows), *claims]
    return claims


def _first_theorem(rows: Sequence[Observation]) -> Claim:
    alignment, start = (number(rows[0], key) for key in ("alignment", "pfc1_falls_from"))
    return decided(
        "Theorem 1: PFC1 falls on the whole line if, and only if, the class means of both "
        "ends are aligned",
        source="PFC",
        held=(alignment >= 0) == (start <= 0),
        evidence=f"inner product {alignment:.4g}; PFC1 falls from t = {start:.4g} on",
    )


def _second_theorem(rows: Sequence[Observation]) -> Claim:
    cost, start = (number(rows[0], key) for key in ("transport_cost", "pfc2_falls_from"))
    return decided(
        "Theorem 2: PFC2 falls to 0 on a neighbourhood of t = 1",
        source="PFC",
        held=start < 1 and number(rows[-1], "pfc2") < 1e-9,
        evidence=f"from t = {start:.4g} on; transport cost {cost:.4g}",
    )


def _ordered(rows: Sequence[Observation]) -> Claim:
    values = [number(row, "pfc3") for row in rows]
    losses = [earlier - later for earlier, later in pairwise(values)]
    worst = max(0.0, *losses)
    return decided(
        "PFC3 does not fall along the line",
        source="PFC",
        held=worst == 0,
        evidence=f"from {values[0]:.4g} to {values[-1]:.4g}"
        + (f"; falls by {worst:.2g} at most between two points" if worst else ""),
    )


def _drawings(config: GeodesicConfig, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw PFC1-3 against the relative position on the line, as predicted in figure 3."""
    caption = (
        "PFC1 to PFC3 on the straight line from the data (0) to the last features (1). Shaded: "
        "the part on which the metric falls up to the end, by theorems 1 and 2."
    )
    at = [number(row, "t") for row in rows]
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(9.5, 2.8), layout="constrained")
        for axes, (key, title) in zip(figure.subplots(1, 3), PFC_TITLES.items(), strict=True):
            axes.plot(at, [number(row, key) for row in rows], color=panels.ACCENT, linewidth=1.8)
            if key != "pfc3":
                start = number(rows[0], f"{key}_falls_from")
                axes.axvspan(start, 1, color=panels.ACCENT, alpha=0.08, linewidth=0)
                axes.set_ylim(bottom=0)
            axes.set_title(title)
            axes.set_xlabel("relative position t")
            axes.set_xlim(0, 1)
    return [Drawing("line", caption, figure)]


STUDY: Study[GeodesicConfig] = Study(
    id="geodesic",
    title="The straight line to collapse",
    lead=(
        "If a network moves every sample along a straight line from the data to a collapsed "
        "simplex, the class structure of the layers between follows."
    ),
    source="PFC III-B, theorems 1 and 2, figure 3",
    config=GeodesicConfig,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    unit="step",
    columns=("t", "pfc1", "pfc2", "pfc3", "alignment", "transport_cost"),
)
