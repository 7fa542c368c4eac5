"""MSE section 2 and figure 2: the parts of the MSE loss; is the classifier the least-squares one?

Recipe of the small scale: a small VGG and a small ResNet train for 1,500 epochs, and a small
DenseNet for 750, on scikit-learn's digits (1,437 images of 10 classes); another small VGG for 300
on 4,000 digits of MNIST. The loss is the MSE; SGD has momentum 0.9, batches of 128, weight decay
5e-4 and rate 0.0679 (that of the authors' notebook; the paper sweeps rates and prints none),
divided by 10 after 1/3 and 2/3 of the epochs; no augmentation. Seeds are 11 to 18; others served to
choose the settings. The training set is measured at about 24 log-spaced epochs, the first before
training.

At the paper's scale, which we have not run, VGG, ResNet and DenseNet of the depths of A.2 train so
on five data sets for 350 epochs, from seeds 1 to 3, and are measured at about 40 epochs.
`ncscope_lab.experiments.mse.networks` holds the settings of both scales, and why they are so.

Two kinds of features are measured: in training mode, with the statistics of each batch, and in
evaluation mode, with the running statistics of the batch norms. The classifier is trained on the
former, so the claims are about them; the paper does not say which it measures. The paper calls the
part off the path negligible from an early epoch on, but does not say which. We take means over
epochs from zero error on, or from one epoch after the rate's first fall. We suspect that the noise
of the steps keeps the classifier off the path while the rate is high; a claim of ours tests it.
"""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from torch import nn

from ncscope.data.loaders import make_training_loader
from ncscope.data.order import EpochBatches
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.report import panels
from ncscope_lab.claims import Claim, Region, above, below
from ncscope_lab.experiment import Experiment
from ncscope_lab.experiments.mse.networks import (
    MSETrainings,
    paper_runs,
    select_best_rates,
    small_runs,
    tabulate_rates,
    train_sweep,
)
from ncscope_lab.experiments.mse.terminal_phase import (
    claim_of_most,
    draw_curves,
    draw_networks,
    find_zero_error,
    select_phase,
)
from ncscope_lab.figures import Curve, draw_reference, scale_epochs
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import (
    Path,
    Quantity,
    Run,
    Runs,
    average,
    last,
    ratio,
    values,
)
from ncscope_lab.report.drawing import Drawing
from ncscope_lab.training.loop import EpochEnd
from ncscope_lab.training.supervised import Bench

GROUPS = ("nc1", "nc2", "nc3", "nc4", "mse")  # those of mse/collapse
PAPER = MSETrainings(runs=paper_runs(("mse",), GROUPS))
SMALL = MSETrainings(runs=small_runs(("mse",), GROUPS))

EVALUATION_MODE, TRAINING_MODE = "train", "train, training mode"
"""Splits of the rows by mode of the batch norms, both of the training set. The training mode leaves
out the incomplete batch, 29 of 1,437 images or 32 of 4,000, others each epoch."""
MODES: Mapping[str, str] = {EVALUATION_MODE: "evaluation mode", TRAINING_MODE: "training mode"}
CURVES = (
    Curve("mse_nc1", "NC1"),
    Curve("mse_nc23", "NC2/3", panels.SERIES[2], panels.DASHED),
    Curve("mse_off_path", "off the central path", panels.SECOND, ":"),
)
"""The parts of the loss."""

NEGLIGIBLE = 0.1  # a part is negligible below this share of the others; the paper has no number
DOMINANT = 2.0  # least factor between the dominant part and each other part
HALF = 0.5  # largest share of a value that remains if something else causes most of it
FACTOR = 1.1  # least factor between two falls of which one is said to be larger


def measure_shares(path: Path) -> list[float]:
    """Return the part off the central path as a share of the least-squares part, at each epoch."""
    parts = zip(*(values(path, curve.key) for curve in CURVES), strict=True)
    return [ratio(off, nc1 + nc23) for nc1, nc23, off in parts]


