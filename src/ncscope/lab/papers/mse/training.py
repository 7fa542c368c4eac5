"""Tools shared by the recipes of the MSE paper's networks: runs, terminal phase, figure grid.

Source: MSE A.1-A.5, which refers to Papyan, Han and Donoho 2020 for preprocessing and optimiser.
The paper's scale trains VGG, ResNet and DenseNet on five data sets. As in that predecessor, MNIST
has 5000 images per class and SVHN 4600. Images of 28 pixels per side are padded to 32, and there is
no augmentation. The optimiser is SGD with momentum 0.9, weight decay 5e-4 and batches of 128 for
350 epochs; the learning rate is divided by 10 after 1/3 and 2/3 of the epochs. The paper selects
every network's learning rate in a sweep and does not print it; here all networks have the rate of
the authors' public notebook.

The small scale has the same losses, optimiser and schedule, with a small network of each kind on
handwritten digits and on warped digits; the DenseNet on warped digits is left out, as its error
stays at 1 %. There are 80 epochs under one loss or 40 under each of two. Batches of 32 increase the
number of steps, which partly compensates for the fewer epochs.

As in Papyan, Han and Donoho 2020, the training error counts as zero from 99.9 % accuracy on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.evidence.judging import decided
from ncscope.lab.observations import Observation
from ncscope.lab.papers.trained import (
    ends,
    geometric_mean,
    history,
    interpolation_epoch,
    on_runs,
    ratio,
)
from ncscope.lab.report.histories import epochs_panel
from ncscope.lab.training.optimisation import Optimisation
from ncscope.lab.training.settings import Training
from ncscope.report import panels
from ncscope.report.claims import Claim

Loss = Literal["mse", "cross-entropy"]
Draw = Callable[[Axes, Sequence[str]], None]
"""Function that draws the named runs into one cell of the grid."""
Result = TypeVar("Result")
Change = tuple[float, float] | None
"""A metric at the first measured epoch of zero training error, and at the end."""

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

SEEDS: Mapping[tuple[str, str], tuple[int, ...]] = {("digits", "small-vgg"): (0, 1, 2)}
"""Seeds of the cheapest network, at the small scale under two losses; others have seed 0 only."""

ARCHITECTURES = ("VGG", "ResNet", "DenseNet")
SIDES = {"mnist": 32, "fashion-mnist": 32}
BALANCED = {"mnist": 50_000, "svhn": 46_000}
"""Training images, equally many per class, of the sets whose classes differ in size."""
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
    """Return settings of every network of the paper under every loss, by name.

    Args:
        losses: Losses to train under.
        groups: Groups of metrics of the last layer.
    """
    return {
        _name(data, network, loss): _training(data, network, loss, groups, 350, 128, 40)
        for data, networks in DEPTHS.items()
        for network in networks
        for loss in losses
    }


def small_runs(losses: Sequence[Loss], groups: tuple[str, ...]) -> dict[str, Training]:
    """Return settings of small networks of the three kinds under every loss, by name.

    Args:
        losses: Losses to train under; two losses have half as many epochs each as one.
        groups: Groups of metrics of the last layer.
    """
    epochs, both = 80 // len(losses), len(losses) > 1
    return {
        _name(data, network, loss, seed): _training(
            data, network, loss, groups, epochs, 32, 12, seed
        )
        for data, networks in SMALL.items()
        for network in networks
        for seed in (SEEDS.get((data, network), (0,)) if both else (0,))
        for loss in losses
    }


def _name(data: str, network: str, loss: str, seed: int = 0) -> str:
    return f"{data}, {network}, {loss}" + (f", seed {seed}" if seed else "")


def _training(
    data: str,
    network: str,
    loss: Loss,
    groups: tuple[str, ...],
    epochs: int,
    batch_size: int,
    measurements: int,
    seed: int = 0,
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
        balanced=BALANCED.get(data),
        loss=loss,
        optimisation=optimisation,
        seed=seed,
        measurements=measurements,
        layers=(),
        groups=groups,
    )


def under(config: MSETraining, loss: Loss) -> list[str]:
    """Return the names of the runs under one loss."""
    return [name for name, training in config.runs.items() if training.loss == loss]


def _network_of(training: Training) -> str:
    """Return data and network of a run, the name by which seeds and losses are grouped."""
    return f"{training.data}, {training.network}"


def by_network(config: MSETraining, results: Mapping[str, Result]) -> dict[str, list[Result]]:
    """Group results of runs whose settings differ only in the seed.

    Args:
        config: Settings of the recipe.
        results: Results of the runs of one loss, by name of the run.
    """
    networks: dict[str, list[Result]] = {}
    for name, one in results.items():
        networks.setdefault(_network_of(config.runs[name]), []).append(one)
    return networks


def rivals(config: MSETraining) -> dict[str, list[tuple[str, str]]]:
    """Return by network the pairs of runs that differ only in the loss, MSE and cross-entropy."""
    runs_by_loss: dict[tuple[str, int], dict[str, str]] = {}
    for name, training in config.runs.items():
        runs_by_loss.setdefault((_network_of(training), training.seed), {})[training.loss] = name
    pairs: dict[str, list[tuple[str, str]]] = {}
    for (network, _), pair in runs_by_loss.items():
        if len(pair) == len(BOTH):
            pairs.setdefault(network, []).append((pair["mse"], pair["cross-entropy"]))
    return pairs


def compare(text: str, config: MSETraining, by_run: Mapping[str, float], *, lower: bool) -> Claim:
    """Test that a metric is lower (or higher) under MSE than under cross-entropy.

    The verdict uses the geometric mean of the ratio, first over the seeds of each network and then
    over the networks.

    Args:
        text: Text of the claim.
        config: Settings of the recipe.
        by_run: Values of the metric, by run.
        lower: Claim a lower value if True, a higher one if False.
    """
    pairs = {n: [(by_run[a], by_run[b]) for a, b in seeds] for n, seeds in rivals(config).items()}
    ratios = [geometric_mean([ratio(*pair) for pair in seeds]) for seeds in pairs.values()]
    whole, sign = geometric_mean(ratios), 1 if lower else -1
    good = sum(sign * one < sign for one in ratios)
    per_network = [
        f"{name}: {', '.join(f'{mse:.3g} against {ce:.3g}' for mse, ce in seeds)}"
        for name, seeds in pairs.items()
    ]
    return decided(
        text,
        source="MSE",
        held=sign * whole < sign,
        evidence=f"ratio {whole:.3g}, {'below' if lower else 'above'} 1 in {good} of "
        f"{len(ratios)} networks; {'; '.join(per_network) or 'none was trained under both'}",
    )


def last(
    rows: Sequence[Observation], names: Sequence[str], key: str, split: str
) -> dict[str, float]:
    """Return each run's last value of a metric."""
    return {name: ends(history(rows, name, split), key)[1] for name in names}


