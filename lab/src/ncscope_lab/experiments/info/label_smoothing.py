r"""INFO section 5.3, figure 5: accuracy, MIR and HDR at the end of training on smoothed labels.

The targets are $(1-\epsilon)e_y+\frac\epsilon C$. The paper's text does not state the values of
$\epsilon$; here they are 0, 0.1, 0.2 and 0.4. The paper trains WRN-28-2 on CIFAR-10 and WRN-28-8 on
CIFAR-100 for a million steps: Nesterov momentum 0.9, batches of 64, rate 0.03 along a cosine,
weight decay 5e-4, crops and flips, averaged weights. We have not run the paper's scale.

The small scale trains a wide residual network of 64 features on scikit-learn's digits (1,437
training images, 360 held out) for 20 epochs, with the same momentum, batches, decay and crops, rate
0.1 along a cosine to 0, and no average. Seeds are 10 to 19. All held-out images are measured before
training and at the end.
"""

from functools import partial
from math import inf

import numpy as np
from matplotlib.axes import Axes

from ncscope_lab.claims import below
from ncscope_lab.experiment import Experiment, Trainings
from ncscope_lab.experiments.info.information_runs import (
    LINES,
    PAPER_NETWORKS,
    claim_on_accuracy_and_ratios,
    count_seeds,
    draw_collapse,
    draw_metric,
    name_runs,
    paper_training,
    small_training,
    train_with_classes,
)
from ncscope_lab.figures import collect_points, draw_grid, draw_reference, draw_yardstick
from ncscope_lab.quantities import Quantity, Run, Runs, average, ends, last, quantity
from ncscope_lab.report.drawing import Drawing

LEVELS = (0.0, 0.1, 0.2, 0.4)

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
            for seed in range(10, 20)  # settings were chosen on seeds 0 to 5
        ),
        "label_smoothing",
    )
)

MINIMAL = 0.1  # largest share of what training changes that counts as minimal; the paper has none


def variation(key: str) -> Quantity:
    """Return a metric's range over the levels, over what training changes in the run itself.

    The run has the lowest level. Networks that learn nothing have no small variation.
    """

    @quantity(f"range of {key} over the levels")
    def range_over_levels(run: Run) -> float:
        return float(np.ptp([last(key, "test")(other) for other in run.alike("data", "seed")]))

    @quantity("change by training")
    def change_by_training(run: Run) -> float:
        start, end = ends(run.path("test"), key)
        return abs(end - start)

    return range_over_levels / change_by_training


# A seed gives one value: the range over the four levels, over what training changes without
# smoothing. The claim holds if the 95 % interval of the mean over the seeds lies in the region. It
# is judged on ratios over batches of 64, as the paper measures; that of the exact ratios is told
# beside it, uncounted.
CLAIMS = claim_on_accuracy_and_ratios(
    f"{{}} differs between degrees of label smoothing by less than {MINIMAL} of the change that "
    "training makes",
    variation,
    source="INFO, figure 5",
    region=below(MINIMAL),
    bounds=(0.0, inf),
    where={"label_smoothing": 0.0},
    per="data",
)


def draw_figures(settings: Trainings, runs: Runs) -> list[Drawing]:
    """Draw figure 5, with a row for each data set."""
    caption = (
        "INFO figure 5: accuracy, MIR and HDR on held-out images at the end of training on labels "
        f"of several smoothness levels. {LINES.format(count_seeds(runs))} The dash-dotted line is "
        "the mean before training. The ochre band is as high as the claims allow the range over "
        f"the levels to be, {MINIMAL:g} of what training changes without smoothing, and lies "
        "around the middle of the means; claims compare the two seed by seed. Dotted: MIR at "
        "collapse to a simplex."
    )
    sets = runs.group("data")
    grid = [
        [
            partial(draw_panel, key, own, f", {data}" if len(sets) > 1 else "")
            for key in ("accuracy", "mir", "hdr")
        ]
        for data, own in sets.items()
    ]
    figure = draw_grid(grid, cell=(2.5, 2.6), legend="below", share_x=True)
    return [Drawing("fig-5", caption, figure)]


def draw_panel(key: str, runs: Runs, of: str, axes: Axes) -> None:
    """Draw a metric at the end of training against the level, with what training changes."""
    axis = "label smoothing ε"
    rows = [
        row.with_values({axis: run.settings.label_smoothing})
        for run in runs
        for row in run.path("test")[-1:]
    ]
    draw_metric(axes, rows, axis, key)
    judged = key if key == "accuracy" else f"{key}_batch"
    courses = [ends(run.path("test"), judged) for run in runs.where(label_smoothing=0.0)]
    start = average([before for before, _ in courses])
    draw_reference(axes, start, "before training", "-.")
    change = average([abs(after - before) for before, after in courses])
    middles = [average(numbers) for numbers in collect_points(rows, axis, judged).values()]
    draw_yardstick(axes, middles, MINIMAL * change, f"{MINIMAL:g} of the change by training")
    if key == "mir":
        draw_collapse(axes, runs)
    axes.set_xticks(sorted({run.settings.label_smoothing for run in runs}))
    axes.set_ylim(bottom=0)
    axes.set_title(f"{'Accuracy' if key == 'accuracy' else key.upper()}{of}")


EXPERIMENT = Experiment(
    id="info/label-smoothing",
    title="Matrix information under label smoothing",
    question=(
        "Networks trained on labels of several smoothness levels. INFO says that accuracy, MIR "
        "and HDR vary little with the level."
    ),
    source="INFO section 5.3, figure 5",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "375 GPU-hours (estimated)", "small": "8 minutes on one core"},
    parts=train_with_classes,
    claims=CLAIMS,
    figures=draw_figures,
    columns=("epoch", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
)
