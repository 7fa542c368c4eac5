"""The parts of the MSE loss while networks train: is the classifier the least-squares one?

Source: MSE section 2, theorems 1 and 2, figure 2. Command: ``ncscope reproduce
mse/decomposition``. Settings of all scales: `ncscope.lab.papers.mse.training`.

The parts are measured on two kinds of features of the training set: in evaluation mode, with the
running statistics of the batch norms, and in training mode, with the statistics of each batch. The
classifier is trained on the latter; the paper does not say which it measures.

Results at the small scale for VGG, ResNet and DenseNet (geometric means of three seeds): at the end
the part off the path was 3.2, 3.6 and 9.4 % of the least-squares part in training mode (held), 6.0,
5.5 and 13 % in evaluation mode (undecided); in the mean over epochs from zero error on 9.1, 8.4 and
10 % in training mode (undecided), 42, 23 and 22 % in evaluation mode (not held). In VGG and ResNet
the share in training mode after the rate's first fall is a fifth of that before it (held). NC1 is
the dominant part, and NC2/3 falls fastest (held).
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from ncscope.lab.evidence.judging import above, below
from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.figures import curves, grid
from ncscope.lab.papers.mse.rates import at_best_rates, rate_tables, swept_runs
from ncscope.lab.papers.mse.terminal import (
    FACTOR,
    over_networks,
    terminal_phase,
    zero_epoch,
)
from ncscope.lab.papers.mse.training import (
    MSETraining,
    medium_runs,
    paper_runs,
    small_runs,
    typical,
)
from ncscope.lab.papers.mse.training_mode import TRAINING_MODE, training_mode
from ncscope.lab.papers.trained import average, ends, history, ratio, training_parts, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.runs.recipe import Part, Recipe
from ncscope.report import panels
from ncscope.report.claims import Claim

GROUPS = ("nc4", "mse")
MODES: Mapping[str, str] = {"train": "evaluation mode", TRAINING_MODE: "training mode"}
"""Splits of the rows, with the mode of the network in words."""
NEGLIGIBLE = 0.1
"""A part counts as negligible below this share of the others; the paper states no number."""
DOMINANT = 2.0
"""Least factor between the dominant part and each other part."""
HALF = 0.5
"""Largest share of a value that remains if something else causes most of it."""

CURVES: Mapping[str, tuple[str, str]] = {
    "mse_nc1": ("NC1", panels.ACCENT),
    "mse_nc23": ("NC2/3", panels.SERIES[2]),
    "mse_off_path": ("off the central path", panels.SERIES[4]),
}
"""The parts of the loss, with the name and the colour of each curve."""


def _parts(config: MSETraining) -> list[Part]:
    """Return a part for each network and seed."""
    return training_parts(swept_runs(config), extra=training_mode)


def _claims(config: MSETraining, rows: Sequence[Observation]) -> list[Claim]:
    """Test which part is negligible, and why it is not, which dominates and which falls first."""
    rows = at_best_rates(config, rows)
    return [
        *(_negligible_at_end(config, rows, split) for split in MODES),
        *(_negligible(config, rows, split) for split in MODES),
        _by_statistics(config, rows),
        _by_rate(config, rows),
        _dominant(config, rows),
        _fastest(config, rows),
    ]


def _parts_of_loss(path: Sequence[Observation]) -> list[list[float]]:
    return [values(path, key) for key in CURVES]


def shares(path: Sequence[Observation]) -> list[float]:
    """Return the part off the central path as a share of the least-squares part, at each epoch.

    Args:
        path: Rows of the last layer over training.
    """
    return [ratio(off, nc1 + nc23) for nc1, nc23, off in zip(*_parts_of_loss(path), strict=True)]


def mean_share(path: Sequence[Observation]) -> float:
    """Return the mean over epochs of `shares`, between measurements on a line.

    Args:
        path: Rows of the last layer over training.

    Returns:
        The mean; NaN for fewer than two epochs.
    """
    epochs = [row.epoch for row in path]
    if len(epochs) < 2:
        return math.nan
    return float(np.trapezoid(shares(path), epochs)) / (epochs[-1] - epochs[0])


def _negligible_at_end(config: MSETraining, rows: Sequence[Observation], split: str) -> Claim:
    paths = {name: history(rows, name, split) for name in typical(config)}
    return over_networks(
        f"at the end the part off the central path, features in {MODES[split]}, is below "
        f"{NEGLIGIBLE:.0%} of the least-squares part, in most networks",
        config,
        {name: shares(path)[-1] if path else math.nan for name, path in paths.items()},
        source="MSE, figure 2",
        region=below(NEGLIGIBLE),
        scale="ratio",
    )


def _negligible(config: MSETraining, rows: Sequence[Observation], split: str) -> Claim:
    paths = {name: terminal_phase(rows, name, split) for name in typical(config)}
    told = {
        name: f"largest {max(shares(path)):.1%}, last {shares(path)[-1]:.1%}"
        for name, path in paths.items()
        if path
    }
    return over_networks(
        f"from zero training error on the part off the central path, features in {MODES[split]}, "
        f"is below {NEGLIGIBLE:.0%} of the least-squares part in the mean over epochs, in most "
        "networks",
        config,
        {name: mean_share(path) for name, path in paths.items()},
        source="MSE, figure 2",
        region=below(NEGLIGIBLE),
        scale="ratio",
        told=told,
    )


def _by_statistics(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Test that the features' normalisation causes most of what evaluation mode shows."""
    both = {
        name: [mean_share(terminal_phase(rows, name, split)) for split in MODES]
        for name in typical(config)
    }
    return over_networks(
        "from zero training error on most of the share off the central path in evaluation mode is "
        "due to the batch norms' running statistics: in training mode it is less than half, in "
        "the mean over epochs, in most networks",
        config,
        {name: ratio(training, evaluation) for name, (evaluation, training) in both.items()},
        source="ours",
        region=below(HALF),
        scale="ratio",
        told={
            name: f"{training:.1%} of {evaluation:.1%}"
            for name, (evaluation, training) in both.items()
        },
    )


