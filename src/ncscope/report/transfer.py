"""Ranking of checkpoints, and how well scores foretell it, as tables, figures and a page."""

import io
import math
import textwrap
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from rich.console import Group, RenderableType
from rich.text import Text

from ncscope.errors import printable
from ncscope.report import panels
from ncscope.report.latex import (
    escape_latex,
    format_number,
    format_sizes,
    frame_tabular,
)
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

_DIGITS = 3
_MISSING = "--"  # cell of what the first of a ranking does not have
_MOST_ROWS = 10  # checkpoints that a terminal shows
_MOST_TRUSTED = 5  # scores that a terminal shows
_MOST_OPEN = 12  # checkpoints of a page that are not folded

_MOST_PANELS = 4  # beside each other
_MOST_NUMBERED = 12  # with more checkpoints, their numbers would cover the points
_LINE = 150  # characters that fit below four panels
_UNBROKEN = "\N{NO-BREAK SPACE}"


def plot_accuracies(ranking: Ranking) -> Figure:
    """Draw the accuracy of each checkpoint with its interval, the best on top.

    The dots of checkpoints that are separable from the first are hollow.

    Args:
        ranking: Ranking on one downstream set.
    """
    count = len(ranking.checkpoints)
    with mpl.rc_context(panels.STYLE):
        layout = ConstrainedLayoutEngine(h_pad=0.08)
        figure = panels.ReportFigure(figsize=(5.5, 1.0 + 0.27 * count), layout=layout)
        axes = figure.subplots()
        rows = zip(ranking.checkpoints, ranking.intervals, ranking.gaps, strict=True)
        for row, (each, interval, gap) in enumerate(rows):
            is_apart = gap is not None and gap.is_separable
            color = panels.SOFT if is_apart else panels.ACCENT
            axes.plot(interval, (row, row), color=color, linewidth=1.6, solid_capstyle="round")
            axes.plot(
                each.accuracy, row, "o", color=color, markersize=5.5, markeredgewidth=1.3,
                markerfacecolor="white" if is_apart else color,
            )  # fmt: skip
        axes.set_yticks(range(count), [format_figure_text(name) for name in ranking.order])
        axes.set_ylim(count - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        # Long names leave narrow axes, from which one long line would stick out of the figure.
        axes.set_xlabel(f"{ranking.measure} accuracy of a linear probe,\nwith 95 % intervals")
        if any(gap is not None and gap.is_separable for gap in ranking.gaps):
            figure.supxlabel(
                "Hollow: separable from the first, sample by sample", x=0.01, ha="left", fontsize=8
            )
    return figure


def plot_scores(ranking: Ranking) -> Figure:
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


def build_ranking_table(ranking: Ranking) -> RenderableType:
    """Build what a terminal shows of a ranking: the verdict, the ranking, which score to trust.

    Args:
        ranking: Ranking on one downstream set.

    Returns:
        Text and tables that an 80-column terminal can show on one screen.
    """
    table = make_table()
    table.add_column("", justify="right")
    table.add_column("checkpoint", min_width=8, overflow="fold")
    table.add_column(ranking.measure, justify="right", no_wrap=ranking.measure == "top-1")
    table.add_column("95 % interval", no_wrap=True)
    several = len(ranking.checkpoints) > 1
    if several:
        table.add_column("from the first", no_wrap=True)
    rows = _build_ranking_rows(ranking)
    for row in rows[:_MOST_ROWS]:
        cells = [str(row.rank), row.name, row.accuracy, row.interval, row.short_word]
        table.add_row(*(Text(printable(cell)) for cell in cells[: 5 if several else 4]))
    more = len(rows) - _MOST_ROWS
    table.caption = f"{more} more below. " * (more > 0) + _describe_accuracies(ranking)
    parts: list[RenderableType] = [Text(printable(ranking.verdict)), table]
    advice = ranking.advice
    trusted = [] if advice is None else [key for key in advice.order if key in ranking.scores]
    if advice is not None and trusted:
        condition = advice.conditions[0]
        table = make_table()
        table.add_column("score to trust", min_width=18)
        table.add_column("weighted tau elsewhere")
        if ranking.qualities:
            table.add_column("weighted tau here")
        for key in trusted[:_MOST_TRUSTED]:
            cells = [ALL_SCORES[key].name, _format_interval(advice.weighted_tau[condition][key])]
            if ranking.qualities:
                cells.append(_format_interval(ranking.qualities[key].weighted_kendall))
            table.add_row(*map(Text, cells))
        table.caption = (
            f"The first {min(_MOST_TRUSTED, len(trusted))} of {len(trusted)} scores, by how well "
            f"they ordered a zoo of 128 networks ({CONDITIONS[condition]}). {advice.reason}"
        )
        parts += ["", table]
    return Group(*parts)


def format_ranking_latex(ranking: Ranking) -> str:
    r"""Write the ranking as a ``tabular`` with the rules of the package ``booktabs``.

    Args:
        ranking: Ranking on one downstream set.
    """
    heads = ["", "checkpoint", ranking.measure, "95 % interval", "behind the first", "separable"]
    lines = [" & ".join(map(escape_latex, heads)) + r" \\", r"\midrule"]
    intervals, gaps = ranking.intervals, ranking.gaps
    for row, (low, high), gap in zip(_build_ranking_rows(ranking), intervals, gaps, strict=True):
        behind = word = _MISSING
        if gap is not None:
            ends = f"[{gap.low:.3f}, {gap.high:.3f}]"
            behind, word = f"${gap.value:.3f}$ ${ends}$", "yes" if gap.is_separable else "no"
        cells = [f"{row.rank}", escape_latex(row.name), format_number(row.accuracy)]
        lines.append(" & ".join([*cells, f"$[{low:.3f}, {high:.3f}]$", behind, word]) + r" \\")
    held_out = f"accuracies of {len(ranking.checkpoints[0].answers.correct):,} held-out samples"
    sizes = [each.size for each in ranking.checkpoints if each.size is not None]
    notes = [f"{format_sizes(sizes)}; {held_out}" if sizes else held_out]
    notes.append(rf"{_MISSING}: the first itself; the other intervals hold for all pairs at once")
    return frame_tabular(lines, "rlrlll", notes)


@dataclass(frozen=True)
class RankingRow:
    """Checkpoint of a ranking as a page and a terminal show it.

    Attributes:
        rank: Rank from 1, shared by checkpoints of the same accuracy.
        name: Name of the checkpoint.
        accuracy: Accuracy of the probe.
        interval: Its 95 % interval.
        behind: Accuracy that it lacks to the first, with its interval; empty for the first.
        is_separable: True if this interval leaves 0 out, None for the first.
        places: Positions of accuracy and interval on the axis of the chart, in per cent: accuracy,
            low, high.
    """

    rank: int
    name: str
    accuracy: str
    interval: str
    behind: str
    is_separable: bool | None
    places: tuple[float, float, float]

    @property
    def short_word(self) -> str:
        """Word or two on whether the checkpoint is separable from the first."""
        return {None: "", True: "separable", False: "not separable"}[self.is_separable]


def _build_ranking_rows(ranking: Ranking) -> list[RankingRow]:
    start, stop = _find_axis(ranking)

    def place(value: float) -> float:
        return round(100 * (value - start) / (stop - start), 2)

    return [
        RankingRow(
            rank,
            each.name,
            f"{each.accuracy:.3f}",
            f"{low:.3f} to {high:.3f}",
            ""
            if gap is None
            else f"{gap.value:.3f} ({gap.low:.3f} to {gap.high:.3f})".replace("-", "−"),
            None if gap is None else gap.is_separable,
            (place(each.accuracy), place(low), place(high)),
        )
        for rank, each, (low, high), gap in zip(
            ranking.ranks, ranking.checkpoints, ranking.intervals, ranking.gaps, strict=True
        )
    ]


def _find_axis(ranking: Ranking) -> tuple[float, float]:
    """Return the ends of the axis of accuracies: those of all intervals, and some margin."""
    ends = [end for interval in ranking.intervals for end in interval]
    margin = 0.03 * (max(ends) - min(ends))
    return min(ends) - margin, max(ends) + margin


def _describe_accuracies(ranking: Ranking) -> str:
    """Say what the accuracies and the words of the ranking are."""
    count = len(ranking.checkpoints[0].answers.correct)
    text = (
        f"{ranking.measure[:1].upper()}{ranking.measure[1:]} accuracy of a linear probe on "
        f"{count:,} held-out samples."
    )
    if len(ranking.checkpoints) > 1:
        text += (
            " Separable: the difference from the first, judged sample by sample, is beyond chance "
            "(intervals of 95 % for all pairs at once); the intervals of two accuracies may "
            "overlap all the same."
        )
    return text


def _summarise_ranking(ranking: Ranking, static: StaticRanking | None = None) -> list[Summary]:
    """Summarise scores and strengths of the checkpoints, and how well the scores order them.

    Args:
        ranking: Ranking on one downstream set.
        static: Baselines judged on a table of other results, if there is one.
    """
    strengths = {each.name: [format_plain(each.strength, 2)] for each in ranking.checkpoints}
    variability = _select_scores(ranking, VARIABILITY_SCORES)
    probes = Summary(
        "λ, the strength of the probe's penalty, chosen on validation samples; scores of "
        "variability on the samples to which the probe is fitted.",
        ["λ", *_name_scores(variability)],
        _build_lines(ranking, variability, strengths),
        title="Strengths and variability",
    )
    judged = _select_scores(ranking, {**SCORES, **BASELINES})
    source = _select_scores(ranking, PRETRAINING_SCORES)
    summaries = [
        *_summarise_advice(ranking),
        probes,
        *_summarise_predictors(ranking),
        *_summarise_correlations(ranking, judged),
        *_summarise_choices(ranking, judged),
    ]
    if source:
        caption, lines = "Scores on the pretraining samples.", _build_lines(ranking, source, {})
        title = "On the pretraining samples"
        summaries.append(Summary(caption, _name_scores(source), lines, title=title))
        summaries += _summarise_correlations(ranking, source)
    return [*summaries, *([] if static is None else [_summarise_static(static)])]


def _summarise_predictors(ranking: Ranking) -> list[Summary]:
    """Build tables of the published scores, our own, and the baselines."""
    published = _select_scores(ranking, FIELD_SCORES)
    summaries = []
    if published:
        caption = "Published scores on the same samples; the greater, the better."
        lines = _build_lines(ranking, published, {})
        title = "Published scores"
        summaries.append(Summary(caption, _name_scores(published), lines, title=title))
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
        f"the targets of a zoo of 128 small networks, under conditions near yours. {advice.reason} "
        "The truth is "
        "the accuracy of a linear probe or, where it says fine-tuned, of the fine-tuned network. "
        "How a score orders a few checkpoints says less. "
        "Evidence and limits: the page 'A zoo of networks' of the documentation."
    )
    lines = {
        ALL_SCORES[key].name: [
            _format_interval(advice.weighted_tau[condition][key]) for condition in advice.conditions
        ]
        for key in keys
    }
    columns = [CONDITIONS[condition] for condition in advice.conditions]
    return [Summary(caption, columns, lines, title="Which score to trust")] if keys else []