def terminal_phase(
    rows: Sequence[Observation], name: str, split: str = "train"
) -> list[Observation]:
    """Select the rows of a split from the first measured epoch of zero training error on.

    Args:
        rows: Rows of a study.
        name: Name of the run.
        split: Split of the rows.

    Returns:
        Selected rows; none for a run with training errors at every measured epoch.
    """
    since = interpolation_epoch(history(rows, name), ZERO_ERROR)
    if since is None:
        return []
    return [row for row in history(rows, name, split) if row.epoch >= since]


def changes(
    rows: Sequence[Observation], names: Sequence[str], key: str, split: str = "train"
) -> dict[str, Change]:
    """Return each run's metric at zero training error and at the end; None if never reached."""
    paths = {name: terminal_phase(rows, name, split) for name in names}
    return {name: ends(path, key) if path else None for name, path in paths.items()}


def in_words(change: Change, scale: str = ".3g") -> str:
    """Write a metric at zero training error and at the end as text."""
    if change is None:
        return "never at zero error"
    return f"{change[0]:{scale}} to {change[1]:{scale}}"


def fell(change: Change) -> bool:
    """Return whether a metric fell in the terminal phase, or was zero throughout."""
    return change is not None and (change[1] < change[0] or change == (0, 0))


def falls(text: str, by_run: Mapping[str, Change]) -> Claim:
    """Test that a metric fell in every run.

    Args:
        text: Text of the claim.
        by_run: `changes` of the metric.
    """
    return on_runs(
        text, {name: (fell(one), in_words(one)) for name, one in by_run.items()}, source="MSE"
    )


