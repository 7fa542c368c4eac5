"""Panels of the experiments on matrix information: ratios exactly and by batch, and collapse."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.papers.info.runs import ESTIMATES, by_place
from ncscope.metrics.information import collapse_mir
from ncscope.probing.records import Row
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
    """The mean of several runs as a line, from the least to the largest as a band.

    Args:
        axes: Where.
        points: Values by place.
        label: In the legend.
        colour: Of both.
        style: Of the line.
    """
    places = list(points)
    found = [np.asarray(values) for values in points.values()]
    mean = [float(values.mean()) for values in found]
    axes.plot(places, mean, "o", linestyle=style, color=colour, markersize=2.6, label=label)
    least, most = ([float(end(values)) for values in found] for end in (np.min, np.max))
    axes.fill_between(places, least, most, color=colour, alpha=0.15, linewidth=0)


def ratio_bands(
    axes: Axes, rows: Sequence[Row], place: str, key: str, colour: str = panels.ACCENT, of: str = ""
) -> None:
    """A ratio exactly and by batch against a place, over several runs.

    Args:
        axes: Where.
        rows: Of the runs.
        place: What is on the horizontal axis.
        key: Of the exact value.
        colour: Of both curves.
        of: What they are of, in the legend.
    """
    for estimate, ending in ESTIMATES.items():
        label = f"{of}, {estimate}" if of else estimate
        band(axes, by_place(rows, place, key + ending), label, colour, STYLES[estimate])


def collapse_line(axes: Axes, rows: Iterable[Row], name: str = "at collapse to a simplex") -> None:
    """The MIR at collapse to a simplex, which the number of classes in the rows sets."""
    for classes in sorted({int(row["num_classes"]) for row in rows if "num_classes" in row}):
        reference_line(axes, collapse_mir(classes), name)


def reference_line(axes: Axes, value: float, name: str, style: Any = ":") -> None:
    """A thin line at a value, named in the legend; none at NaN."""
    if math.isfinite(value):
        axes.axhline(value, color=panels.SOFT, linestyle=style, linewidth=1.1, label=name)


def legend_beside(figure: Figure, axes: Axes) -> None:
    """The legend of one panel, which serves all, to the right of the figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def accuracy_percent(points: Mapping[float, Sequence[float]]) -> dict[float, list[float]]:
    """Accuracies by place, in percent."""
    return {place: [100 * value for value in found] for place, found in points.items()}
