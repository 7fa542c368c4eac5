"""Scores of checkpoints and the accuracies of their probes, as tables, a figure and a page."""

import io
import math
import textwrap
from base64 import b64encode
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.report import panels
from ncscope.report.page import render_template
from ncscope.report.tables import Summary, make_table
from ncscope.report.wording import format_figure_text, format_millions, format_plain
from ncscope.transfer.advice import CONDITIONS
from ncscope.transfer.baselines import StaticRanking
from ncscope.transfer.correlations import Correlation
from ncscope.transfer.quality import RankingQuality
from ncscope.transfer.records import (
    ALL_SCORES,
    BASELINES,
    FIELD_SCORES,
    OWN_SCORES,
    PRETRAINING_SCORES,
    SCORES,
    VARIABILITY_SCORES,
    CheckpointResult,
    Ranking,
    Score,
)

_MOST_APART = 6  # with more columns, there is no space left between them
_DIGITS = 3
_MOST_SCORES = 7  # columns of published scores that a terminal can show
_MOST_CONDITIONS = 3  # columns with intervals that a terminal can show

_MOST_PANELS = 4  # beside each other
_MOST_NUMBERED = 12  # with more checkpoints, their numbers would cover the points
_LINE = 150  # characters that fit below four panels
_UNBROKEN = "\N{NO-BREAK SPACE}"


def plot_ranking(ranking: Ranking) -> Figure:
    """Draw the probe's accuracy over each score: one panel per score, one point per checkpoint.

    Args:
        ranking: Ranking on one downstream set.
    """
    keys = list(ranking.scores)
    columns = min(_MOST_PANELS, len(keys))
    rows = math.ceil(len(keys) / columns)
    numbered = len(ranking.checkpoints) <= _MOST_NUMBERED
    lines = []
    if numbered:
        # No-break spaces within a name, so that lines are broken between checkpoints only.
        names = [
            f"{number}: {format_figure_text(each.name, _LINE)}"
            for number, each in enumerate(ranking.checkpoints, start=1)
        ]
        text = f" {2 * _UNBROKEN}".join(name.replace(" ", _UNBROKEN) for name in names)
        lines = textwrap.wrap(text, _LINE, break_long_words=False, break_on_hyphens=False)
    lines += [format_figure_text(note, len(note)) for note in ranking.notes[:1]]
    with mpl.rc_context(panels.STYLE):
        height = 2.6 * rows + 0.3 + 0.17 * len(lines)
        layout = ConstrainedLayoutEngine(h_pad=0.1)
        figure = panels.ReportFigure(figsize=(2.9 * columns, height), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for axes, key in zip(grid.flat, keys, strict=False):
            _draw_score(axes, ranking, key, numbered)
        for axes in grid.flat[len(keys) :]:
            axes.set_axis_off()
        for axes in grid[:, 0]:
            axes.set_ylabel(f"{ranking.measure} accuracy of the probe")
        if lines:
            figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8.5)
    return figure


