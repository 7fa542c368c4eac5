"""Matrix information over training: accuracy, MIR and HDR on held-out images.

Source: INFO section 5.1, figures 1 and 2. Command: ``ncscope reproduce info/training``.

The paper's scale trains WRN-28-2 on CIFAR-10 and WRN-28-8 on CIFAR-100 with `paper_training`.

The small scale trains a wide residual network of 64 features, from three seeds, on warped digits
and on 20 classes of generated patterns: 30 epochs of batches of 64 at rate 0.1. Cost: 5 minutes on
one core of a shared machine.

Results on seeds 3 to 5 (means, first to last epoch, of the whole held-out set and, in brackets, of
batches of 64): MIR 0.059 to 0.510 (0.287 to 0.605) on warped digits and 0.069 to 0.412 (0.431 to
0.616) on patterns; HDR 0.918 to 0.156 (0.919 to 0.162) and 0.927 to 0.311 (0.927 to 0.311). Each
ratio follows the accuracy in 60 % of the intervals or more, in every run. Neither comes near its
value at collapse, 0.952 and 0.983 for MIR. 2 of 6 claims held, 2 not held, 2 undecided.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import SHARE, Region, above, below, combined, judged, within
from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.runs import (
    PAPER_NETWORKS,
    SEEDS,
    UNSEEN_SEEDS,
    band,
    by_axis,
    by_batch,
    by_run_name,
    collapse_line,
    data_sets,
    information_parts,
    legend_beside,
    medium_training,
    paper_training,
    ratio_bands,
    small_training,
)
from ncscope.lab.papers.trained import average, ends, history, ratio, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.settings import Training
from ncscope.metrics.information import collapse_mir
from ncscope.report import panels
from ncscope.report.claims import Claim, Scale

FACTOR = 1.1
"""Least factor between the first and the last value of a ratio that rises or falls; the paper
states no number."""
NEAR = 0.05
"""Largest distance from the value at collapse that counts as near; the paper states no number."""


class InfoTraining(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")


def _paper() -> InfoTraining:
    return InfoTraining(
        runs=by_run_name(
            paper_training(data, seed, every=50) for data in PAPER_NETWORKS for seed in SEEDS
        )
    )


def _medium() -> InfoTraining:
    return InfoTraining(
        runs=by_run_name(
            medium_training(data, 60, seed, every=5) for data in PAPER_NETWORKS for seed in SEEDS
        )
    )


def _small() -> InfoTraining:
    sets = ("warped-digits", "patterns-20")
    return InfoTraining(
        runs=by_run_name(
            small_training(data, 30, seed, every=3) for data in sets for seed in UNSEEN_SEEDS
        )
    )


def _parts(config: InfoTraining) -> list[Part]:
    """Return a part for each run."""
    return information_parts(config.runs)


Path = Sequence[Observation]


@dataclass(frozen=True, kw_only=True)
class _Test:
    """A claim on one metric: text, source, value of a run by path and key, and claimed values."""

    text: str
    key: str
    source: str
    value: Callable[[Path, str], float]
    region: Region
    scale: Scale = "plain"
    bounds: tuple[float, float] = (-math.inf, math.inf)


_TESTS = (
    _Test(
        text=f"MIR rises over training by a factor of {FACTOR}",
        key="mir",
        source="INFO, section 5.1 and figure 1",
        value=lambda path, key: ratio(*reversed(ends(path, key))),
        region=above(FACTOR),
        scale="ratio",
    ),
    _Test(
        text=f"MIR ends within {NEAR} of its value at collapse to a simplex",
        key="mir",
        source="INFO, theorem 4.2 and figure 1",
        value=lambda path, key: ends(path, key)[1] - _at_collapse(path),
        region=within(NEAR),
    ),
    _Test(
        text="accuracy and MIR change the same way more often than by chance",
        key="mir",
        source="INFO, section 5.1 and figure 1",
        value=lambda path, key: _same_sign(path, key, 1),
        region=above(0),
        bounds=(-1.0, 1.0),
    ),
    _Test(
        text=f"HDR falls over training by a factor of {FACTOR}",
        key="hdr",
        source="INFO, section 5.1 and figure 2",
        value=lambda path, key: ratio(*reversed(ends(path, key))),
        region=below(1 / FACTOR),
        scale="ratio",
    ),
    _Test(
        text=f"HDR ends within {NEAR} of 0, its value at collapse",
        key="hdr",
        source="INFO, theorem 4.2 and figure 2",
        value=lambda path, key: ends(path, key)[1],
        region=below(NEAR),
        bounds=SHARE,
    ),
    _Test(
        text="accuracy and HDR change opposite ways more often than by chance",
        key="hdr",
        source="INFO, section 5.1 and figure 2",
        value=lambda path, key: _same_sign(path, key, -1),
        region=above(0),
        bounds=(-1.0, 1.0),
    ),
)


def _claims(config: InfoTraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 5.1 by batch, with the exact values as evidence."""
    paths = {
        data: [history(rows, name, "test") for name, run in config.runs.items() if run.data == data]
        for data in data_sets(config.runs)
    }
    return [by_batch(partial(_claim, test, paths), test.key) for test in _TESTS]


