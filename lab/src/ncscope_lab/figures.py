"""Figures of experiments: a grid of panels, curves with bands, and reference lines."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.report import panels
from ncscope_lab.intervals import mean_interval
from ncscope_lab.observations import Observation
from ncscope_lab.quantities import Runs, average

Panel = Callable[[Axes], None]
"""Function that draws one panel of a figure."""


def draw_grid(
    rows: Sequence[Sequence[Panel | None]],
    *,
    cell: tuple[float, float] = (3.2, 2.6),
    legend: Literal["beside", "above", "below", "first", "none"] = "none",
    share_x: bool | Literal["col", "row"] = False,
    share_y: bool | Literal["col", "row"] = False,
    quantity: str = "",
) -> Figure:
    """Draw panels in rows and columns, in the style of all figures.

    Args:
        rows: Functions that draw the panels; None leaves a place empty.
        cell: Width and height of a panel in inches.
        legend: Place of the one legend of all panels; ``"first"`` is inside the first panel.
        share_x: Panels that share the horizontal axis, as in `Figure.subplots`.
        share_y: Panels that share the vertical axis.
        quantity: Label of all vertical axes.
    """
    height, width = len(rows), max(map(len, rows), default=1)
    room = {"above": 0.5, "below": 0.5}.get(legend, 0.1)
    with mpl.rc_context(panels.STYLE):
        size = (cell[0] * width + (1.6 if legend == "beside" else 0.1), cell[1] * height + room)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(height, width, squeeze=False, sharex=share_x, sharey=share_y)
        for line, drawn in zip(grid.tolist(), rows, strict=True):
            for axes, panel in zip(line, [*drawn, *[None] * (width - len(drawn))], strict=True):
                axes.set_visible(panel is not None)
                if panel is not None:
                    panel(axes)
        for column in grid.T.tolist():
            # A label of the horizontal axis that a column's panels share stands below the last.
            *above, last = [axes for axes in column if axes.get_visible()] or [None]
            for axes in above:
                if axes.get_xlabel() == last.get_xlabel():
                    axes.set_xlabel("")
        if quantity:
            figure.supylabel(quantity, fontsize=9)
        _add_legend(figure, grid.ravel().tolist(), legend)
    return figure


def _add_legend(figure: Figure, axes: Sequence[Axes], place: str) -> None:
    """Add one legend with every entry of the panels, each once."""
    entries: dict[str, Artist] = {}
    for panel in axes:
        handles, labels = panel.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            entries.setdefault(label, handle)
    if not entries or place == "none":
        return
    if place == "first":
        axes[0].legend(list(entries.values()), list(entries))
        return
    # As many entries side by side as fit the width, at 0.06 inches a letter beside the line.
    room = figure.get_figwidth() // (0.6 + 0.06 * max(map(len, entries)))
    columns = 1 if place == "beside" else int(min(len(entries), max(room, 1), 6))
    figure.legend(list(entries.values()), list(entries), loc=_LEGENDS[place], ncols=columns)


_LEGENDS: Mapping[str, Any] = {
    "beside": "outside right center",
    "above": "outside upper left",
    "below": "outside lower center",
}


@dataclass(frozen=True)
class Curve:
    """Appearance of the curve of one metric.

    Attributes:
        key: Key of the metric.
        label: Entry in the legend.
        colour: Colour of line and band.
        style: Style of the line.
        marker: Marker at each measurement, none if empty.
    """

    key: str
    label: str
    colour: Any = panels.ACCENT
    style: Any = "-"
    marker: str = "o"


def draw_band(
    axes: Axes,
    points: Mapping[float, Sequence[float]],
    label: str = "",
    colour: Any = panels.ACCENT,
    style: Any = "-",
    marker: str = "o",
    average: Callable[[Sequence[float]], float] = average,
) -> None:
    """Draw the mean of several runs as a line, and their range as a band.

    Args:
        axes: Axes to draw on.
        points: Values of the runs by coordinate.
        label: Entry in the legend.
        colour: Colour of line and band.
        style: Style of the line.
        marker: Marker at each coordinate, none if empty.
        average: Function that averages the values; default the arithmetic mean.
    """
    at = list(points)
    arrays = [np.asarray(numbers) for numbers in points.values()]
    mean = [average(numbers) for numbers in points.values()]
    axes.plot(at, mean, marker=marker, linestyle=style, color=colour, markersize=2.6, label=label)
    least, most = ([float(end(numbers)) for numbers in arrays] for end in (np.min, np.max))
    axes.fill_between(at, least, most, color=colour, alpha=0.15, linewidth=0)


def draw_forest(axes: Axes, groups: Mapping[str, Sequence[float]]) -> None:
    """Draw a forest plot: a line for each group, with its values, their mean and 95 % interval.

    Values that would cover each other stand one above the other.

    Args:
        axes: Axes to draw on.
        groups: Values, mostly one a seed, by name.
    """
    known = [value for points in groups.values() for value in points if math.isfinite(value)]
    width = (max(known) - min(known)) / 100 if known else 0.0
    for line, points in enumerate(groups.values()):
        heights = [line - 0.12 - 0.09 * rank for rank in rank_ties(points, width)]
        axes.plot(sorted(points), heights, "o", color=panels.SOFT, markersize=3.5)
        interval = mean_interval(points)
        if interval is not None:
            ends = [interval.low, interval.high]
            axes.plot(ends, [line + 0.14] * 2, color=panels.ACCENT, linewidth=2)
            axes.plot([interval.estimate], [line + 0.14], "D", color=panels.ACCENT, markersize=5)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.5)


def rank_ties(values: Sequence[float], width: float) -> list[int]:
    """Return for each value, in ascending order, how many of those before it it would cover.

    Args:
        values: Values of one line.
        width: Width of a point.

    Example:
        >>> rank_ties([3.0, 1.0, 1.0, 1.05, 2.0], width=0.1)
        [0, 1, 2, 0, 0]
    """
    ranks: list[int] = []
    start = -math.inf
    for value in sorted(values):
        is_tie = value - start <= width
        ranks.append(ranks[-1] + 1 if is_tie else 0)
        start = start if is_tie else value
    return ranks


def draw_over_epochs(axes: Axes, runs: Runs, curves: Sequence[Curve], split: str = "train") -> None:
    """Draw metrics of the last layer against the epoch: means over the runs, bands their range.

    Args:
        axes: Axes to draw on.
        runs: Runs that differ in the seed.
        curves: Metrics, each with the appearance of its curve; left out where not measured.
        split: Split of the rows.
    """
    for curve in curves:
        points = collect_points(
            (row for run in runs for row in run.path(split)), "epoch", curve.key
        )
        if points:
            draw_band(axes, points, curve.label, curve.colour, curve.style, curve.marker)
    axes.set_xlabel("epoch")


def collect_points(rows: Iterable[Observation], axis: str, key: str) -> dict[float, list[float]]:
    """Collect a metric by another field of the rows, in order of that field."""
    points: dict[float, list[float]] = {}
    for row in rows:
        if key in row and axis in row:
            points.setdefault(float(row[axis]), []).append(float(row[key]))
    return dict(sorted(points.items()))


def scale_epochs(axes: Axes, start: float = 1) -> None:
    """Scale the horizontal axis of epochs: logarithmic from an epoch on, with a place for 0."""
    axes.set_xscale("symlog", linthresh=start, linscale=0.4)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("epoch")


def draw_reference(axes: Axes, value: float, label: str = "", style: Any = ":") -> None:
    """Draw a thin horizontal line at a value, with an entry in the legend; nothing for NaN."""
    if math.isfinite(value):
        axes.axhline(value, color=panels.SOFT, linestyle=style, linewidth=1.1, label=label)


def draw_interval(
    axes: Axes,
    at: float,
    numbers: Sequence[float],
    *,
    colour: Any = panels.ACCENT,
    marker: str = "o",
    face: Any = None,
    label: str = "",
) -> None:
    """Draw the mean of several values and the 95 % interval that claims on them are judged by.

    Args:
        axes: Axes to draw on.
        at: Coordinate of the mean.
        numbers: Values of the runs; those that are not finite are left out, as the caller must say.
        colour: Colour of marker and interval.
        marker: Marker of the mean.
        face: Colour inside the marker; default the same.
        label: Entry in the legend.
    """
    known = [number for number in numbers if math.isfinite(number)]
    if not known:
        return
    middle, interval = float(np.mean(known)), mean_interval(known)
    reach = [[middle - interval.low], [interval.high - middle]] if interval else None
    axes.errorbar(at, middle, reach, fmt=marker, color=colour, markerfacecolor=face or colour,
                  markersize=5, capsize=3, label=label)  # fmt: skip


def draw_yardstick(axes: Axes, numbers: Sequence[float], height: float, label: str = "") -> None:
    """Draw a band of a given height around the middle of some values, which fit it or do not.

    Args:
        axes: Axes to draw on.
        numbers: Values that the band is centred on.
        height: Height of the band; nothing is drawn if it or the middle is not finite.
        label: Entry in the legend.
    """
    middle = (min(numbers) + max(numbers)) / 2 if numbers else math.nan
    if math.isfinite(middle) and math.isfinite(height):
        low, high = middle - height / 2, middle + height / 2
        axes.axhspan(low, high, color=panels.SERIES[4], alpha=0.2, linewidth=0, label=label)


def logarithmic_values(axes: Axes) -> None:
    """Make the vertical axis logarithmic if a positive value is drawn on it.

    Args:
        axes: Axes on which all lines are already drawn.
    """
    if any((np.asarray(line.get_ydata(), dtype=float) > 0).any() for line in axes.lines):
        axes.set_yscale("log")


def make_depth_colours(count: int) -> list[Any]:
    """Return one colour a layer, from light for the first layer to dark for the last."""
    ramp = colormaps["viridis_r"]
    return [ramp(0.15 + 0.8 * index / max(1, count - 1)) for index in range(count)]
