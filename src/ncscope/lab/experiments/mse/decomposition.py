"""MSE section 2 and figure 2: the parts of the MSE loss; is the classifier the least-squares one?

The parts are measured on two kinds of features of the training set: in evaluation mode, with the
running statistics of the batch norms, and in training mode, with the statistics of each batch. The
classifier is trained on the latter; the paper does not say which it measures.

The networks are those of `ncscope.lab.experiments.mse.collapse`, with the settings in
`ncscope.lab.experiments.mse.networks`.
"""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial

import numpy as np
from torch import nn

from ncscope.data.loaders import make_training_loader
from ncscope.data.order import EpochBatches
from ncscope.lab.claims import above, below
from ncscope.lab.experiment import Experiment
from ncscope.lab.experiments.mse.learning_rates import (
    select_best_rates,
    tabulate_rates,
    train_sweep,
)
from ncscope.lab.experiments.mse.networks import MSETrainings, paper_runs, small_runs
from ncscope.lab.experiments.mse.terminal_phase import (
    FACTOR,
    ZERO_ERROR,
    claim_of_most,
    draw_curves,
    draw_networks,
    select_phase,
)
from ncscope.lab.figures import Curve
from ncscope.lab.observations import Observation
from ncscope.lab.quantities import (
    Path,
    Quantity,
    Run,
    Runs,
    average,
    ends,
    ratio,
    values,
    zero_error_row,
)
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


def late_share(split: str) -> Quantity:
    """Return the quantity of the mean share off the path from zero training error on."""
    return Quantity(
        f"mean share in {MODES[split]}", lambda run: mean_share(select_phase(run, split))
    )


def share_of_stage(stage: str) -> Quantity:
    """Return the quantity of the mean share in training mode, before the rate's first fall or after.

    Before: in the second half of the first stage; after: in a second stage of equal length.
    """

    def compute(run: Run) -> float:
        optimisation, path = run.settings.optimisation, run.path(TRAINING_MODE)
        fall = optimisation.epochs * min(optimisation.milestones, default=math.nan)
        start, end = (fall / 2, fall) if stage == "before" else (fall, 2 * fall)
        course = zip([row.epoch for row in path], measure_shares(path), strict=True)
        return average([share for epoch, share in course if start < epoch <= end])

    return Quantity(f"mean share {stage} the fall", compute)


def over_others(key: str, value: Callable[[Path, str], float], name: str) -> Quantity:
    """Return the quantity of a number of one part of the loss over the largest of the others.

    Args:
        key: Key of the part.
        value: Number of a part, of a run's rows and the key of the part.
        name: Name of the number.
    """

    def of_part(key: str) -> Quantity:
        return Quantity(f"{name} of {key}", lambda run: value(run.path(), key))

    parts = {curve.key: of_part(curve.key) for curve in CURVES}
    others = [part for other, part in parts.items() if other != key]
    return Quantity(
        f"{name} over that of the others",
        lambda run: ratio(parts[key](run), max(other(run) for other in others)),
        list(parts.values()),
    )


def fall_to_zero_error(path: Path, key: str) -> float:
    """Return the factor by which a part falls from its largest value to zero training error."""
    zero = zero_error_row(path, ZERO_ERROR)
    early = [] if zero is None else [row for row in path if row.epoch <= zero.epoch]
    course = values(early, key) or [math.nan]
    return ratio(max(course), course[-1])


CLAIMS = [
    *(
        claim_of_most(
            text=f"at the end the part off the central path, features in {mode}, is below "
            f"{NEGLIGIBLE:.0%} of the least-squares part, in most networks",
            source="MSE, figure 2",
            quantity=last_share(split),
            region=below(NEGLIGIBLE),
        )
        for split, mode in MODES.items()
    ),
    *(
        claim_of_most(
            text=f"from zero training error on the part off the central path, features in {mode}, "
            f"is below {NEGLIGIBLE:.0%} of the least-squares part in the mean over epochs, in most "
            "networks",
            source="MSE, figure 2",
            quantity=late_share(split),
            region=below(NEGLIGIBLE),
        )
        for split, mode in MODES.items()
    ),
    claim_of_most(
        text="from zero training error on most of the share off the central path in evaluation "
        "mode is due to the batch norms' running statistics: in training mode it is less than "
        "half, in the mean over epochs, in most networks",
        source="ours",
        quantity=late_share(TRAINING_MODE) / late_share("train"),
        region=below(HALF),
    ),
    claim_of_most(
        text="what remains off the central path in training mode is due to the learning rate: the "
        "share is less than half in the stage after the rate's first fall as in the second half of "
        "the stage before it, in most networks",
        source="ours",
        quantity=share_of_stage("after") / share_of_stage("before"),
        region=below(HALF),
    ),
    claim_of_most(
        text=f"at the end the NC1 part of the loss is at least {DOMINANT:g} times each other part, "
        "in most networks",
        source="MSE, figure 2",
        quantity=over_others("mse_nc1", lambda path, key: ends(path, key)[1], "last value"),
        region=above(DOMINANT),
    ),
    claim_of_most(
        text="from its largest value to zero training error the NC2/3 part falls by a larger "
        f"factor than each other part, at least {FACTOR:g} times theirs, in most networks",
        source="MSE, figure 2",
        quantity=over_others("mse_nc23", fall_to_zero_error, "factor"),
        region=above(FACTOR),
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
    claims=CLAIMS,
    figures=draw_figures,
    tables=tabulate_rates,
    columns=("epoch", "accuracy", "mse_loss", "mse_nc1", "mse_nc23", "mse_off_path"),
)
