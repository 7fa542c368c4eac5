"""Panels of the experiments on matrix information: exact and batch ratios, and reference lines."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.runs import ESTIMATES, by_axis
from ncscope.metrics.information import collapse_mir
from ncscope.report import panels

STYLES: Mapping[str, Any] = {"exact": "-", "batches of 64": panels.DASHED}
"""Line styles of the two values of a ratio."""


def band(
    axes: Axes,
    points: Mapping[float, Sequence[float]],
    label: str,
    colour: str = panels.ACCENT,
    style: Any = "-",
) -> None:
    """Draw the mean of several runs as a line, and their range as a band.

    Args:
        axes: Axes to draw on.
        points: Values by coordinate.
        label: Label in the legend.
        colour: Colour of the line and the band.
        style: Style of the line.
    """
    places = list(points)
    found = [np.asarray(values) for values in points.values()]
    mean = [float(values.mean()) for values in found]
    axes.plot(places, mean, "o", linestyle=style, color=colour, markersize=2.6, label=label)
    least, most = ([float(end(values)) for values in found] for end in (np.min, np.max))
    axes.fill_between(places, least, most, color=colour, alpha=0.15, linewidth=0)


def ratio_bands(
    axes: Axes,
    rows: Sequence[Observation],
    axis: str,
    key: str,
    colour: str = panels.ACCENT,
    of: str = "",
) -> None:
    """Draw a ratio, exact and by batch, against a coordinate of several runs.

    Args:
        axes: Axes to draw on.
        rows: Rows of the runs.
        axis: Key of the horizontal axis.
        key: Key of the exact value.
        colour: Colour of both curves.
        of: Subject of the curves, for the legend.
    """
    for estimate, ending in ESTIMATES.items():
        label = f"{of}, {estimate}" if of else estimate
        band(axes, by_axis(rows, axis, key + ending), label, colour, STYLES[estimate])


def collapse_line(
    axes: Axes, rows: Iterable[Observation], name: str = "at collapse to a simplex"
) -> None:
    """Draw the MIR at collapse to a simplex, which depends on the number of classes."""
    for classes in sorted({int(row["num_classes"]) for row in rows if "num_classes" in row}):
        reference_line(axes, collapse_mir(classes), name)


def reference_line(axes: Axes, value: float, name: str, style: Any = ":") -> None:
    """Draw a thin line at a value, with an entry in the legend; draw nothing for NaN."""
    if math.isfinite(value):
        axes.axhline(value, color=panels.SOFT, linestyle=style, linewidth=1.1, label=name)


def legend_beside(figure: Figure, axes: Axes) -> None:
    """Place the legend of one panel, which is valid for all, to the right of the figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def accuracy_percent(points: Mapping[float, Sequence[float]]) -> dict[float, list[float]]:
    """Convert accuracies by coordinate to percent."""
    return {coordinate: [100 * value for value in found] for coordinate, found in points.items()}
