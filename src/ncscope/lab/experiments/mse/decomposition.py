"""MSE section 2 and figure 2: the parts of the MSE loss; is the classifier the least-squares one?

The parts are measured on two kinds of features of the training set: in evaluation mode, with the
running statistics of the batch norms, and in training mode, with the statistics of each batch. The
classifier is trained on the latter; the paper does not say which it measures.

The networks are those of `ncscope.lab.experiments.mse.collapse`, with the settings in
`ncscope.lab.experiments.mse.networks`.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import partial

import numpy as np
from torch import nn

from ncscope.data.loaders import make_training_loader
from ncscope.data.order import EpochBatches
from ncscope.lab.claims import Claim, above, below
from ncscope.lab.experiment import Experiment
from ncscope.lab.experiments.mse.learning_rates import (
    select_best_rates,
    tabulate_rates,
    train_sweep,
)
from ncscope.lab.experiments.mse.networks import MSETrainings, paper_runs, small_runs
from ncscope.lab.experiments.mse.terminal_phase import (
    FACTOR,
    claim_by_network,
    draw_curves,
    draw_networks,
    find_zero_error,
    select_phase,
)
from ncscope.lab.figures import Curve
from ncscope.lab.observations import Observation
from ncscope.lab.quantities import Path, Run, Runs, average, ends, ratio, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.training.loop import EpochEnd
from ncscope.lab.training.supervised import Bench
from ncscope.measurement.model import measure_layers
from ncscope.measurement.options import Options
from ncscope.report import panels

GROUPS = ("nc4", "mse")
PAPER = MSETrainings(runs=paper_runs(("mse",), GROUPS))
SMALL = MSETrainings(runs=small_runs(("mse",), GROUPS))

TRAINING_MODE = "train, training mode"
"""Name of the split in the rows of features in training mode."""
MODES: Mapping[str, str] = {"train": "evaluation mode", TRAINING_MODE: "training mode"}
CURVES = (
    Curve("mse_nc1", "NC1"),
    Curve("mse_nc23", "NC2/3", panels.SERIES[2]),
    Curve("mse_off_path", "off the central path", panels.SERIES[4]),
)
"""The parts of the loss."""

NEGLIGIBLE = 0.1  # a part is negligible below this share of the others; the paper has no number
DOMINANT = 2.0  # least factor between the dominant part and each other part
HALF = 0.5  # largest share of a value that remains if something else causes most of it


def list_claims(settings: MSETrainings) -> list[Claim]:
    """Return which part is negligible, and why it is not, which dominates and which falls first."""
    figure = "MSE, figure 2"
    return [
        *(
            claim_by_network(
                f"at the end the part off the central path, features in {mode}, is below "
                f"{NEGLIGIBLE:.0%} of the least-squares part, in most networks",
                partial(last_share, split=split),
                source=figure,
                region=below(NEGLIGIBLE),
            )
            for split, mode in MODES.items()
        ),
        *(
            claim_by_network(
                f"from zero training error on the part off the central path, features in {mode}, "
                f"is below {NEGLIGIBLE:.0%} of the least-squares part in the mean over epochs, in "
                "most networks",
                partial(late_share, split=split),
                source=figure,
                region=below(NEGLIGIBLE),
                write=partial(write_shares, split=split),
            )
            for split, mode in MODES.items()
        ),
        claim_by_network(
            "from zero training error on most of the share off the central path in evaluation mode "
            "is due to the batch norms' running statistics: in training mode it is less than half, "
            "in the mean over epochs, in most networks",
            lambda run: ratio(late_share(run, TRAINING_MODE), late_share(run, "train")),
            source="ours",
            region=below(HALF),
            write=lambda run: (
                f"{late_share(run, TRAINING_MODE):.1%} of {late_share(run, 'train'):.1%}"
            ),
        ),
        claim_by_network(
            "what remains off the central path in training mode is due to the learning rate: the "
            "share is less than half in the stage after the rate's first fall as in the second "
            "half of the stage before it, in most networks",
            lambda run: ratio(*reversed(shares_around_fall(run))),
            source="ours",
            region=below(HALF),
            write=lambda run: " to ".join(f"{share:.1%}" for share in shares_around_fall(run)),
        ),
        claim_by_network(
            f"at the end the NC1 part of the loss is at least {DOMINANT:g} times each other part, "
            "in most networks",
            lambda run: part_over_others(last_parts(run), 0),
            source=figure,
            region=above(DOMINANT),
            write=lambda run: write_parts(last_parts(run)),
        ),
        claim_by_network(
            "from its largest value to zero training error the NC2/3 part falls by a larger factor "
            f"than each other part, at least {FACTOR:g} times theirs, in most networks",
            lambda run: part_over_others(fall_factors(run), 1),
            source=figure,
            region=above(FACTOR),
            write=lambda run: f"factors {write_parts(fall_factors(run))}",
        ),
    ]


def draw_figures(settings: MSETrainings, runs: Runs) -> list[Drawing]:
    """Draw figure 2 of the paper in both modes."""
    return [
        Drawing(
            name,
            f"MSE figure 2, features in {MODES[split]}: parts of the MSE loss over training: the "
            "loss of the least-squares classifier from variability (NC1) and from the class means "
            "(NC2/3), and the excess of the network's classifier (off the central path); one curve "
            "for each seed, and dashed its first epoch of zero training error.",
            draw_networks(
                runs, "part of the loss", partial(draw_curves, curves=CURVES, split=split)
            ),
        )
        for split, name in {"train": "fig-2", TRAINING_MODE: "fig-2-training-mode"}.items()
    ]


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


def last_share(run: Run, split: str) -> float:
    """Return the share off the path at the end."""
    return (measure_shares(run.path(split)) or [math.nan])[-1]


def late_share(run: Run, split: str) -> float:
    """Return the mean share off the path from zero training error on."""
    return mean_share(select_phase(run, split))


def write_shares(run: Run, split: str) -> str:
    """Write the largest and the last share from zero training error on; nothing without one."""
    shares = measure_shares(select_phase(run, split))
    return f"largest {max(shares):.1%}, last {shares[-1]:.1%}" if shares else ""


def shares_around_fall(run: Run) -> tuple[float, float]:
    """Return the mean share in training mode before and after the learning rate first falls.

    Before: in the second half of the first stage; after: in a second stage of equal length.
    """
    optimisation, path = run.settings.optimisation, run.path(TRAINING_MODE)
    fall = optimisation.epochs * min(optimisation.milestones, default=math.nan)
    course = list(zip([row.epoch for row in path], measure_shares(path), strict=True))
    before = [share for epoch, share in course if fall / 2 < epoch <= fall]
    after = [share for epoch, share in course if fall < epoch <= 2 * fall]
    return average(before), average(after)


def last_parts(run: Run) -> list[float]:
    """Return the parts of the loss at the end."""
    return [ends(run.path(), curve.key)[1] for curve in CURVES]


def fall_factors(run: Run) -> list[float]:
    """Return the factor by which each part falls from its largest value to zero training error."""
    zero = find_zero_error(run)
    path = [] if zero is None else [row for row in run.path() if row.epoch <= zero]
    courses = [values(path, curve.key) or [math.nan] for curve in CURVES]
    return [ratio(max(course), course[-1]) for course in courses]


def part_over_others(parts: list[float], index: int) -> float:
    """Return one part over the largest of the others."""
    return ratio(parts[index], max(parts[:index] + parts[index + 1 :]))


def write_parts(parts: list[float]) -> str:
    """Write the three parts."""
    nc1, nc23, off = parts
    return f"{nc1:.3g}, {nc23:.3g} and {off:.3g}"


def measure_training_mode(bench: Bench, end: EpochEnd) -> list[Observation]:
    """Measure the MSE parts of features in training mode, in the batches of the next epoch.

    The parameters are those at the end of the epoch, for all batches.

    Args:
        bench: The run.
        end: State of training at the end of the epoch.
    """
    settings, fabric = bench.settings, bench.fabric
    order = EpochBatches(
        len(bench.data.train),
        settings.optimisation.batch_size,
        settings.steps_seed,
        fabric.global_rank,
        fabric.world_size,
    )
    order.begin(end.epoch, 0)
    options = Options(
        layers=(),
        groups=("mse",),
        weight_decay=settings.optimisation.decay_of_loss,
        progress=False,
    )
    copy = copy_with_batch_statistics(bench.learner.evaluated)
    loader = make_training_loader(bench.data.train, order, bench.workers)
    layer = measure_layers(copy, loader, options).record.layers[-1]
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
    cost={"paper": "75 GPU-hours (estimated)", "small": "7 minutes on one core"},
    parts=partial(train_sweep, extra=measure_training_mode),
    select=select_best_rates,
    claims=list_claims,
    figures=draw_figures,
    tables=tabulate_rates,
    columns=("epoch", "accuracy", "mse_loss", "mse_nc1", "mse_nc23", "mse_off_path"),
)
