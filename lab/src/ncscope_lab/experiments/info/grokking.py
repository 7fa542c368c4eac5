"""INFO section 5.5, figure 7: a transformer learns addition modulo p by heart, then by the rule.

The paper has p = 113: a transformer of one layer without normalisation on the input ``a b =``,
trained by AdamW on all training pairs at every step. It states neither the betas nor the number of
steps nor the initialisation. Here the betas are those of Nanda et al., there are 20,000 steps, and
weights have variance 1/width. The small scale is the paper's, stopped after 14,000 steps. Its
seeds, 12 to 19, determine the training pairs (30 % of all) and the weights. Accuracies are measured
at about 120 log-spaced steps, MIR and HDR of all pairs at about 32 of them, by batch also every 250
steps: on seeds 6 to 11 they were not, and two measurements late in training were too far apart to
judge the rise of HDR between them.

The transformer and its training stand in `modular_addition`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from pydantic import Field

from ncscope.metrics.information import collapse_mir
from ncscope.report import panels
from ncscope_lab.claims import Claim, above, below
from ncscope_lab.experiment import Experiment, Part
from ncscope_lab.experiments.info.information_runs import claim_by_batch
from ncscope_lab.experiments.info.modular_addition import Grokking, grokking_events
from ncscope_lab.figures import draw_grid, draw_reference
from ncscope_lab.quantities import (
    Quantity,
    Run,
    Runs,
    last,
    ratio,
    values,
    zero_error_row,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.runs.settings import Config


class InfoGrokking(Config):
    """Settings of the experiment."""

    training: Grokking = Field(Grokking(), description="Settings of every run.")
    seeds: tuple[int, ...] = Field((0,), min_length=1, description="Seeds of the runs.")


PAPER = InfoGrokking(
    training=Grokking(
        modulus=113,
        train_share=0.3,
        width=128,
        heads=4,
        hidden=512,
        steps=20_000,
        learning_rate=1e-3,
        betas=(0.9, 0.98),
        weight_decay=1.0,
        measurements=40,
        accuracy_measurements=200,
    ),
    seeds=(0, 1, 2),
)
SMALL = InfoGrokking(
    training=Grokking(
        modulus=113,
        train_share=0.3,
        steps=14_000,  # of seeds 3 to 5, one had not found the rule after 7,000
        measurements=32,  # eight or more between the two phases, a step being a factor of 1.35
        accuracy_measurements=120,
        batch_every=250,
    ),
    seeds=(12, 13, 14, 15, 16, 17, 18, 19),  # borders were chosen on seeds 0 to 2
)

# The paper states no borders.
NEAR_CHANCE = 0.05  # largest excess over 1/p that counts as "nearly" guessing
LEARNT = 0.99  # accuracy from which on a split counts as learnt
LONG_AFTER = 10  # least multiple of the memorisation steps that counts as long after
CHANGED = 0.05  # least change of a ratio that counts
HALF = 0.5  # HDR counts as declined if it halves
MOST = 2 / 3  # least share of all rises that the largest makes if HDR rises at once

SOURCE = "INFO, section 5.5 and figure 7"
SPLITS: Mapping[str, str] = {"train": "training pairs", "test": "held-out pairs"}


def steps_to(split: str, accuracy: float = 1.0) -> Quantity:
    """Return the quantity of the first measured step with this accuracy or more, NaN without."""

    def compute(run: Run) -> float:
        row = zero_error_row(run.path(split), accuracy)
        return math.nan if row is None else row.epoch

    return Quantity(f"steps to an accuracy of {accuracy:g} on {SPLITS[split]}", compute)


def by_heart(key: str, name: str) -> Quantity:
    """Return the quantity of a held-out metric at the first step of training accuracy 1."""

    def compute(run: Run) -> float:
        known = steps_to("train")(run)
        rows = (row for row in run.path("test") if row.step == known)
        return next((float(row[key]) for row in rows), math.nan)

    return Quantity(name, compute)


class Course(NamedTuple):
    """A ratio over training, cut into phases; the later two are empty if no rule is learnt.

    Attributes:
        heart: Up to the first measurement at which all training pairs are known by heart.
        then: From there until just before the rule is learnt.
        before: Up to that place, from the start.
        rule: From the rule on.
        after: From the training pairs known by heart to the end.
    """

    heart: Sequence[float]
    then: Sequence[float]
    before: Sequence[float]
    rule: Sequence[float]
    after: Sequence[float]


def of_splits(compute: Callable[[Course], float], key: str) -> Mapping[str, Callable[[Run], float]]:
    """Return the quantity of a ratio's course on each split.

    A quantity is NaN while the training pairs are not known by heart, or without its phase.
    """

    def quantity(run: Run, split: str) -> float:
        path = [row for row in run.path(split) if key in row]
        numbers = values(path, key)
        known, rule = (
            next((at for at, row in enumerate(path) if row.step >= step), None)
            for step in (steps_to("train")(run), steps_to("test", LEARNT)(run))
        )
        if known is None or not all(map(math.isfinite, numbers)):
            return math.nan
        end = rule or 0
        later = numbers[end:] if rule else []
        heart, after = numbers[: known + 1], numbers[known:]
        course = Course(heart, numbers[known:end], numbers[:end], later, after)
        return compute(course)

    return {name: partial(quantity, split=split) for split, name in SPLITS.items()}


def memorise(course: Course) -> float:
    """Return the change until the training pairs are known by heart."""
    return course.heart[-1] - course.heart[0]


def search(course: Course) -> float:
    """Return the change from then until just before the rule is learnt."""
    return course.then[-1] - course.then[0] if course.then else math.nan


def below_the_minimum(course: Course) -> float:
    """Return the least value with the rule, minus the least before."""
    return min(course.rule) - min(course.before) if course.rule else math.nan


class Rise(NamedTuple):
    """A rise by more than `CHANGED`, which ends where the values fall by as much.

    Attributes:
        low: Value from which it begins.
        peak: Highest value.
        least: Least value after the peak, until the next rise; the peak if none follows.
    """

    low: float
    peak: float
    least: float


def list_rises(numbers: Sequence[float]) -> list[Rise]:
    """List the rises by more than `CHANGED`, without smaller ones between.

    Example:
        >>> list_rises([0.2, 0.02, 0.04, 0.2, 0.18, 0.03, 0.06])
        [Rise(low=0.02, peak=0.2, least=0.03)]
    """
    rises: list[Rise] = []
    low = peak = numbers[0]
    rising = False
    for number in numbers:
        if rising:
            peak = max(peak, number)
            if number < peak - CHANGED:
                rises.append(Rise(low, peak, number))
                low, rising = number, False
        else:
            low = min(low, number)
            if rises:
                rises[-1] = rises[-1]._replace(least=low)
            if number > low + CHANGED:
                peak, rising = number, True
    return [*rises, Rise(low, peak, peak)] if rising else rises


def rise_at_once(course: Course) -> float:
    """Return the largest rise once the training pairs are known by heart, if it makes most of all.

    Else 0: values in a random order rise often.
    """
    heights = [rise.peak - rise.low for rise in list_rises(course.after)]
    return max(heights) if heights and max(heights) > MOST * sum(heights) else 0.0


def share_left(course: Course) -> float:
    """Return the least value after the highest rise, until the next, over its peak."""
    rises = list_rises(course.after)
    if not course.rule or not rises:
        return math.nan
    highest = max(rises, key=lambda rise: rise.peak - rise.low)
    return ratio(highest.least, highest.peak)


def list_claims(settings: InfoGrokking) -> Sequence[Claim]:
    """Return the claims of section 5.5 on the accuracies, and on MIR and HDR in the two phases."""
    # A claim holds if the 95 % interval of the mean over the seeds lies in the region (of a ratio,
    # the geometric mean); of several splits, it must hold of both. A run that never knows the pairs
    # by heart, or never learns the rule, has no value for the phase after it: the claim is
    # undecided, also on the steps to the rule: the steps that such a run has made would bound them,
    # but then a network that learns nothing would pass. Ratios are judged over batches of 64 pairs;
    # those of all pairs are told beside, uncounted.
    first = "until the training pairs are known by heart"
    then = "then, until just before the rule is learnt"
    once = f"then HDR rises by more than {CHANGED}, for the most part at once"
    chance = Quantity("chance", lambda run: 1 / settings.training.modulus)
    near = Claim(
        text="when all training pairs are known by heart, held-out accuracy exceeds chance by "
        f"less than {NEAR_CHANCE}",
        source=SOURCE,
        quantity=by_heart("accuracy", "held-out accuracy") - chance,
        region=below(NEAR_CHANCE),
    )
    new = by_heart("accuracy_unmirrored", "accuracy on pairs held out in both orders") - chance
    return [
        replace(near, uncounted={"pairs held out in both orders": replace(near, quantity=new)}),
        Claim(
            text=f"held-out accuracy is 1 after {settings.training.steps:,} steps, in every run",
            source=SOURCE,
            quantity=last("accuracy", "test"),
            region=above(1 - 1e-9),
            rule="each",
            over="runs",
        ),
        Claim(
            text=f"learning the rule takes at least {LONG_AFTER} times as many steps as learning "
            "the training pairs by heart",
            source=SOURCE,
            quantity=steps_to("test", LEARNT) / steps_to("train", LEARNT),
            region=above(LONG_AFTER),
            scale="ratio",
        ),
        *(
            claim_by_batch(
                key,
                partial(of_splits, compute),
                text=f"batches of pairs: {text}, on training and on held-out pairs",
                source=SOURCE,
                unit="splits",
                region=region,
                scale="ratio" if compute is share_left else "plain",
            )
            for key, text, compute, region in (
                ("mir", f"{first}, MIR rises by more than {CHANGED}", memorise, above(CHANGED)),
                ("hdr", f"{first}, HDR falls by more than {CHANGED}", memorise, below(-CHANGED)),
                ("mir", f"{then}, MIR falls by more than {CHANGED}", search, below(-CHANGED)),
                ("hdr", once, rise_at_once, above(CHANGED)),
                ("mir", "with the rule MIR reaches its minimum", below_the_minimum, below(0)),
                (
                    "hdr",
                    "HDR then falls from its highest value to less than half of it",
                    share_left,
                    below(HALF),
                ),
            )
        ),
    ]


def draw_figures(settings: InfoGrokking, runs: Runs) -> list[Drawing]:
    """Draw figure 7, from batches as in the paper, and from all pairs."""
    unfinished = [run.name for run in runs if not run.rows]
    ruleless = [run.name for run in runs if run.rows and math.isnan(steps_to("test", LEARNT)(run))]
    fates = {"has not learnt it by the last step": ruleless, "is without results": unfinished}
    told = [f"{', '.join(names)} {fate}" for fate, names in fates.items() if names]
    fate = "; ".join(told) or "learnt by every seed"
    lines = (
        "A colour and a marker for each seed. Thick, held-out pairs; black and dashed on top, "
        "training pairs; dots, accuracy on pairs held out in both orders. Markers are "
        "measurements, in the accuracy every tenth. Vertical lines: first measured step of "
        f"training accuracy 1 and, dashed, of held-out accuracy {LEARNT}, with which the rule "
        f"counts as learnt ({fate}). Last, HDR late in training, on an even axis of steps. "
        f"Dotted: chance, 1/{settings.training.modulus}, and MIR at collapse to a simplex."
    )
    size = settings.training.batch_size
    batches = f", MIR and HDR as means over batches of {size}, as in the paper"
    return [
        Drawing(
            name,
            f"INFO figure 7: accuracy, MIR and HDR over training{how}. {lines}",
            draw_grid(
                [
                    *([partial(draw_panel, settings, runs, key)] for key in ("accuracy", mir, hdr)),
                    [partial(draw_late, settings, runs, hdr)],
                ],
                cell=(7.4, 1.9),
                legend="below",
            ),
        )
        for name, mir, hdr, how in (
            ("fig-7", "mir_batch", "hdr_batch", batches),
            ("fig-7-exact", "mir", "hdr", ", MIR and HDR of all pairs of a split"),
        )
    ]


INK, DOTS = "#1d2327", (0, (1, 1.5))
COLOURS = (*panels.SERIES, "#b0447f", "#5fa8d3", "#4f7a2c")
MARKERS = "oDs^vPX*"
LATE = 1 / 7
"""Share of the steps after which a panel shows HDR by itself: the rule is learnt late."""


def draw_panel(settings: InfoGrokking, runs: Runs, key: str, axes: Axes) -> None:
    """Draw a metric of both splits over all steps, on a logarithmic axis."""
    draw_courses(runs, key, axes)
    if key == "accuracy":
        axes.plot([], [], color=INK, linewidth=0.8, linestyle=panels.DASHED, label="training pairs")
        axes.plot([], [], color=INK, linewidth=1.1, linestyle=DOTS, label="held out both ways")
        draw_reference(axes, 1 / settings.training.modulus, "chance; at collapse")
    if key.startswith("mir"):
        draw_reference(axes, collapse_mir(settings.training.modulus))
    axes.set_title("Accuracy" if key == "accuracy" else key[:3].upper())
    axes.set_xscale("symlog", linthresh=1, linscale=0.3)
    axes.set_xlim(0, 1.1 * settings.training.steps)  # room for the last markers
    if key.startswith("hdr"):
        axes.set_xlabel("step")
    else:
        axes.tick_params(labelbottom=False)


def draw_late(settings: InfoGrokking, runs: Runs, key: str, axes: Axes) -> None:
    """Draw a metric of both splits late in training, on an even axis of steps."""
    steps = settings.training.steps
    draw_courses(runs, key, axes, LATE * steps)
    axes.set_title(f"{key[:3].upper()} from step {LATE * steps:,.0f} on")
    axes.set_xlim(LATE * steps, 1.02 * steps)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("step, evenly spaced")


def draw_courses(runs: Runs, key: str, axes: Axes, start: float = 0.0) -> None:
    """Draw a metric of both splits of every run, with the steps of memorising and generalising.

    Args:
        runs: Runs, one a seed.
        key: Key of the metric.
        axes: Axes to draw on.
        start: First step to draw.
    """
    every = 10 if key == "accuracy" else 1
    for index, run in enumerate(runs):
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        held_out, training = (
            [row for row in run.path(split) if key in row and row.step >= start]
            for split in ("test", "train")
        )
        axes.plot(values(held_out, "step"), values(held_out, key), color=colour, linewidth=1.6,
                  marker=marker, markersize=4, markevery=every,
                  label=f"{run.name}, held out")  # fmt: skip
        axes.plot(values(training, "step"), values(training, key), color=INK, linewidth=0.6,
                  linestyle=panels.DASHED, zorder=3)  # fmt: skip
        if key == "accuracy":
            new = values(held_out, "accuracy_unmirrored")
            axes.plot(values(held_out, "step"), new, color=colour, linewidth=1.1,
                      linestyle=DOTS)  # fmt: skip
        for step, style in (
            (steps_to("train")(run), "-"),
            (steps_to("test", LEARNT)(run), panels.DASHED),
        ):
            if step >= start:  # NaN if never
                axes.axvline(step, color=colour, linewidth=0.8, linestyle=style)


EXPERIMENT = Experiment(
    id="info/grokking",
    title="Matrix information while a transformer groks addition modulo p",
    question=(
        "A transformer of one layer memorises its training pairs, and generalises long after "
        "that. INFO says that MIR and HDR of representation and unembedding show both phases."
    ),
    source="INFO section 5.5, figure 7",
    scales={"paper": PAPER, "small": SMALL},
    cost={"paper": "72 minutes on one core", "small": "2.5 hours on one core"},
    parts=lambda settings: [
        Part(
            f"seed {seed}",
            settings.training.steps,
            partial(grokking_events, settings.training, seed),
            trains=True,
        )
        for seed in settings.seeds
    ],
    claims=list_claims,
    figures=draw_figures,
    unit="step",
    columns=("step", "accuracy", "loss", "mir", "hdr", "mir_batch", "hdr_batch"),
)
