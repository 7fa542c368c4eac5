"""Figures of VCI 6.3: metrics against transfer, and the log odds that make up transfer."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ncscope.lab.papers.vci.checkpoints import (
    PENALTY,
    TEMPERATURE,
    Checkpoint,
    Group,
    gain,
    metric,
    odds_of,
    over_seeds,
    pearson,
    pretrained,
    probed,
)
from ncscope.lab.papers.vci.variability import METRICS
from ncscope.report import panels

Groups = Mapping[str, Sequence[Checkpoint]]

SYMBOLS = {TEMPERATURE: r"\tau", PENALTY: r"\lambda"}
COLOURS = {TEMPERATURE: panels.ACCENT, PENALTY: panels.SECOND}
_MARKERS = "oDs^vPX<>p"


def scatter_figure(groups: Groups) -> Figure:
    """Draw MLOG against each metric: one row per group, one column per metric.

    Args:
        groups: Checkpoints by varied setting.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(12, 2.9 * max(1, len(groups))), layout="constrained")
        grid = figure.subplots(max(1, len(groups)), len(METRICS), squeeze=False, sharey="row")
        for line, (name, group) in zip(grid, groups.items(), strict=False):
            for axes, (key, title) in zip(line, METRICS.items(), strict=True):
                _scatter(axes, name, group, key)
                axes.set_title(f"{title[:1].upper()}{title[1:]}")
            line[0].set_ylabel(f"MLOG, ${SYMBOLS[name]}$ varied")
    return figure


def _scatter(axes: Axes, name: str, group: Group, key: str) -> None:
    colour = COLOURS[name]
    of_metric = metric(key)
    means = over_seeds(group, of_metric), over_seeds(group, gain)
    if len(group) > len(means[0]):
        seeds = [(of_metric(one), one.mlog) for one in group]
        axes.plot(*zip(*seeds, strict=True), "o", color=colour, markersize=3, alpha=0.35)
    for index, value in enumerate(means[0]):
        x, y = means[0][value], means[1][value]
        face = mpl.colors.to_rgba(colour, 0.25 + 0.75 * index / max(1, len(means[0]) - 1))
        axes.plot(x, y, "o", color=colour, markerfacecolor=face, markersize=7)
        if math.isfinite(x) and math.isfinite(y):
            axes.annotate(
                f"{value:g}",
                (x, y),
                xytext=((5, 4), (-5, -9))[index % 2],
                ha=("left", "right")[index % 2],
                textcoords="offset points",
                fontsize=7.5,
                color=panels.SOFT,
            )
    coefficient = pearson(group, key).value
    axes.plot([], [], " ", label=f"Pearson {coefficient:.3f}".replace("-", "−"))
    axes.legend(loc="upper right", handlelength=0, handletextpad=0, borderaxespad=0.1)
    axes.margins(0.16)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def odds_figure(groups: Groups) -> Figure:
    """Draw the log odds of every downstream set and of the pretraining, one panel per group.

    Args:
        groups: Checkpoints by varied setting.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(10.5, 3.8), layout="constrained")
        grid = figure.subplots(1, max(1, len(groups)), squeeze=False, sharey=True)[0]
        for axes, (name, group) in zip(grid, groups.items(), strict=False):
            _odds(axes, group)
            axes.set_title(f"{name[:1].upper()}{name[1:]} ${SYMBOLS[name]}$")
            axes.set_xlabel(f"${SYMBOLS[name]}$")
        grid[0].set_ylabel("log odds")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
    return figure


def _odds(axes: Axes, group: Group) -> None:
    """Draw one line per set, with the pretraining dashed; infinite values are left out."""
    for index, name in enumerate(group[0].downstream):
        style: dict[str, Any] = {
            "color": panels.SERIES[index % 5],
            "marker": _MARKERS[index % len(_MARKERS)],
        }
        _line(axes, over_seeds(group, odds_of(probed(name))), name, style)
    plain = {"color": "black", "linestyle": panels.DASHED}
    _line(axes, over_seeds(group, odds_of(pretrained)), "pretraining", plain)


def _line(axes: Axes, course: Mapping[float, float], label: str, style: Mapping[str, Any]) -> None:
    drawn = [value if math.isfinite(value) else math.nan for value in course.values()]
    axes.plot(list(course), drawn, label=label, markersize=4, **style)
