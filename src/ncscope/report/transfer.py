"""Checkpoints on a downstream set: each score against the probe's accuracy, as table and figure."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table
from rich.text import Text

from ncscope.report import panels
from ncscope.report.numbers import plain
from ncscope.transfer.correlations import Correlation
from ncscope.transfer.ranking import Ranking

_COLUMNS = 4
_MOST_NAMED = 12  # more names than this would cover the points


def ranking_table(ranking: Ranking) -> Table:
    """A row a checkpoint, the best probe first; below, how each score went with the accuracy.

    Args:
        ranking: Of one downstream set.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("checkpoint", overflow="fold")
    table.add_column(f"{ranking.measure}\naccuracy", justify="right", no_wrap=True)
    for score in ranking.scores.values():
        heading = score.name.replace(", ", ",\n").replace(" d", "\nd")
        table.add_column(heading, justify="right", no_wrap=True)
    for each in ranking.checkpoints:
        cells = [plain(each.scores[key]) for key in ranking.scores]
        table.add_row(Text(each.name), plain(each.accuracy), *cells)
    if ranking.correlations:
        table.add_section()
        for name in ("pearson", "spearman", "kendall"):
            found = [_value(ranking.correlations, key, name) for key in ranking.scores]
            table.add_row(Text(name.capitalize(), style="dim"), "", *found)
    return table


def ranking_figure(ranking: Ranking) -> Figure:
    """A panel a score: the probe's accuracy over it, a point a checkpoint.

    Args:
        ranking: Of one downstream set.
    """
    keys = list(ranking.scores)
    columns = min(_COLUMNS, len(keys))
    rows = math.ceil(len(keys) / columns)
    numbered = len(ranking.checkpoints) <= _MOST_NAMED
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(2.9 * columns, 2.6 * rows + 0.6), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, key in zip(grid.flat, keys, strict=False):
            _panel(axes, ranking, key, numbered)
        for axes in grid.flat[len(keys) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel(f"{ranking.measure} accuracy of the probe")
        if numbered:
            names = [f"{at} {each.name}" for at, each in enumerate(ranking.checkpoints, start=1)]
            figure.supxlabel("   ".join(names), fontsize=8, wrap=True)
    return figure


def _panel(axes: Axes, ranking: Ranking, key: str, numbered: bool) -> None:
    score = ranking.scores[key]
    axes.set_title(score.name[:1].upper() + score.name[1:])
    axes.set_xlabel(_caption(ranking, key), fontsize=8)
    axes.margins(0.14)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    for at, each in enumerate(ranking.checkpoints, start=1):
        x, y = each.scores[key], each.accuracy
        axes.plot(x, y, "o", color=panels.ACCENT, markersize=5)
        if numbered and math.isfinite(x):
            beside: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            axes.annotate(str(at), (x, y), fontsize=7.5, color=panels.SOFT, **beside)


def _caption(ranking: Ranking, key: str) -> str:
    """Which way is said to be better, and how the score went with the accuracy."""
    way = "greater is better" if ranking.scores[key].better > 0 else "smaller is better"
    if key not in ranking.correlations:
        return way
    found = ranking.correlations[key]
    value, low, high = found["pearson"]
    if math.isnan(value):
        return f"{way}\nthe same for all"
    text = f"Pearson {value:.2f} [{low:.2f}, {high:.2f}], Kendall {found['kendall'].value:.2f}"
    return f"{way}\n{text.replace('-', '−')}"


def _value(found: Mapping[str, Mapping[str, Correlation]], key: str, name: str) -> str:
    return f"{found[key][name].value:+.2f}" if key in found else ""
