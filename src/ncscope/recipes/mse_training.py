"""What the recipes of the MSE paper's networks share: the runs, the terminal phase, the grid.

Source: MSE A.1-A.5, which refers to Papyan, Han and Donoho 2020 for preprocessing and optimiser.
VGG, ResNet and DenseNet on five data sets, images of 28 pixels a side padded to 32, no
augmentation; SGD with momentum 0.9, weight decay 5e-4, batches of 128, 350 epochs, the learning
rate divided by 10 after 1/3 and 2/3 of them. The paper picks every network's learning rate from a
sweep and does not print it; here all have the one of the authors' public notebook.

At the small scale the same losses, optimiser and schedule, with a small network of each kind on
handwritten digits and on warped ones (where a small DenseNet stays at 1 % of error, and is left
out), 80 epochs under one loss or 40 under two, and batches of 32, so that what the epochs lack is
partly made up for in steps.

As in Papyan, Han and Donoho 2020 the training error counts as zero from 99.9 % of accuracy on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.probing.records import Row
from ncscope.recipes.recipe import Claim
from ncscope.recipes.trained import history
from ncscope.report import panels
from ncscope.report.histories import epochs_panel
from ncscope.training.optimisation import Optimisation
from ncscope.training.settings import Training

Loss = Literal["mse", "cross-entropy"]
Draw = Callable[[Axes, Sequence[str]], None]
"""Draws the runs of these names into one cell of the grid."""

BOTH: tuple[Loss, ...] = ("mse", "cross-entropy")
DEPTHS: Mapping[str, tuple[str, ...]] = {
    "mnist": ("vgg11", "resnet18", "densenet40"),
    "fashion-mnist": ("vgg11", "resnet18", "densenet250"),
    "svhn": ("vgg13", "resnet34", "densenet40"),
    "cifar10": ("vgg11", "resnet50", "densenet100"),
    "stl10": ("vgg11", "resnet18", "densenet201"),
}
"""The networks on each data set: the table of MSE A.2."""

SMALL: Mapping[str, tuple[str, ...]] = {
    "digits": ("small-vgg", "small-resnet", "small-densenet"),
    "warped-digits": ("small-vgg", "small-resnet"),
}
"""The networks on each data set of the small scale."""

ARCHITECTURES = ("VGG", "ResNet", "DenseNet")
SIDES = {"mnist": 32, "fashion-mnist": 32}
RATE = 0.0679
ZERO_ERROR = 0.999
"""Training accuracy from which on the error counts as zero."""

LOSSES = {"mse": "MSE", "cross-entropy": "cross-entropy"}
COLOURS = {"mse": panels.ACCENT, "cross-entropy": panels.SERIES[2]}


class MSETraining(BaseModel):
    """Settings of the recipes that train the MSE paper's networks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, Training] = Field(description="Training runs by name.")


def paper_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Every network of the paper under every loss, by name.

    Args:
        losses: To train under.
        groups: Of metrics, of the last layer.
    """
    return {
        _name(data, network, loss): _training(data, network, loss, groups, 350, 128, 40)
        for data, networks in DEPTHS.items()
        for network in networks
        for loss in losses
    }


def small_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Small networks of the three kinds on data that need no download, under every loss, by name.

    Args:
        losses: To train under; for half as many epochs if they are two.
        groups: Of metrics, of the last layer.
    """
    epochs = 80 // len(losses)
    return {
        _name(data, network, loss): _training(data, network, loss, groups, epochs, 32, 12)
        for data, networks in SMALL.items()
        for network in networks
        for loss in losses
    }


def _name(data: str, network: str, loss: str) -> str:
    return f"{data}, {network}, {loss}"


def _training(
    data: str,
    network: str,
    loss: Loss,
    groups: tuple[str, ...],
    epochs: int,
    batch_size: int,
    measurements: int,
) -> Training:
    optimisation = Optimisation(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=RATE,
        weight_decay=5e-4,
        schedule="steps",
    )
    return Training(
        data=data,
        network=network,
        image_size=SIDES.get(data),
        loss=loss,
        optimisation=optimisation,
        measurements=measurements,
        layers=(),
        groups=groups,
    )


def under(config: MSETraining, loss: Loss) -> list[str]:
    """Names of the runs under one loss."""
    return [name for name, training in config.runs.items() if training.loss == loss]


def rivals(config: MSETraining) -> dict[str, tuple[str, str]]:
    """The two runs, under MSE and under cross-entropy, by what they share: data and network."""
    found: dict[str, dict[str, str]] = {}
    for name, training in config.runs.items():
        found.setdefault(f"{training.data}, {training.network}", {})[training.loss] = name
    return {shared: (pair["mse"], pair["cross-entropy"]) for shared, pair in found.items()}


def terminal_phase(rows: Sequence[Row], name: str, split: str = "train") -> tuple[Row, Row] | None:
    """The rows of a split at the first measured epoch of zero training error, and at the last.

    Args:
        rows: Of a study.
        name: Of the run.
        split: Whose rows.

    Returns:
        Both, or None for a run that errs on its training set at every measured epoch.
    """
    seen = history(rows, name)
    reached = next((row for row in seen if float(row["accuracy"]) >= ZERO_ERROR), None)
    if reached is None:
        return None
    path = history(rows, name, split)
    return next(row for row in path if row["epoch"] == reached["epoch"]), path[-1]


