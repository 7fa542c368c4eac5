"""Panels of training runs, drawn from observations, and logarithmic axes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes

from ncscope.report import panels
from ncscope.report.labels import find_label
from ncscope.report.wording import format_figure_text
from ncscope_lab.observations import Observation


def epochs_panel(
    axes: Axes,
    curves: Mapping[str, Sequence[Observation]],
    key: str,
    *,
    zero_error: float | None = None,
    colours: Sequence[Any] = panels.SERIES,
    styles: Mapping[str, Any] = {},
) -> None:
    """Draw a metric against the epoch, one curve per name.

    Args:
        axes: Axes to draw on.
        curves: Rows of one layer over training, by name.
        key: Key of the metric; the axis is logarithmic if the metric falls to zero.
        zero_error: Epoch of zero training error, drawn as a vertical line.
        colours: Colours of the curves, in order.
        styles: Line styles by name; curves without an entry are solid.
    """
    label, drawn = find_label(key), list[float]()
    for index, (name, path) in enumerate(curves.items()):
        values = [float(row[key]) for row in path if key in row]
        epochs = [row.epoch for row in path if key in row]
        colour = colours[index % len(colours)]
        style = styles.get(name, "-")
        axes.plot(
            epochs,
            values,
            "o",
            linestyle=style,
            color=colour,
            markersize=2.6,
            label=format_figure_text(name),
        )
        drawn += values
    if zero_error is not None:
        axes.axvline(zero_error, color=panels.SECOND, linewidth=0.9, linestyle=panels.DASHED)
    if label.log_scale and min(filter(math.isfinite, drawn), default=0.0) > 0:
        axes.set_yscale("log")
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("epoch")
    axes.set_title(label.title)


def depth_colours(count: int) -> list[Any]:
    """Return one colour per layer, from light for the first layer to dark for the last."""
    ramp = colormaps["viridis_r"]
    return [ramp(0.15 + 0.8 * index / max(1, count - 1)) for index in range(count)]


def logarithmic_values(axes: Axes) -> None:
    """Make the vertical axis logarithmic if a positive value is drawn on it.

    Args:
        axes: Axes on which all lines are already drawn.
    """
    if any((np.asarray(line.get_ydata(), dtype=float) > 0).any() for line in axes.lines):
        axes.set_yscale("log")