def _by_rate(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Compare the epochs before the first fall of the learning rate with those after it."""
    around = {}
    for name in typical(config):
        optimisation = config.runs[name].optimisation
        fall = optimisation.epochs * min(optimisation.milestones, default=math.nan)
        path = history(rows, name, TRAINING_MODE)
        course = list(zip([row.epoch for row in path], shares(path), strict=True))
        before = [share for epoch, share in course if fall / 2 < epoch <= fall]
        after = [share for epoch, share in course if fall < epoch <= 2 * fall]
        around[name] = average(before), average(after)
    return over_networks(
        "what remains off the central path in training mode is due to the learning rate: the share "
        "is less than half in the stage after the rate's first fall as in the second half of the "
        "stage before it, in most networks",
        config,
        {name: ratio(after, before) for name, (before, after) in around.items()},
        source="ours",
        region=below(HALF),
        scale="ratio",
        told={name: f"{before:.1%} to {after:.1%}" for name, (before, after) in around.items()},
    )


def _dominant(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    last = {name: [ends(history(rows, name), key)[1] for key in CURVES] for name in typical(config)}
    return over_networks(
        f"at the end the NC1 part of the loss is at least {DOMINANT:g} times each other part, in "
        "most networks",
        config,
        {name: ratio(nc1, max(others)) for name, (nc1, *others) in last.items()},
        source="MSE, figure 2",
        region=above(DOMINANT),
        scale="ratio",
        told={name: _listed(*parts) for name, parts in last.items()},
    )


def _fastest(config: MSETraining, rows: Sequence[Observation]) -> Claim:
    """Test which part falls fastest, by the factor from its largest value to that at zero error."""
    factors = {}
    for name in typical(config):
        zero = zero_epoch(rows, name)
        before = [] if zero is None else [x for x in history(rows, name) if x.epoch <= zero]
        found = [ratio(max(part), part[-1]) for part in _parts_of_loss(before) if part]
        factors[name] = found or [math.nan] * len(CURVES)
    return over_networks(
        "from its largest value to zero training error the NC2/3 part falls by a larger factor "
        f"than each other part, at least {FACTOR:g} times theirs, in most networks",
        config,
        {name: ratio(nc23, max(nc1, off)) for name, (nc1, nc23, off) in factors.items()},
        source="MSE, figure 2",
        region=above(FACTOR),
        scale="ratio",
        told={name: f"factors {_listed(*found)}" for name, found in factors.items()},
    )


def _listed(nc1: float, nc23: float, off: float) -> str:
    return f"{nc1:.3g}, {nc23:.3g} and {off:.3g}"


def _drawings(config: MSETraining, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw figure 2 of the paper in both modes."""
    rows = at_best_rates(config, rows)

    def draw(panel: Axes, names: Sequence[str], split: str) -> None:
        for run in names:
            curves(panel, rows, run, CURVES, split)

    names = {"train": "fig-2", TRAINING_MODE: "fig-2-training-mode"}
    return [
        Drawing(
            name,
            f"MSE figure 2, features in {MODES[split]}: parts of the MSE loss over training: the "
            "loss of the least-squares classifier from variability (NC1) and from the class means "
            "(NC2/3), and the excess of the network's classifier (off the central path); one curve "
            "for each seed, and dashed its first epoch of zero training error.",
            grid(config, list(config.runs), "part of the loss", partial(draw, split=split)),
        )
        for split, name in names.items()
    ]


RECIPE: Recipe[MSETraining] = Recipe(
    id="mse/decomposition",
    title="The parts of the MSE loss while networks train",
    lead=(
        "The MSE loss is the loss of the best classifier on the features, from variability and "
        "from the class means, plus the excess loss of the network's classifier. The paper says "
        "that the excess fades early: from then on the network is near the central path."
    ),
    source="MSE section 2, theorems 1 and 2, figure 2",
    config=MSETraining,
    parts=_parts,
    claims=_claims,
    drawings=_drawings,
    tables=rate_tables,
    columns=("epoch", "accuracy", "mse_loss", *CURVES),
    scales={
        "paper": MSETraining(runs=paper_runs(("mse",), GROUPS)),
        "medium": MSETraining(runs=medium_runs(("mse",), GROUPS)),
        "small": MSETraining(runs=small_runs(("mse",), GROUPS)),
    },
    cost={
        "paper": "75 GPU-hours (estimated)",
        "medium": "25 minutes of one GPU (estimated)",
        "small": "7 minutes on one core",
    },
)