def mean_share(path: Path) -> float:
    """Return the mean over epochs of the shares, between measurements on a line.

    Args:
        path: Rows of the last layer over training.

    Returns:
        The mean; NaN for fewer than two epochs.
    """
    epochs = [row.epoch for row in path]
    if len(epochs) < 2:
        return math.nan
    return float(np.trapezoid(measure_shares(path), epochs)) / (epochs[-1] - epochs[0])


def last_share(split: str) -> Quantity:
    """Return the quantity of the share off the path at the end."""
    return Quantity(
        "share at the end", lambda run: (measure_shares(run.path(split)) or [math.nan])[-1]
    )


def find_fall(run: Run) -> float:
    """Return the number of epochs before the learning rate first falls; NaN if it never does."""
    optimisation = run.settings.optimisation  # whose milestones are shares of the epochs
    return float(optimisation.epochs * min(optimisation.milestones, default=math.nan))


def share_after_fall(split: str) -> Quantity:
    """Return the quantity of the mean share from one epoch after the rate's first fall on."""

    def compute(run: Run) -> float:
        fall = find_fall(run)
        return mean_share([row for row in run.path(split) if row.epoch >= fall + 1])

    return Quantity("mean share after the rate's first fall", compute)


def share_past_zero_error(split: str) -> Quantity:
    """Return the quantity of the mean share off the path from zero training error on.

    It is NaN for a run that never has zero error, or at its last measurement only.
    """
    return Quantity(
        f"mean share in {MODES[split]}", lambda run: mean_share(select_phase(run, split))
    )


def share_of_stage(stage: Literal["before", "after"]) -> Quantity:
    """Return the quantity of the mean share in training mode before or after the rate falls.

    Before: in the second half of the first stage; after: in a second stage of equal length. The
    mean is that of the measured epochs, two or three in each at the small scale.
    """

    def compute(run: Run) -> float:
        fall, path = find_fall(run), run.path(TRAINING_MODE)
        start, end = (fall / 2, fall) if stage == "before" else (fall, 2 * fall)
        course = zip([row.epoch for row in path], measure_shares(path), strict=True)
        return average([share for epoch, share in course if start < epoch <= end])

    return Quantity(f"mean share {stage} the fall", compute)


def fall_to_zero_error(key: str, split: str) -> Quantity:
    """Return the quantity of a part's factor of fall, from its own largest value to zero error.

    The largest is that of the epochs up to zero error.
    """

    def compute(run: Run) -> float:
        zero = find_zero_error(run)
        early = [row for row in run.path(split) if zero is not None and row.epoch <= zero]
        course = values(early, key) or [math.nan]
        return ratio(max(course), course[-1])

    return Quantity(f"factor of {key}", compute)


def over_others(key: str, number: Callable[[str, str], Quantity], split: str) -> Quantity:
    """Return the quantity of a number of one part of the loss over the largest of the others.

    Args:
        key: Key of the part.
        number: Function that returns the number of a part, from its key and the split.
        split: Split of the rows.
    """
    parts = {curve.key: number(curve.key, split) for curve in CURVES}
    others = [part for other, part in parts.items() if other != key]
    return Quantity(
        f"that of {key} over the larger of the others",
        lambda run: ratio(parts[key](run), float(np.max([other(run) for other in others]))),
        parts=list(parts.values()),
    )


def claim_in_training_mode(text: str, quantity: Callable[[str], Quantity], region: Region) -> Claim:
    """Make a claim of figure 2 about features in training mode, judged in evaluation mode beside.

    Args:
        text: Text of the claim.
        quantity: Function of the split of the rows.
        region: Values for which the claim is true.
    """
    claim = claim_of_most(
        text=text, source="MSE, figure 2", quantity=quantity(TRAINING_MODE), region=region
    )
    beside = replace(claim, quantity=quantity(EVALUATION_MODE))
    return replace(claim, uncounted={"features in evaluation mode": beside})