def zero_error(rows: Sequence[Observation], names: Sequence[str]) -> Claim:
    """Test that training goes past zero error, on which the other claims depend."""
    paths = {name: terminal_phase(rows, name) for name in names}
    verdicts = {
        name: (len(path) > 1, f"epoch {path[0].epoch}" if path else "never")
        for name, path in paths.items()
    }
    text = "Every network has zero training error before the last epoch"
    return on_runs(text, verdicts, "first measured; ", source="MSE")


def curves(
    panel: Axes, rows: Sequence[Observation], name: str, shown: Mapping[str, tuple[str, str]]
) -> None:
    """Draw metrics of one run on the training set over training, with the epoch of zero error.

    Args:
        panel: Panel to draw on.
        rows: Rows of the study.
        name: Name of the run.
        shown: Name and colour of the curve, by metric.
    """
    epoch = interpolation_epoch(history(rows, name), ZERO_ERROR)
    for key, (curve, colour) in shown.items():
        path = {curve: history(rows, name)}
        epochs_panel(panel, path, key, zero_error=epoch, colours=(colour,))
        epoch = None  # draw the line only once


def compared(
    panel: Axes,
    config: MSETraining,
    rows: Sequence[Observation],
    names: Sequence[str],
    key: str,
    split: str,
) -> None:
    """Draw a metric of runs under different losses, with epochs of zero error in their colours.

    Args:
        panel: Panel to draw on.
        config: Settings of the recipe.
        rows: Rows of the study.
        names: Names of the runs.
        key: Key of the metric.
        split: Split of the rows.
    """
    for name in names:
        loss = config.runs[name].loss
        colour = COLOURS[loss]
        path = {LOSSES[loss]: history(rows, name, split)}
        epochs_panel(panel, path, key, colours=(colour,))
        epoch = interpolation_epoch(history(rows, name), ZERO_ERROR)
        if epoch is not None:
            panel.axvline(epoch, color=colour, linewidth=0.9, linestyle=panels.DASHED)


def grid(config: MSETraining, names: Sequence[str], quantity: str, draw: Draw) -> Figure:
    """Arrange panels as in the paper: one column per data set, one row per kind of network.

    Args:
        config: Settings of the recipe.
        names: Names of the runs to draw.
        quantity: Quantity on the vertical axes.
        draw: Function that draws a cell.
    """
    runs = {name: config.runs[name] for name in names}
    columns = list(dict.fromkeys(training.data for training in runs.values()))
    kinds = sorted(dict.fromkeys(map(_kind, runs.values())), key=_row)
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
    kinds = (kind for kind in ARCHITECTURES if kind.lower() in training.network)
    return next(kinds, training.network)


def _row(kind: str) -> int:
    """Return the row of a kind of network: the paper's kinds in its order, then others."""
    return ARCHITECTURES.index(kind) if kind in ARCHITECTURES else len(ARCHITECTURES)


def _cell(panel: Axes, names: Sequence[str], title: str, draw: Draw) -> None:
    panel.set_visible(bool(names))
    if names:
        draw(panel, names)
        panel.set_title(title)


def _finish(figure: Figure, lines: Sequence[Sequence[Axes]]) -> None:
    """Add one legend for all cells, and label the epochs only below the last cell of a column."""
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
