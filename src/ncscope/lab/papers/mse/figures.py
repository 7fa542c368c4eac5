"""Figures in the arrangement of the MSE paper: a column per data set, a row per kind of network."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.observations import Observation
from ncscope.lab.papers.mse.terminal import zero_epoch
from ncscope.lab.papers.mse.training import ARCHITECTURES, LOSSES, MSETraining, kind_of
from ncscope.lab.papers.trained import history
from ncscope.lab.report.histories import epochs_panel
from ncscope.report import panels

Draw = Callable[[Axes, Sequence[str]], None]
"""Function that draws the named runs into one cell of the grid."""

COLOURS = {"mse": panels.ACCENT, "cross-entropy": panels.SERIES[2]}


def curves(
    panel: Axes,
    rows: Sequence[Observation],
    name: str,
    shown: Mapping[str, tuple[str, str]],
    split: str = "train",
) -> None:
    """Draw metrics of one run over training, with the epoch of zero error.

    Args:
        panel: Panel to draw on.
        rows: Rows of the study.
        name: Name of the run.
        shown: Name and colour of the curve, by metric.
        split: Split of the rows.
    """
    epoch = zero_epoch(rows, name)
    for key, (curve, colour) in shown.items():
        path = {curve: history(rows, name, split)}
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
        epoch = zero_epoch(rows, name)
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
    kinds = sorted(dict.fromkeys(map(kind_of, runs.values())), key=_row)
    with mpl.rc_context(panels.STYLE):
        width = max(5.6, 0.6 + 2.9 * len(columns))
        figure = Figure(figsize=(width, 0.5 + 2.2 * len(kinds)), layout="constrained")
        axes = figure.subplots(len(kinds), len(columns), squeeze=False)
        for kind, line in zip(kinds, axes.tolist(), strict=True):
            for data, panel in zip(columns, line, strict=True):
                cell = [n for n, t in runs.items() if (kind_of(t), t.data) == (kind, data)]
                _cell(panel, cell, f"{kind}, {data}", draw)
        _finish(figure, axes.tolist())
        figure.supylabel(quantity, fontsize=9)
    return figure


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
    named = dict(_labelled(lines))
    figure.legend(
        list(named.values()), list(named), loc="outside upper left", ncols=len(named) or 1
    )


def _labelled(lines: Sequence[Sequence[Axes]]) -> Iterator[tuple[str, Artist]]:
    for line in lines:
        for panel in line:
            handles, labels = panel.get_legend_handles_labels()
            yield from zip(labels, handles, strict=True)