# The rule of all claims, which `claim_of_most` sets: every run, of one network and seed, gives one
# ratio. For each data set and kind of network the claim holds if the 95 % interval of the geometric
# mean over the seeds lies in the region; it is not held if the interval lies outside, and undecided
# otherwise, or if a run has no value. "In most networks": it must hold of two thirds of these
# (three of the small scale's four), the ResNet and the DenseNet on STL-10 apart, which the paper
# calls outliers; it is not held if too few still can. Zero training error begins, in both modes, at
# the first measured epoch with an accuracy of 99.9 % on training images in evaluation mode.
CLAIMS = [
    claim_in_training_mode(
        "at the end the part off the central path, features in training mode, is below "
        f"{NEGLIGIBLE:.0%} of the least-squares part, in most networks",
        last_share,
        below(NEGLIGIBLE),
    ),
    claim_in_training_mode(
        "from one epoch after the rate's first fall on the part off the central path, features in "
        f"training mode, is below {NEGLIGIBLE:.0%} of the least-squares part in the mean over "
        "epochs, in most networks",
        share_after_fall,
        below(NEGLIGIBLE),
    ),
    claim_in_training_mode(
        "from zero training error on the part off the central path, features in training mode, is "
        f"below {NEGLIGIBLE:.0%} of the least-squares part in the mean over epochs, in most "
        "networks",
        share_past_zero_error,
        below(NEGLIGIBLE),
    ),
    claim_of_most(
        text="from zero training error on most of the share off the central path in evaluation "
        "mode is due to the batch norms' running statistics: in training mode it is less than "
        "half, in the mean over epochs, in most networks",
        source="ours",
        quantity=share_past_zero_error(TRAINING_MODE) / share_past_zero_error(EVALUATION_MODE),
        region=below(HALF),
    ),
    # Rate and time change together. The stage before counts from its second half on, by when the
    # share should have stopped falling by itself; that it has is not tested.
    claim_of_most(
        text="what remains off the central path in training mode is due to the learning rate: in "
        "the stage after the rate's first fall the share is less than half of that in the second "
        "half of the stage before it, in most networks",
        source="ours",
        quantity=share_of_stage("after") / share_of_stage("before"),
        region=below(HALF),
    ),
    claim_in_training_mode(
        "at the end the NC1 part of the loss, features in training mode, is at least "
        f"{DOMINANT:g} times each other part, in most networks",
        lambda split: over_others("mse_nc1", last, split),
        above(DOMINANT),
    ),
    claim_in_training_mode(
        "from its largest value to zero training error the NC2/3 part, features in training mode, "
        f"falls by a larger factor than each other part, at least {FACTOR:g} times theirs, in most "
        "networks",
        lambda split: over_others("mse_nc23", fall_to_zero_error, split),
        above(FACTOR),
    ),
]


def draw_figures(settings: MSETrainings, runs: Runs) -> list[Drawing]:
    """Draw figure 2 of the paper in both modes, and the share off the central path."""
    return [
        Drawing(
            "share",
            "Part of the MSE loss off the central path over the least-squares part, features in "
            "training mode (solid) and in evaluation mode (dashed); one curve of each for each "
            "seed, with a dot at its first measured epoch of zero training error. The horizontal "
            f"line is {NEGLIGIBLE:.0%}, below which the part is called negligible; the vertical "
            "line is the first fall of the learning rate.",
            draw_networks(runs, "part off the path / least-squares part", draw_shares),
        ),
        *(
            Drawing(
                name,
                f"MSE figure 2, features in {MODES[split]}: parts of the MSE loss over training: "
                "the loss of the least-squares classifier from variability (NC1) and from the "
                "class means (NC2/3), and the excess of the network's classifier (off the central "
                "path); one curve of each for each seed, with a dot at its first measured epoch of "
                "zero training error.",
                draw_networks(
                    runs, "part of the loss", partial(draw_curves, curves=CURVES, split=split)
                ),
            )
            for split, name in {
                EVALUATION_MODE: "fig-2",
                TRAINING_MODE: "fig-2-training-mode",
            }.items()
        ),
    ]


