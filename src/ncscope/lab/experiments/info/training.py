"""INFO section 5.1, figures 1-2: accuracy, MIR and HDR on held-out images while a network trains.

The paper trains WRN-28-2 on CIFAR-10 and WRN-28-8 on CIFAR-100. The small scale trains a wide
residual network of 64 features on warped digits and on 20 classes of generated patterns.
"""

import math
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from ncscope.lab.claims import Claim, above, below, tell_ends, within
from ncscope.lab.experiment import Experiment, Trainings
from ncscope.lab.experiments.info.information_runs import (
    BY_BATCH,
    PAPER_NETWORKS,
    claim_by_batch,
    collapse_mir_of,
    draw_collapse,
    name_runs,
    paper_training,
    small_training,
    train_with_classes,
)
from ncscope.lab.figures import Curve, draw_grid, draw_over_epochs
from ncscope.lab.intervals import SHARE
from ncscope.lab.quantities import AnyQuantity, Run, Runs, average, last, last_over_first, values
from ncscope.lab.report.drawing import Drawing
from ncscope.report import panels

PAPER = Trainings(
    runs=name_runs(
        paper_training(data, seed, every=50) for data in PAPER_NETWORKS for seed in (0, 1, 2)
    )
)
SMALL = Trainings(
    runs=name_runs(
        small_training(data, epochs=30, seed=seed, every=3)
        for data in ("warped-digits", "patterns-20")
        for seed in (3, 4, 5)  # settings and margins were chosen on seeds 0 to 2
    )
)

FACTOR = 1.1  # least factor of a rise or fall; the paper states no number
NEAR = 0.05  # largest distance that counts as near; the paper states no number


def list_claims(settings: Trainings) -> Sequence[Claim]:
    """Return the claims of section 5.1."""
    first, second = "INFO, section 5.1 and figure 1", "INFO, section 5.1 and figure 2"
    claim = partial(
        claim_by_batch, tell=partial(tell_ends, split="test"), groups="data", unit="data sets"
    )
    return [
        claim(
            "mir",
            partial(last_over_first, split="test"),
            text=f"MIR rises over training by a factor of {FACTOR}, on every data set {BY_BATCH}",
            source=first,
            region=above(FACTOR),
            scale="ratio",
        ),
        claim(
            "mir",
            distance_to_collapse,
            text=f"MIR ends within {NEAR} of its value at collapse to a simplex, on every data set "
            f"{BY_BATCH}",
            source="INFO, theorem 4.2 and figure 1",
            region=within(NEAR),
        ),
        claim(
            "mir",
            partial(agreement, sign=1),
            text="accuracy and MIR change the same way more often than by chance, on every data "
            f"set {BY_BATCH}",
            source=first,
            region=above(0),
            bounds=(-1.0, 1.0),
        ),
        claim(
            "hdr",
            partial(last_over_first, split="test"),
            text=f"HDR falls over training by a factor of {FACTOR}, on every data set {BY_BATCH}",
            source=second,
            region=below(1 / FACTOR),
            scale="ratio",
        ),
        claim(
            "hdr",
            partial(last, split="test"),
            text=f"HDR ends within {NEAR} of 0, its value at collapse, on every data set "
            f"{BY_BATCH}",
            source="INFO, theorem 4.2 and figure 2",
            region=below(NEAR),
            bounds=SHARE,
        ),
        claim(
            "hdr",
            partial(agreement, sign=-1),
            text="accuracy and HDR change opposite ways more often than by chance, on every data "
            f"set {BY_BATCH}",
            source=second,
            region=above(0),
            bounds=(-1.0, 1.0),
        ),
    ]


def draw_figures(settings: Trainings, runs: Runs) -> list[Drawing]:
    """Draw figures 1 and 2, with a column for each data set."""
    over = (
        "on held-out images over training; lines are means over seeds, bands show their range. "
        "Solid: exact values of the whole set; dashed: means over batches of 64."
    )
    return [
        Drawing(
            name,
            f"INFO figure {name[-1]}: accuracy and {key.upper()} {over}",
            draw_grid(
                [[partial(draw_panel, key, data, own) for data, own in runs.group("data").items()]],
                cell=(4.2, 3.4),
                legend="beside",
            ),
        )
        for name, key in (("fig-1", "mir"), ("fig-2", "hdr"))
    ]


def draw_panel(key: str, data: str, runs: Runs, axes: Axes) -> None:
    """Draw a ratio, exact and by batch, and the accuracy on one data set."""
    name = key.upper()
    curves = [
        Curve("accuracy", "accuracy", panels.SOFT),
        Curve(key, f"{name}, exact"),
        Curve(f"{key}_batch", f"{name}, batches of 64", style=panels.DASHED),
        Curve(f"{key}_centered", f"{name} of centred features, exact", panels.SECOND),
    ]
    draw_over_epochs(axes, runs, curves, "test")
    if key == "mir":
        draw_collapse(axes, runs, "MIR at collapse to a simplex")
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(f"{name} and accuracy, {data}")


def distance_to_collapse(key: str) -> AnyQuantity:
    """Return the quantity of the last MIR minus its value at collapse to a simplex."""
    return lambda run: last(key, "test")(run) - collapse_mir_of(run)


def agreement(key: str, sign: int) -> AnyQuantity:
    """Return how much more often than by chance accuracy and a metric change with a relative sign.

    By chance: with the shares of intervals in which each rises, but independent. Both have a trend,
    so chance exceeds one half. Intervals without a change are left out; NaN without intervals.
    """

    def quantity(run: Run) -> float:
        path = run.path("test")
        accuracy, ratios = values(path, "accuracy"), values(path, key)
        if not all(map(math.isfinite, accuracy + ratios)):
            return math.nan
        steps = [(b - a, sign * (d - c)) for a, b, c, d in zip(
            accuracy, accuracy[1:], ratios, ratios[1:], strict=False)]  # fmt: skip
        rises = [(float(a > 0), float(b > 0)) for a, b in steps if a and b]
        first, second = (average([pair[index] for pair in rises]) for index in (0, 1))
        together = average([float(a == b) for a, b in rises])
        return together - first * second - (1 - first) * (1 - second)

    return quantity


EXPERIMENT = Experiment(
    id="info/training",
    title="Matrix information while a network trains",
    question=(
        "INFO says that over training MIR rises with the accuracy towards its value at collapse, "
        "and HDR falls towards 0. Both are computed on the whole held-out set, and in batches of "
        "64 as in the paper."
    ),
    source="INFO section 5.1, figures 1-2",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "75 GPU-hours (estimated)", "small": "5 minutes on one core"},
    parts=lambda settings: train_with_classes(settings.runs),
    claims=list_claims,
    figures=draw_figures,
    columns=("epoch", "accuracy", "mir", "mir_batch", "hdr", "hdr_batch"),
)
