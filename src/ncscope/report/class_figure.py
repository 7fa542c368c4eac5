"""Matplotlib figure of the classes of a layer."""

import math
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.measurement.records import ClassTable
from ncscope.report import panels
from ncscope.report.classes import CHARTED, named
from ncscope.report.names import figure_text

_LONGEST_NAME = 24


def plot_classes(table: ClassTable, class_names: Sequence[str] = ()) -> Figure:
    """Draw overlap, variability and accuracy of each class as dots, the least separated on top.

    Args:
        table: Values of each class; at most `CHARTED` of them are drawn.
        class_names: Names of all classes, in the order of the labels; empty if unknown.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.svg")`` writes it.
    """
    order = table.worst_first()[:CHARTED]
    counted = [column for column in (table.accuracy, table.ncc_accuracy) if column is not None]
    names = [figure_text(named(table.classes[i], class_names), _LONGEST_NAME) for i in order]
    with mpl.rc_context(panels.STYLE):
        width, height = 3.2 * (3 if counted else 2) + 1, 1.3 + 0.2 * len(order)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, 3 if counted else 2, sharey=True)
        _dots(axes[0], [table.nearest_cdnv[index] for index in order])
        axes[0].set_title("CDNV with the nearest class")
        _dots(axes[1], [table.nc1_quotient[index] for index in order])
        axes[1].set_title("NC1 of the class")
        if counted:
            _accuracies(axes[2], table, order)
        axes[0].set_yticks(range(len(order)), names)
        axes[0].set_ylim(len(order) - 0.4, -0.6)
        if len(order) < len(table.classes):
            figure.supxlabel(
                f"the {len(order)} least separated of {len(table.classes):,} classes",
                fontsize=8.5, color=panels.SOFT,
            )  # fmt: skip
    return figure


def _dots(axes: Axes, values: Sequence[float]) -> None:
    """Draw positive values on a logarithmic axis; infinite ones as a mark at its end."""
    finite = [value for value in values if math.isfinite(value)]
    for row, value in enumerate(panels.on_log_axis(values, finite)):
        if math.isfinite(value):
            axes.plot([value], [row], "o", color=panels.ACCENT, markersize=5)
    panels.logarithmic(axes, "x", finite)
    for row, value in enumerate(values):
        if value == math.inf:
            axes.annotate("∞", (1.0, row), xycoords=("axes fraction", "data"), va="center")
    axes.tick_params(axis="y", length=0)


def _accuracies(axes: Axes, table: ClassTable, order: Sequence[int]) -> None:
    for column, name, mark, colour in (
        (table.ncc_accuracy, "nearest mean", "D", panels.SECOND),
        (table.accuracy, "head", "o", panels.ACCENT),
    ):
        if column is not None:
            values = [column[index] for index in order]
            axes.plot(values, range(len(order)), mark, color=colour, markersize=4.5, label=name)
    axes.set_title("Accuracy")
    axes.legend(loc="best")
    axes.tick_params(axis="y", length=0)
