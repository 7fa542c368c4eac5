"""Scores of checkpoints and the accuracies of their probes, as tables, a figure and a page."""

import io
import math
import textwrap
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from rich import box
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.report import panels
from ncscope.report.names import figure_text
from ncscope.report.numbers import plain
from ncscope.report.page import rendered
from ncscope.report.summary import Summary
from ncscope.transfer.correlations import Correlation
from ncscope.transfer.records import PRETRAINING, Ranking

_COLUMNS = 4
_MOST_NAMED = 12  # with more checkpoints, their numbers would cover the points
_MOST_APART = 6  # with more columns, there is no space left between them
_DIGITS = 3
_LINE = 150  # characters that fit below four panels
_UNBROKEN = "\N{NO-BREAK SPACE}"


def _ranking_summaries(ranking: Ranking) -> list[Summary]:
    """Summarise a ranking: scores of the checkpoints, and correlations with the accuracy.

    Args:
        ranking: Ranking on one downstream set.
    """
    downstream = [key for key in ranking.scores if not key.startswith(PRETRAINING)]
    source = [key for key in ranking.scores if key.startswith(PRETRAINING)]
    probed = {
        each.name: [plain(each.accuracy), plain(each.strength, 2)] for each in ranking.checkpoints
    }
    summaries = [
        Summary(
            f"{ranking.measure[:1].upper()}{ranking.measure[1:]} accuracy of a linear probe on "
            "held-out samples, the best first; λ, the strength of its penalty; scores on the "
            "samples to which the probe is fitted.",
            [ranking.measure, "λ", *_names(ranking, downstream)],
            _lines(ranking, downstream, probed),
            title="Checkpoints, the best first",
        ),
        *_correlations(ranking, downstream),
    ]
    if source:
        caption, columns = "Scores on the pretraining samples.", _names(ranking, source)
        lines = _lines(ranking, source, {})
        summaries.append(Summary(caption, columns, lines, title="On the pretraining samples"))
    return [*summaries, *_correlations(ranking, source)]


def ranking_tables(ranking: Ranking) -> list[Table]:
    """Build the tables of `_ranking_summaries` for the terminal.

    Args:
        ranking: Ranking on one downstream set.

    Returns:
        Tables that an 80-column terminal can show.
    """
    return [_table(summary) for summary in _ranking_summaries(ranking)]


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


def ranking_page(ranking: Ranking, facts: Mapping[str, str | int]) -> str:
    """Render one self-contained HTML page, which requests nothing from the network.

    Args:
        ranking: Ranking on one downstream set.
        facts: Data set and settings of the ranking.
    """
    figure = ranking_figure(ranking)
    image = io.BytesIO()
    figure.savefig(image, format="svg")
    best = ranking.checkpoints[0]
    return rendered(
        "transfer.html.j2",
        title="Which checkpoint transfers",
        lead=f"{best.name} is best: {plain(best.accuracy)} {ranking.measure} accuracy.",
        facts=[_FACTS.get(name, name + " {}").format(value) for name, value in facts.items()],
        figure=f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode()}",
        inches=figure.get_figwidth(),
        caption=_CAPTION,
        summaries=_ranking_summaries(ranking),
        notes=ranking.notes,
    )


_CAPTION = (
    "The probe's accuracy on held-out samples over each score, with one point per checkpoint. A "
    "score that predicts transfer has its points on a rising line if greater is better, and on a "
    "falling line if smaller is better."
)


_FACTS = {
    "data": "on {}",
    "train": "{:,} training images",
    "validation": "{:,} validation images",
    "test": "{:,} held-out images",
    "samples": "{:,} samples",
    "pretraining": "trained on {}",
}


def _names(ranking: Ranking, keys: Sequence[str]) -> list[str]:
    return [ranking.scores[key].name.removesuffix(", pretraining") for key in keys]


def _lines(
    ranking: Ranking, keys: Sequence[str], before: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    return {
        each.name: [
            *before.get(each.name, []),
            *(plain(each.scores[key], _DIGITS) for key in keys),
        ]
        for each in ranking.checkpoints
    }


def _correlations(ranking: Ranking, keys: Sequence[str]) -> list[Summary]:
    if not any(key in ranking.correlations for key in keys):
        return []
    names = ("pearson", "spearman", "kendall")
    lines = {}
    for key, name in zip(keys, _names(ranking, keys), strict=True):
        by_name = ranking.correlations.get(key)
        cells = [_interval(by_name[each]) if by_name else "" for each in names]
        lines[f"{name} {'↑' if ranking.scores[key].better > 0 else '↓'}"] = cells
    caption = (
        "Correlation of each score with the accuracy over the checkpoints, with bootstrap "
        "intervals of 95 %. ↑ greater is said to be better, ↓ smaller."
    )
    columns = [name.capitalize() for name in names]
    return [Summary(caption, columns, lines, title="Correlation with the accuracy")]


def _interval(coefficient: Correlation) -> str:
    if math.isnan(coefficient.value):
        return "undefined"
    value, low, high = coefficient
    return f"{value:.2f} [{low:.2f}, {high:.2f}]".replace("-", "−")


_NARROW = {
    "mean per class": "mean\nper\nclass",
    "fuzziness": "fuzzi-\nness",
    "squared distance": "squared\ndist.",
    "cosine distance": "cosine\ndist.",
    "H-score": "H-\nscore",
    "undefined": "unde-\nfined",
}
"""Headings and cells broken into lines, so that ten columns fit into 80 characters."""


def _narrow(words: str) -> str:
    return _NARROW.get(words, words)


def _table(summary: Summary) -> Table:
    beside = 0 if len(summary.columns) > _MOST_APART else 1
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, beside, 0, 0),
        caption=summary.caption,
        caption_justify="left",
    )
    table.add_column("", min_width=8, overflow="fold")
    for column in summary.columns:
        table.add_column(_narrow(column), justify="right", no_wrap=True)
    for name, cells in summary.lines.items():
        table.add_row(Text(printable(name)), *(cells if beside else map(_narrow, cells)))
    return table


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
    axes.xaxis.set_major_locator(MaxNLocator(4))
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
    found = ranking.correlations[key]
    value, low, high = found["pearson"]
    if math.isnan(value):
        return f"{way}\nthe same for all"
    text = f"Pearson {value:.2f} [{low:.2f}, {high:.2f}], Kendall {found['kendall'].value:.2f}"
    return f"{way}\n{text.replace('-', '−')}"