def _draw_score(axes: Axes, ranking: Ranking, key: str, numbered: bool) -> None:
    """Draw the accuracy over one score, with the better direction and the correlation below."""
    score = ranking.scores[key]
    caption = "greater is better" if score.better > 0 else "smaller is better"
    if key in ranking.correlations:
        value, low, high = ranking.correlations[key]["pearson"]
        tau = ranking.correlations[key]["kendall"].value
        text = f"Pearson {value:.2f} [{low:.2f}, {high:.2f}], Kendall {tau:.2f}"
        text = "the same for all" if math.isnan(value) else text.replace("-", "−")
        caption = f"{caption}\n{text}"
    axes.set_title(score.name[:1].upper() + score.name[1:])
    axes.set_xlabel(caption, fontsize=8)
    axes.margins(0.14)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=key == "parameters"))
    if key == "parameters":  # otherwise matplotlib writes a power of ten beside the axis
        axes.xaxis.set_major_formatter(lambda value, _: format_millions(value))
    for number, each in enumerate(ranking.checkpoints, start=1):
        x, y = each.scores[key], each.accuracy
        axes.plot(x, y, "o", color=panels.ACCENT, markersize=5)
        if numbered and math.isfinite(x):
            axes.annotate(
                str(number), (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7.5,
                color=panels.SOFT,
            )  # fmt: skip


def _summarise_ranking(ranking: Ranking, static: StaticRanking | None = None) -> list[Summary]:
    """Summarise a ranking: scores of the checkpoints, and how well the scores order them.

    Args:
        ranking: Ranking on one downstream set.
        static: Baselines judged on a table of other results, if there is one.
    """
    probed = {
        each.name: [format_plain(each.accuracy), format_plain(each.strength, 2)]
        for each in ranking.checkpoints
    }
    variability = _select_scores(ranking, VARIABILITY_SCORES)
    accuracy = Summary(
        f"{ranking.measure[:1].upper()}{ranking.measure[1:]} accuracy of a linear probe on "
        "held-out samples, the best first; λ, the strength of its penalty; scores of variability "
        "on the samples to which the probe is fitted.",
        [ranking.measure, "λ", *_name_scores(variability)],
        _build_lines(ranking, variability, probed),
        title="Checkpoints, the best first",
    )
    judged = _select_scores(ranking, {**SCORES, **BASELINES})
    source = _select_scores(ranking, PRETRAINING_SCORES)
    summaries = [
        accuracy,
        *_summarise_predictors(ranking),
        *_summarise_correlations(ranking, judged),
    ]
    summaries += [*_summarise_choices(ranking, judged), *_summarise_advice(ranking)]
    if source:
        caption, lines = "Scores on the pretraining samples.", _build_lines(ranking, source, {})
        title = "On the pretraining samples"
        summaries.append(Summary(caption, _name_scores(source), lines, title=title))
        summaries += _summarise_correlations(ranking, source)
    return [*summaries, *([] if static is None else [_summarise_static(static)])]


def _summarise_predictors(ranking: Ranking) -> list[Summary]:
    """Build tables of the published scores, as wide as a terminal, our own, and the baselines."""
    published = _select_scores(ranking, FIELD_SCORES)
    parts = [
        published[start : start + _MOST_SCORES] for start in range(0, len(published), _MOST_SCORES)
    ]
    summaries = [
        Summary(
            "Published scores on the same samples; the greater, the better.",
            _name_scores(part),
            _build_lines(ranking, part, {}),
            title="Published scores" + ", continued" * (index > 0),
        )
        for index, part in enumerate(parts)
    ]
    ours = _select_scores(ranking, OWN_SCORES)
    if ours:

        def format_with_error(checkpoint: CheckpointResult, key: str) -> str:
            text, error = format_plain(checkpoint.scores[key], _DIGITS), checkpoint.errors.get(key)
            return text if error is None else f"{text} ± {format_plain(error, 2)}"

        caption = (
            "Our own score on the same samples: the share of the labels' entropy that a classifier "
            "explains on samples left out, from 0 (chance) to 1; ± its standard error."
        )
        lines = {
            each.name: [format_with_error(each, key) for key in ours]
            for each in ranking.checkpoints
        }
        summaries.append(Summary(caption, _name_scores(ours), lines, title="Our own score"))
    baselines = _select_scores(ranking, BASELINES)
    if baselines:
        caption = (
            "Baselines, which know nothing of the set: number of parameters, accuracy on the "
            "pretraining set, and mean z-score of the accuracy on other sets, as far as known."
        )
        lines = _build_lines(ranking, baselines, {})
        summaries.append(Summary(caption, _name_scores(baselines), lines, title="Baselines"))
    return summaries


def _summarise_advice(ranking: Ranking) -> list[Summary]:
    """Summarise how well each score ordered the zoo's networks under conditions like these."""
    advice = ranking.advice
    if advice is None:
        return []
    keys = [key for key in advice.order if key in ranking.scores]
    caption = (
        "Which score to trust, the best first: mean weighted Kendall tau with 95 % intervals over "
        "the targets of a zoo of 128 small networks, under conditions near yours. The truth is "
        "the accuracy of a linear probe or, where it says fine-tuned, of the fine-tuned network. "
        "How a score orders a few checkpoints, above, says less. "
        "Evidence and limits: the page 'A zoo of networks' of the documentation."
    )
    summaries = []
    for start in range(0, len(advice.conditions), _MOST_CONDITIONS):
        part = advice.conditions[start : start + _MOST_CONDITIONS]
        lines = {
            ALL_SCORES[key].name: [
                _format_interval(advice.weighted_tau[condition][key]) for condition in part
            ]
            for key in keys
        }
        title = "Which score to trust" + ", continued" * (start > 0)
        columns = [CONDITIONS[condition] for condition in part]
        summaries.append(Summary(caption, columns, lines, title=title))
        caption = "The same in the other condition, in the same order."
    return summaries if keys else []


def build_ranking_tables(ranking: Ranking, static: StaticRanking | None = None) -> list[Table]:
    """Build the tables of `_summarise_ranking` for the terminal.

    Args:
        ranking: Ranking on one downstream set.
        static: Baselines judged on a table of other results, if there is one.

    Returns:
        Tables that an 80-column terminal can show.
    """
    tables = []
    for summary in _summarise_ranking(ranking, static):
        is_wide = len(summary.columns) > _MOST_APART
        table = make_table()
        table.caption = summary.caption
        if is_wide:
            table.padding = (0, 0, 0, 0)
        table.add_column("", min_width=8, overflow="fold")
        for column in summary.columns:
            table.add_column(_NARROW.get(column, column), justify="right", no_wrap=True)
        for name, cells in summary.lines.items():
            narrow = [_NARROW.get(cell, cell) if is_wide else cell for cell in cells]
            table.add_row(Text(printable(name)), *narrow)
        tables.append(table)
    return tables


def render_ranking_page(
    ranking: Ranking, facts: Mapping[str, str | int], static: StaticRanking | None = None
) -> str:
    """Render one self-contained HTML page, which requests nothing from the network.

    Args:
        ranking: Ranking on one downstream set.
        facts: Data set and settings of the ranking.
        static: Baselines judged on a table of other results, if there is one.
    """
    figure = plot_ranking(ranking)
    image = io.BytesIO()
    figure.savefig(image, format="svg")
    top = ranking.checkpoints[0].accuracy
    best = [each.name for each in ranking.checkpoints if each.accuracy == top]
    names = f"{', '.join(best[:-1])} and {best[-1]} are" if best[1:] else f"{best[0]} is"
    return render_template(
        "transfer.html.j2",
        title="Which checkpoint transfers",
        lead=f"{names} best: {format_plain(top)} {ranking.measure} accuracy.",
        facts=[_FACTS.get(name, name + " {}").format(value) for name, value in facts.items()],
        figure=f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode()}",
        inches=figure.get_figwidth(),
        caption=_CAPTION,
        summaries=_summarise_ranking(ranking, static),
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


def _select_scores(ranking: Ranking, scores: Mapping[str, Score]) -> list[str]:
    return [key for key in ranking.scores if key in scores]


def _name_scores(keys: Sequence[str]) -> list[str]:
    return [ALL_SCORES[key].name.removesuffix(", pretraining") for key in keys]


def _build_lines(
    ranking: Ranking, keys: Sequence[str], before: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    return {
        each.name: [
            *before.get(each.name, []),
            *(_format_cell(key, each.scores[key]) for key in keys),
        ]
        for each in ranking.checkpoints
    }


def _format_cell(key: str, value: float) -> str:
    if key == "parameters" and math.isfinite(value):
        return format_millions(value)
    if key in BASELINES and math.isnan(value):
        return "unknown"
    return format_plain(value, _DIGITS)


def _name_with_direction(ranking: Ranking, key: str) -> str:
    """Return the name of a score with its direction; the H-score is marked if it is VCI again."""
    arrow = "↑" if ALL_SCORES[key].better > 0 else "↓"
    again = " = VCI" if key == "h_score" and ranking.has_redundant_h_score else ""
    return f"{_name_scores([key])[0]} {arrow}{again}"


def _summarise_correlations(ranking: Ranking, keys: Sequence[str]) -> list[Summary]:
    if not any(key in ranking.correlations for key in keys):
        return []
    names = ("pearson", "spearman", "kendall")
    lines = {}
    for key in keys:
        by_name = ranking.correlations.get(key)
        cells = [_format_interval(by_name[each]) if by_name else "–" for each in names]
        lines[_name_with_direction(ranking, key)] = cells
    caption = (
        "Correlation of each score with the accuracy over the checkpoints, with bootstrap "
        "intervals of 95 %. ↑ greater is said to be better, ↓ smaller."
    )
    if "h_score" in keys and ranking.has_redundant_h_score:
        caption += " The H-score is the rank times 1 − VCI: the two count as one score."
    columns = [name.capitalize() for name in names]
    return [Summary(caption, columns, lines, title="Correlation with the accuracy")]


def _summarise_choices(ranking: Ranking, keys: Sequence[str]) -> list[Summary]:
    """Build the table of how well each score chooses among the checkpoints."""
    if not ranking.qualities:
        return []
    lines = {}
    for key in keys:
        quality = ranking.qualities[key]
        cells = [_format_interval(quality.weighted_kendall), _format_interval(quality.regret)]
        lines[_name_with_direction(ranking, key)] = cells
    caption = (
        "Weighted Kendall tau, in which pairs with a good checkpoint count more, and the accuracy "
        "lost by taking the checkpoint that the score puts first; with bootstrap intervals of 95 % "
        "over the checkpoints."
    )
    if any(key in BASELINES for key in keys):
        caption += " Parameters, source accuracy and other sets know nothing of this set."
    columns = ["Weighted tau", "Top-1 regret"]
    return [Summary(caption, columns, lines, title="As a way to choose a checkpoint")]


def _summarise_static(static: StaticRanking) -> Summary:
    """Build the table of the baselines on the sets of other results."""
    rows = {
        "weighted tau": "weighted_kendall",
        "Kendall": "kendall",
        "Spearman": "spearman",
        "top-1 regret": "regret",
    }

    def cell(quality: RankingQuality, name: str) -> str:
        return _format_interval(getattr(quality, name))

    lines = {
        row: [cell(quality, name) for quality in static.qualities.values()]
        for row, name in rows.items()
    }
    caption = (
        f"Baselines on the {len(static.sets)} sets and {len(static.models)} models of the results: "
        "other sets, the mean z-score of the accuracies on all sets but the one that is judged. It "
        "knows the models' history where a score does not: a bar for usefulness, not a rival with "
        "equal information. Bootstrap intervals of 95 % over models and sets."
    )
    return Summary(
        caption, _name_scores(list(static.qualities)), lines, title="Without looking at a set"
    )


def _format_interval(coefficient: Correlation) -> str:
    if math.isnan(coefficient.value):
        return "undefined"
    value, low, high = coefficient
    ends = f" [{low:.2f}, {high:.2f}]" if math.isfinite(low) else ""
    return f"{value:.2f}{ends}".replace("-", "−")


_NARROW = {
    "mean per class": "mean\nper\nclass",
    "fuzziness": "fuzzi-\nness",
    "squared distance": "squared\ndist.",
    "cosine distance": "cosine\ndist.",
    "H-score": "H-\nscore",
    "regularised H": "regul.\nH",
    "TransRate": "Trans-\nRate",
    "TransRate, listing": "Trans-\nRate,\nlisting",
    "TransRate, projected": "Trans-\nRate,\nproj.",
    "parameters": "para-\nmeters",
    "source accuracy": "source\naccuracy",
    "other sets": "other\nsets",
    "20 to 200 samples a class": "20 to 200\nsamples a class",
    "5 samples a class": "5 samples\na class",
    "20 to 48 classes, all samples": "20 to 48 classes,\nall samples",
    "20 to 48 classes, 5 samples each": "20 to 48 classes,\n5 samples each",
    "48 classes, 32 or 44 features": "48 classes,\n32-44 features",
    "fine-tuned, all samples": "fine-tuned,\nall samples",
    "undefined": "unde-\nfined",
    "unknown": "un-\nknown",
}
"""Headings and cells broken into lines, so that ten columns fit into 80 characters."""