def _claim(test: _Test, paths: Mapping[str, Sequence[Path]], key: str, estimate: str) -> Claim:
    """Judge a test on every data set."""
    text = f"{test.text}, on every data set{estimate}"
    claims = {}
    for data, of_seeds in paths.items():
        pairs = [ends(path, key) for path in of_seeds]
        first, last = (average([pair[index] for pair in pairs]) for index in (0, 1))
        claims[data] = judged(
            text,
            source=test.source,
            values=[test.value(path, key) for path in of_seeds],
            region=test.region,
            scale=test.scale,
            bounds=test.bounds,
            evidence=f"{key} {first:.3f} to {last:.3f} in the mean",
        )
    return combined(text, source=test.source, claims=claims, of="data sets")


def _at_collapse(path: Path) -> float:
    return collapse_mir(int(path[-1].get("num_classes", 0))) if path else math.nan


def _same_sign(path: Path, key: str, sign: int) -> float:
    """Return how much more often than by chance accuracy and a metric change with a relative sign.

    By chance: with the shares of intervals in which each rises, but independent. Both have a trend,
    so chance exceeds one half. Intervals without a change are left out; NaN without intervals.
    """
    accuracy, ratios = values(path, "accuracy"), values(path, key)
    steps = [(b - a, sign * (d - c)) for a, b, c, d in zip(
        accuracy, accuracy[1:], ratios, ratios[1:], strict=False)]  # fmt: skip
    if not all(map(math.isfinite, accuracy + ratios)):
        return math.nan
    rises = [(float(a > 0), float(b > 0)) for a, b in steps if a and b]
    first, second = (average([pair[index] for pair in rises]) for index in (0, 1))
    together = average([float(a == b) for a, b in rises])
    return together - first * second - (1 - first) * (1 - second)


def _drawings(config: InfoTraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figures 1 and 2 of the paper, with one column for each data set."""
    over = (
        "held-out images over training; lines are means over seeds, bands show their range. "
        "Solid: exact values of the whole set; dashed: means over batches of 64."
    )
    return [
        Drawing(
            "fig-1", f"INFO figure 1: accuracy and MIR on {over}", _figure(config, rows, "mir")
        ),
        Drawing(
            "fig-2", f"INFO figure 2: accuracy and HDR on {over}", _figure(config, rows, "hdr")
        ),
    ]


def _figure(config: InfoTraining, rows: Sequence[Observation], key: str) -> Figure:
    sets = data_sets(config.runs)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(4.6 * len(sets), 3.6), layout="constrained")
        for axes, data in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
            names = [name for name, training in config.runs.items() if training.data == data]
            held_out = [row for name in names for row in history(rows, name, "test")]
            _panel(axes, held_out, key)
            axes.set_title(f"{key.upper()} and accuracy, {data}")
        legend_beside(figure, axes)
    return figure


def _panel(axes: Axes, rows: Sequence[Observation], key: str) -> None:
    band(axes, by_axis(rows, "epoch", "accuracy"), "accuracy", panels.SOFT)
    ratio_bands(axes, rows, "epoch", key, of=key.upper())
    centred = by_axis(rows, "epoch", f"{key}_centered")
    band(axes, centred, f"{key.upper()} of centred features, exact", panels.SECOND)
    if key == "mir":
        collapse_line(axes, rows, "MIR at collapse to a simplex")
    axes.set_xlabel("epoch")
    axes.set_ylim(-0.02, 1.02)


RECIPE: Recipe[InfoTraining] = Recipe(
    id="info/training",
    title="Matrix information while a network trains",
    lead=(
        "INFO says that over training MIR rises with the accuracy towards its value at collapse, "
        "and HDR falls towards 0. Both are computed on the whole held-out set, and in batches of "
        "64 as in the paper."
    ),
    source="INFO section 5.1, figures 1-2",
    config=InfoTraining,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("epoch", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "75 GPU-hours (estimated)",
        "medium": "20 minutes of one GPU (estimated)",
        "small": "5 minutes on one core",
    },
)