def changes(
    rows: Sequence[Row], names: Sequence[str], key: str, split: str = "train"
) -> dict[str, tuple[float, float] | None]:
    """A metric at zero training error and at the end, by run; None where that is never reached."""
    found: dict[str, tuple[float, float] | None] = {}
    for name in names:
        ends = terminal_phase(rows, name, split)
        found[name] = None if ends is None else (float(ends[0][key]), float(ends[1][key]))
    return found


def in_words(found: Mapping[str, tuple[float, float] | None], scale: str = ".3g") -> str:
    """The changes of a metric, run by run."""
    words = {
        name: "never at zero error" if pair is None else f"{pair[0]:{scale}} to {pair[1]:{scale}}"
        for name, pair in found.items()
    }
    return "; ".join(f"{name}: {text}" for name, text in words.items())


def falls(claim: str, found: Mapping[str, tuple[float, float] | None]) -> Claim:
    """The claim that a metric falls in the terminal phase of every run, or is nil throughout.

    Args:
        claim: In words.
        found: Its `changes`.
    """
    good = [pair is not None and (pair[1] < pair[0] or pair == (0, 0)) for pair in found.values()]
    evidence = f"in {sum(good)} of {len(good)} networks; {in_words(found)}"
    return {"claim": claim, "held": len(good) > 0 and all(good), "evidence": evidence}


def zero_error(rows: Sequence[Row], names: Sequence[str]) -> Claim:
    """The claim that training goes past zero error, without which nothing else means anything."""
    reached = {name: terminal_phase(rows, name) for name in names}
    good = [
        ends is not None and int(ends[0]["epoch"]) < int(ends[1]["epoch"])
        for ends in reached.values()
    ]
    words = [
        f"{name}: {'never' if ends is None else 'epoch {}'.format(ends[0]['epoch'])}"
        for name, ends in reached.items()
    ]
    return {
        "claim": "Every network has zero training error before the last epoch",
        "held": len(good) > 0 and all(good),
        "evidence": "first measured at " + "; ".join(words),
    }


def curves(
    panel: Axes, rows: Sequence[Row], name: str, shown: Mapping[str, tuple[str, str]]
) -> None:
    """Metrics of one run over training, on the training set, with the epoch of zero error.

    Args:
        panel: Where.
        rows: Of the study.
        name: Of the run.
        shown: By metric, the name and the colour of its curve.
    """
    ends = terminal_phase(rows, name)
    epoch = None if ends is None else float(ends[0]["epoch"])
    for key, (curve, colour) in shown.items():
        path = {curve: history(rows, name)}
        epochs_panel(panel, path, key, zero_error=epoch, colours=(colour,))
        epoch = None  # once is enough


def compared(
    panel: Axes,
    config: MSETraining,
    rows: Sequence[Row],
    names: Sequence[str],
    key: str,
    split: str,
) -> None:
    """One metric of runs under different losses, with the epochs of zero error in their colours.

    Args:
        panel: Where.
        config: Of the recipe.
        rows: Of the study.
        names: Of the runs.
        key: Of the metric.
        split: Whose rows.
    """
    for name in names:
        loss = config.runs[name].loss
        colour = COLOURS[loss]
        path = {LOSSES[loss]: history(rows, name, split)}
        epochs_panel(panel, path, key, colours=(colour,))
        ends = terminal_phase(rows, name)
        if ends is not None:
            epoch = float(ends[0]["epoch"])
            panel.axvline(epoch, color=colour, linewidth=0.9, linestyle=panels.DASHED)


def grid(config: MSETraining, names: Sequence[str], quantity: str, draw: Draw) -> Figure:
    """The paper's arrangement: a column a data set, a row a kind of network.

    Args:
        config: Of the recipe.
        names: Of the runs to draw.
        quantity: What the vertical axes show.
        draw: Draws a cell.
    """
    runs = {name: config.runs[name] for name in names}
    columns = list(dict.fromkeys(training.data for training in runs.values()))
    kinds = [kind for kind in ARCHITECTURES if kind in map(_kind, runs.values())]
    with mpl.rc_context(panels.STYLE):
        width = max(5.6, 0.6 + 2.9 * len(columns))
        figure = Figure(figsize=(width, 0.5 + 2.2 * len(kinds)), layout="constrained")
        axes = figure.subplots(len(kinds), len(columns), squeeze=False)
        for kind, line in zip(kinds, axes.tolist(), strict=True):
            for data, panel in zip(columns, line, strict=True):
                cell = [n for n, t in runs.items() if (_kind(t), t.data) == (kind, data)]
                _cell(panel, cell, f"{kind}, {data}", draw)
        _finish(figure, axes.tolist())
        figure.supylabel(quantity, fontsize=9)
    return figure


def _kind(training: Training) -> str:
    return next(kind for kind in ARCHITECTURES if kind.lower() in training.network)


def _cell(panel: Axes, names: Sequence[str], title: str, draw: Draw) -> None:
    panel.set_visible(bool(names))
    if names:
        draw(panel, names)
        panel.set_title(title)


def _finish(figure: Figure, lines: Sequence[Sequence[Axes]]) -> None:
    """One legend for all cells, and the epochs named below the last cell of a column alone."""
    for column in zip(*lines, strict=True):
        for panel in [panel for panel in column if panel.get_visible()][:-1]:
            panel.set_xlabel("")
    curves = dict(_labelled(lines))
    figure.legend(
        list(curves.values()), list(curves), loc="outside upper left", ncols=len(curves) or 1
    )


def _labelled(lines: Sequence[Sequence[Axes]]) -> Iterator[tuple[str, Artist]]:
    for line in lines:
        for panel in line:
            handles, labels = panel.get_legend_handles_labels()
            yield from zip(labels, handles, strict=True)
