r"""INFO section 5.3, figure 5: accuracy, MIR and HDR at the end of training on smoothed labels.

The targets are $(1-\epsilon)e_y+\frac\epsilon C$. The paper's text does not state the values of
$\epsilon$; here they are 0, 0.1, 0.2, 0.4 and 0.8. The paper trains WRN-28-2 on CIFAR-10 and
WRN-28-8 on CIFAR-100. The small scale trains a wide residual network of 64 features on handwritten
digits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import numpy as np
from matplotlib.axes import Axes

from ncscope.lab.claims import Claim, below
from ncscope.lab.experiment import Experiment, Trainings
from ncscope.lab.experiments.info.information_runs import (
    PAPER_NETWORKS,
    claim_on_accuracy_and_ratios,
    draw_collapse,
    draw_ratio,
    name_runs,
    paper_training,
    small_training,
    train_with_classes,
)
from ncscope.lab.figures import collect_points, draw_band, draw_grid
from ncscope.lab.observations import Observation
from ncscope.lab.quantities import AnyQuantity, Run, Runs, average, ends, ratio
from ncscope.lab.report.drawing import Drawing
from ncscope.report import panels

LEVELS = (0.0, 0.1, 0.2, 0.4, 0.8)

PAPER = Trainings(
    runs=name_runs(
        (
            paper_training(data, seed, label_smoothing=level)
            for data in PAPER_NETWORKS
            for level in LEVELS
            for seed in (0, 1, 2)
        ),
        "label_smoothing",
    )
)
SMALL = Trainings(
    runs=name_runs(
        (
            small_training("digits", epochs=20, seed=seed, label_smoothing=level)
            for level in LEVELS
            for seed in (3, 4, 5)  # settings were chosen on seeds 0 to 2
        ),
        "label_smoothing",
    )
)

MINIMAL = 0.1  # largest share of what training changes that counts as minimal; the paper has none


def list_claims(settings: Trainings) -> Sequence[Claim]:
    """Return the claims of section 5.3: accuracy, MIR and HDR vary minimally with the level."""
    claims = []
    for data in dict.fromkeys(run.data for run in settings.runs.values()):
        lowest = min(run.label_smoothing for run in settings.runs.values() if run.data == data)
        claims += claim_on_accuracy_and_ratios(
            f"{data}: {{}} differs between degrees of label smoothing by less than {MINIMAL} of "
            "the change that training makes",
            variation,
            tell_levels,
            source="INFO, figure 5",
            region=below(MINIMAL),
            bounds=(0.0, inf),
            where={"data": data, "label_smoothing": lowest},
        )
    return claims


def draw_figures(settings: Trainings, runs: Runs) -> list[Drawing]:
    """Draw figure 5, with a row for each data set."""
    caption = (
        "INFO figure 5: accuracy, MIR and HDR on held-out images at the end of training under "
        "several smoothness levels; lines are means over seeds, bands show their range. Solid: "
        "exact values of the whole set; dashed: means over batches of 64."
    )
    grid = [
        [partial(draw_panel, key, data, own) for key in ("accuracy", "mir", "hdr")]
        for data, own in runs.group("data").items()
    ]
    figure = draw_grid(grid, cell=(3.0, 3.0), legend="beside", share_x=True)
    return [Drawing("fig-5", caption, figure)]


def draw_panel(key: str, data: str, runs: Runs, axes: Axes) -> None:
    """Draw a metric at the end of training against the smoothness."""
    rows = [row for run in runs for row in last_rows(run)]
    if key == "accuracy":
        draw_band(axes, collect_points(rows, "smoothness", key), colour=panels.SOFT)
    else:
        draw_ratio(axes, rows, "smoothness", key)
    if key == "mir":
        draw_collapse(axes, runs)
    axes.set_title(f"{key if key == 'accuracy' else key.upper()}, {data}")
    axes.set_xlabel("smoothness")


def last_rows(run: Run) -> list[Observation]:
    """Return the last held-out row of a run, with its smoothness; no row without results."""
    level = {"smoothness": run.settings.label_smoothing}
    return [row.with_values(level) for row in run.path("test")[-1:]]


def variation(key: str) -> AnyQuantity:
    """Return the quantity of a metric's range over the levels, over what training changes.

    The divisor is the change from before training to its end of the run itself, which has the
    lowest level. Networks that learn nothing therefore have no small variation.
    """

    def quantity(run: Run) -> float:
        start, end = ends(run.path("test"), key)
        levels = [ends(other.path("test"), key)[1] for other in run.alike("data", "seed")]
        return ratio(float(np.ptp(levels)), abs(end - start))

    return quantity


def tell_levels(key: str) -> Callable[[Runs], str]:
    """Return a function that writes a metric's mean at each level."""

    def tell(runs: Runs) -> str:
        rows = (
            row for run in runs for other in run.alike("data", "seed") for row in last_rows(other)
        )
        means = {
            level: average(own) for level, own in collect_points(rows, "smoothness", key).items()
        }
        return "means " + ", ".join(f"{value:.4f} at {level:g}" for level, value in means.items())

    return tell


EXPERIMENT = Experiment(
    id="info/label-smoothing",
    title="Matrix information under label smoothing",
    question=(
        "Networks trained on labels of several smoothness levels. INFO says that accuracy, MIR "
        "and HDR vary little with the level."
    ),
    source="INFO section 5.3, figure 5",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "375 GPU-hours (estimated)", "small": "3 minutes on one core"},
    parts=lambda settings: train_with_classes(settings.runs),
    claims=list_claims,
    figures=draw_figures,
    columns=("epoch", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
)