def render_ranking_page(
    ranking: Ranking, facts: Mapping[str, str | int], static: StaticRanking | None = None
) -> str:
    """Render one self-contained HTML page, which requests nothing from the network.

    Args:
        ranking: Ranking on one downstream set.
        facts: Data set and settings of the ranking.
        static: Baselines judged on a table of other results, if there is one.
    """
    figure = plot_scores(ranking)
    image = io.BytesIO()
    figure.savefig(image, format="svg")
    start, stop = _find_axis(ranking)
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(start, stop)
    return render_template(
        "transfer.html.j2",
        title="Which checkpoint transfers",
        lead=ranking.verdict,
        facts=[_FACTS.get(name, name + " {}").format(value) for name, value in facts.items()],
        measure=f"{ranking.measure[:1].upper()}{ranking.measure[1:]}",
        rows=_build_ranking_rows(ranking),
        most_open=_MOST_OPEN,
        ticks={
            f"{tick:.6g}": round(100 * (tick - start) / (stop - start), 2)
            for tick in ticks
            if start <= tick <= stop
        },
        ranking_caption=_describe_accuracies(ranking),
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
    # Resamples that all agree, as those of three checkpoints in the right order, show no spread.
    ends = f" [{low:.2f}, {high:.2f}]" if low < high else ""
    return f"{value:.2f}{ends}".replace("-", "−")