def draw_shares(axes: Axes, runs: Runs) -> None:
    """Draw the share off the central path in both modes, its border, and the rate's first fall."""
    looks = {TRAINING_MODE: (panels.ACCENT, "-"), EVALUATION_MODE: (panels.SECOND, panels.DASHED)}
    drawn = [NEGLIGIBLE]
    for run in runs:
        zero = find_zero_error(run)
        for split, (colour, style) in looks.items():
            path = run.path(split)
            epochs, shares = [row.epoch for row in path], measure_shares(path)
            axes.plot(epochs, shares, color=colour, ls=style, lw=0.9, label=MODES[split])
            if zero in epochs:
                share = shares[epochs.index(zero)]
                axes.plot(zero, share, "o", color=colour, ms=4, label="zero training error")
            drawn += filter(math.isfinite, shares)
    axes.axvline(find_fall(runs[0]), color=panels.SOFT, lw=0.9, label="rate falls")
    draw_reference(axes, NEGLIGIBLE, f"{NEGLIGIBLE:.0%}", "-.")
    panels.make_logarithmic(axes, "y", drawn)
    scale_epochs(axes)


def measure_training_mode(bench: Bench, end: EpochEnd) -> list[Observation]:
    """Measure the MSE parts of features in training mode, in the batches of the next epoch.

    After the last epoch, these are the batches that another one would have. The parameters are
    those at the end of the epoch, for all batches.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
    """
    settings, fabric = bench.settings, bench.fabric
    order = EpochBatches(
        len(bench.data.train),
        settings.optimisation.batch_size,
        settings.steps_seed,  # that of training, so the batches are its next ones
        fabric.global_rank,
        fabric.world_size,
    )
    order.begin(end.epoch, 0)
    options = Options(
        layers=(),  # none but the classifier's input, which is always measured
        groups=("mse",),
        weight_decay=settings.optimisation.decay_of_loss,  # the lambda of the loss that is split
        progress=False,
    )
    # `evaluated` is the network itself here: no weights are averaged.
    copy = copy_with_batch_statistics(bench.learner.evaluated)
    loader = make_training_loader(bench.data.train, order, bench.workers)
    layer = measure_layers(copy, loader, options).record.last
    metrics = dict(layer.metrics)
    return [Observation(end.step, end.epoch, TRAINING_MODE, layer.layer, values=metrics)]


def copy_with_batch_statistics(model: nn.Module) -> nn.Module:
    """Return a copy whose batch norms use the statistics of the batch in evaluation mode too.

    The networks of the paper have no other module that depends on the mode.

    Args:
        model: Network; it is left as it is.
    """
    copy = deepcopy(model)
    for module in copy.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean = module.running_var = None
            module.num_batches_tracked = None
            module.track_running_stats = False
    return copy


EXPERIMENT = Experiment(
    id="mse/decomposition",
    title="The parts of the MSE loss while networks train",
    question=(
        "The MSE loss is the loss of the best classifier on the features, from variability and "
        "from the class means, plus the excess loss of the network's classifier. The paper says "
        "that the excess fades early: from then on the network is near the central path."
    ),
    source="MSE section 2, theorems 1 and 2, figure 2",
    scales={"paper": PAPER, "small": SMALL},
    cost={
        "paper": "75 GPU-hours (estimated)",
        "small": "160 minutes on one core; the run serves mse/collapse too",
    },
    parts=partial(train_sweep, extra=measure_training_mode),
    select=select_best_rates,  # with one rate a network, as at both scales, all runs
    claims=CLAIMS,
    figures=draw_figures,
    tables=tabulate_rates,
    columns=("epoch", "accuracy", "mse_loss", "mse_nc1", "mse_nc23", "mse_off_path"),
)
