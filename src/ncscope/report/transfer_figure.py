"""Figure of a ranking: the accuracy of the probe over each score."""

import math
import textwrap
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from ncscope.report import panels
from ncscope.report.names import figure_text
from ncscope.report.numbers import in_millions
from ncscope.transfer.records import Ranking

_COLUMNS = 4
_MOST_NAMED = 12  # with more checkpoints, their numbers would cover the points
_LINE = 150  # characters that fit below four panels
_UNBROKEN = "\N{NO-BREAK SPACE}"


def ranking_figure(ranking: Ranking) -> Figure:
    """Draw the probe's accuracy over each score: one panel per score, one point per checkpoint.

    Args:
        ranking: Ranking on one downstream set.
    """
    keys = list(ranking.scores)
    columns = min(_COLUMNS, len(keys))
    rows = math.ceil(len(keys) / columns)
    numbered = len(ranking.checkpoints) <= _MOST_NAMED
    with mpl.rc_context(panels.STYLE):
        below = _below(ranking, numbered)
        height = 2.6 * rows + 0.3 + 0.17 * len(below)
        layout = ConstrainedLayoutEngine(h_pad=0.1)
        figure = Figure(figsize=(2.9 * columns, height), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, key in zip(grid.flat, keys, strict=False):
            _panel(axes, ranking, key, numbered)
        for axes in grid.flat[len(keys) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel(f"{ranking.measure} accuracy of the probe")
        if below:
            figure.supxlabel("\n".join(below), x=0.01, ha="left", fontsize=8.5)
    return figure


def _below(ranking: Ranking, numbered: bool) -> list[str]:
    """Return the lines below the panels: numbers of the checkpoints, and the first note."""
    lines = []
    if numbered:
        # No-break spaces, so that lines are broken between checkpoints only.
        names = [
            f"{at}: {figure_text(each.name, _LINE)}"
            for at, each in enumerate(ranking.checkpoints, start=1)
        ]
        whole = f" {2 * _UNBROKEN}".join(name.replace(" ", _UNBROKEN) for name in names)
        lines = textwrap.wrap(whole, _LINE, break_long_words=False, break_on_hyphens=False)
    return [*lines, *(figure_text(note, len(note)) for note in ranking.notes[:1])]


def _panel(axes: Axes, ranking: Ranking, key: str, numbered: bool) -> None:
    score = ranking.scores[key]
    axes.set_title(score.name[:1].upper() + score.name[1:])
    axes.set_xlabel(_caption(ranking, key), fontsize=8)
    axes.margins(0.14)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=key == "parameters"))
    if key == "parameters":  # otherwise matplotlib writes a power of ten beside the axis
        axes.xaxis.set_major_formatter(lambda value, _: in_millions(value))
    for at, each in enumerate(ranking.checkpoints, start=1):
        x, y = each.scores[key], each.accuracy
        axes.plot(x, y, "o", color=panels.ACCENT, markersize=5)
        if numbered and math.isfinite(x):
            beside: dict[str, Any] = {"xytext": (4, 3), "textcoords": "offset points"}
            axes.annotate(str(at), (x, y), fontsize=7.5, color=panels.SOFT, **beside)


def _caption(ranking: Ranking, key: str) -> str:
    """Return the direction that is better, and the correlation with the accuracy."""
    way = "greater is better" if ranking.scores[key].better > 0 else "smaller is better"
    if key not in ranking.correlations:
        return way
    coefficients = ranking.correlations[key]
    value, low, high = coefficients["pearson"]
    if math.isnan(value):
        return f"{way}\nthe same for all"
    tau = coefficients["kendall"].value
    text = f"Pearson {value:.2f} [{low:.2f}, {high:.2f}], Kendall {tau:.2f}"
    return f"{way}\n{text.replace('-', '−')}"
