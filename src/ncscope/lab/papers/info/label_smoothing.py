r"""Label smoothing: accuracy, MIR and HDR after training under several smoothness levels.

Source: INFO section 5.3, figure 5. Command: ``ncscope reproduce info/label-smoothing``.

The targets are $(1-\epsilon)e_y+\frac\epsilon C$. The paper's text does not state the values of
$\epsilon$; here they are 0, 0.1, 0.2, 0.4 and 0.8.

The paper's scale trains WRN-28-2 on CIFAR-10 and WRN-28-8 on CIFAR-100 with `paper_training`.

The small scale trains a wide residual network of 64 features on handwritten digits for 20 epochs of
batches of 64 at rate 0.1. Seeds are 3 to 5, as seeds 0 to 2 were used to choose the settings. Cost:
3 minutes on one core.

Results (means over seeds): the range over the levels is .01 of what training changes for accuracy,
.40 for MIR (by batch .38) and .22 for HDR (.24). HDR is 0.013 without smoothing and already 0.082
at level 0.1. MIR is highest at 0.1 and lowest at 0.8. So accuracy varies little, but the ratios
vary much, unlike in the paper.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import below, judged
from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.runs import (
    PAPER_NETWORKS,
    SEEDS,
    UNSEEN_SEEDS,
    accuracy_percent,
    averages,
    band,
    by_axis,
    by_batch,
    by_run_name,
    collapse_line,
    data_sets,
    extent,
    information_parts,
    legend_beside,
    medium_training,
    paper_training,
    ratio_bands,
    small_training,
)
from ncscope.lab.papers.trained import ends, history, ratio
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.lab.training.settings import Training
from ncscope.report import panels
from ncscope.report.claims import Claim

LEVELS = (0.0, 0.1, 0.2, 0.4, 0.8)

MINIMAL = 0.1
"""A variation below this share of what training changes counts as minimal."""


class InfoLabelSmoothing(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")


def _paper() -> InfoLabelSmoothing:
    runs = (
        paper_training(data, seed, label_smoothing=e)
        for data in PAPER_NETWORKS
        for e in LEVELS
        for seed in SEEDS
    )
    return InfoLabelSmoothing(runs=by_run_name(runs, "label_smoothing"))


def _medium() -> InfoLabelSmoothing:
    runs = (
        medium_training(data, 40, seed, label_smoothing=e)
        for data in PAPER_NETWORKS
        for e in LEVELS
        for seed in SEEDS
    )
    return InfoLabelSmoothing(runs=by_run_name(runs, "label_smoothing"))


def _small() -> InfoLabelSmoothing:
    runs = (
        small_training("digits", 20, seed, label_smoothing=e)
        for e in LEVELS
        for seed in UNSEEN_SEEDS
    )
    return InfoLabelSmoothing(runs=by_run_name(runs, "label_smoothing"))


def _parts(config: InfoLabelSmoothing) -> list[Part]:
    """Return a part for each run."""
    return information_parts(config.runs)


def ended(
    runs: Mapping[str, Training], data: str, rows: Sequence[Observation]
) -> list[Observation]:
    """Select the last held-out rows of every run on a data set, with the smoothness of each.

    Args:
        runs: Settings of the runs, by name.
        data: Name of the set.
        rows: Rows of the study.
    """
    selected = []
    for name, training in runs.items():
        path = history(rows, name, "test") if training.data == data else []
        selected += [row.with_values({"epsilon": training.label_smoothing}) for row in path[-1:]]
    return selected


def variations(
    config: InfoLabelSmoothing, rows: Sequence[Observation], data: str, key: str
) -> list[float]:
    """Compute the range of a metric over the levels, over what training changes, by seed.

    The divisor is the change of the metric from before training to its end at the lowest level.
    Networks that learn nothing therefore have no small variation.

    Args:
        config: Settings of the study.
        rows: Rows of the study.
        data: Name of the set.
        key: Key of the metric.
    """
    by_seed: dict[int, dict[float, tuple[float, float]]] = {}
    for name, training in config.runs.items():
        if training.data == data:
            pair = ends(history(rows, name, "test"), key)
            by_seed.setdefault(training.seed, {})[training.label_smoothing] = pair
    found = []
    for levels in by_seed.values():
        start, end = levels[min(levels)]
        found.append(ratio(extent([last for _, last in levels.values()]), abs(end - start)))
    return found


def _claims(config: InfoLabelSmoothing, rows: Sequence[Observation]) -> list[Claim]:
    """Test section 5.3: accuracy, MIR and HDR vary minimally."""
    claims = []
    for data in data_sets(config.runs):
        claims.append(_minimal(config, rows, data, "accuracy", "accuracy"))
        claims += [
            by_batch(partial(_minimal, config, rows, data, key.upper()), key)
            for key in ("mir", "hdr")
        ]
    return claims


def _minimal(
    config: InfoLabelSmoothing,
    rows: Sequence[Observation],
    data: str,
    name: str,
    key: str,
    estimate: str = "",
) -> Claim:
    means = averages(by_axis(ended(config.runs, data, rows), "epsilon", key))
    return judged(
        f"{data}: {name}{estimate} differs between degrees of label smoothing by less than "
        f"{MINIMAL} of the change that training makes",
        source="INFO, figure 5",
        values=variations(config, rows, data, key),
        region=below(MINIMAL),
        bounds=(0.0, math.inf),
        evidence="means "
        + ", ".join(f"{value:.4f} at {level:g}" for level, value in means.items()),
    )


def _drawings(config: InfoLabelSmoothing, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figure 5 of the paper, with one row for each data set."""
    caption = (
        "INFO figure 5: accuracy, MIR and HDR on held-out images at the end of training under "
        "several smoothness levels; lines are means over seeds, bands show their range. Solid: "
        "exact values of the whole set; dashed: means over batches of 64."
    )
    return [Drawing("fig-5", caption, _figure(config, rows))]


def _figure(config: InfoLabelSmoothing, rows: Sequence[Observation]) -> Figure:
    sets = data_sets(config.runs)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(10.5, 3.0 * len(sets)), layout="constrained")
        grid = figure.subplots(len(sets), 3, squeeze=False, sharex=True).tolist()
        for line, data in zip(grid, sets, strict=True):
            _panels(line, ended(config.runs, data, rows))
            for axes, name in zip(line, ("accuracy, %", "MIR", "HDR"), strict=True):
                axes.set_title(f"{name}, {data}")
        for axes in grid[-1]:
            axes.set_xlabel("smoothness")
        legend_beside(figure, grid[0][1])
    return figure


def _panels(line: Sequence[Axes], rows: Sequence[Observation]) -> None:
    accuracy, mir, hdr = line
    band(accuracy, accuracy_percent(by_axis(rows, "epsilon", "accuracy")), "", panels.SOFT)
    ratio_bands(mir, rows, "epsilon", "mir")
    collapse_line(mir, rows)
    ratio_bands(hdr, rows, "epsilon", "hdr")


RECIPE: Recipe[InfoLabelSmoothing] = Recipe(
    id="info/label-smoothing",
    title="Matrix information under label smoothing",
    lead=(
        "Networks trained on labels of several smoothness levels. INFO says that accuracy, MIR "
        "and HDR vary little with the level."
    ),
    source="INFO section 5.3, figure 5",
    config=InfoLabelSmoothing,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    columns=("epoch", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
    scales={"paper": _paper(), "medium": _medium(), "small": _small()},
    cost={
        "paper": "375 GPU-hours (estimated)",
        "medium": "45 minutes of one GPU (estimated)",
        "small": "3 minutes on one core",
    },
)
