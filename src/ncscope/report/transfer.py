"""Scores of checkpoints and the accuracies of their probes, as tables and a page."""

import io
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ncscope.errors import printable
from ncscope.report.numbers import in_millions, plain
from ncscope.report.page import rendered
from ncscope.report.summary import Summary
from ncscope.report.transfer_figure import ranking_figure
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
_WIDEST = 7  # columns of published scores that a terminal can show
_MOST_CONDITIONS = 3  # columns with intervals that a terminal can show


def _ranking_summaries(ranking: Ranking, static: StaticRanking | None = None) -> list[Summary]:
    """Summarise a ranking: scores of the checkpoints, and how well the scores order them.

    Args:
        ranking: Ranking on one downstream set.
        static: Baselines judged on a table of other results, if there is one.
    """
    probed = {
        each.name: [plain(each.accuracy), plain(each.strength, 2)] for each in ranking.checkpoints
    }
    variability = _chosen(ranking, VARIABILITY_SCORES)
    accuracy = Summary(
        f"{ranking.measure[:1].upper()}{ranking.measure[1:]} accuracy of a linear probe on "
        "held-out samples, the best first; λ, the strength of its penalty; scores of variability "
        "on the samples to which the probe is fitted.",
        [ranking.measure, "λ", *_names(variability)],
        _lines(ranking, variability, probed),
        title="Checkpoints, the best first",
    )
    judged = _chosen(ranking, {**SCORES, **BASELINES})
    source = _chosen(ranking, PRETRAINING_SCORES)
    summaries = [accuracy, *_predictors(ranking), *_correlations(ranking, judged)]
    summaries += [*_choices(ranking, judged), *_advice(ranking)]
    if source:
        caption, lines = "Scores on the pretraining samples.", _lines(ranking, source, {})
        title = "On the pretraining samples"
        summaries.append(Summary(caption, _names(source), lines, title=title))
        summaries += _correlations(ranking, source)
    return [*summaries, *([] if static is None else [_static_summary(static)])]


def _predictors(ranking: Ranking) -> list[Summary]:
    """Build tables of the published scores, as wide as a terminal, our own, and the baselines."""
    chosen = _chosen(ranking, FIELD_SCORES)
    parts = [chosen[start : start + _WIDEST] for start in range(0, len(chosen), _WIDEST)]
    summaries = [
        Summary(
            "Published scores on the same samples; the greater, the better.",
            _names(part),
            _lines(ranking, part, {}),
            title="Published scores" + ", continued" * (index > 0),
        )
        for index, part in enumerate(parts)
    ]
    own = _chosen(ranking, OWN_SCORES)
    if own:
        caption = (
            "Our own score on the same samples: the share of the labels' entropy that a classifier "
            "explains on samples left out, from 0 (chance) to 1; ± its standard error."
        )
        lines = {each.name: [_with_error(each, key) for key in own] for each in ranking.checkpoints}
        summaries.append(Summary(caption, _names(own), lines, title="Our own score"))
    baselines = _chosen(ranking, BASELINES)
    if baselines:
        caption = (
            "Baselines, which know nothing of the set: number of parameters, accuracy on the "
            "pretraining set, and mean z-score of the accuracy on other sets, as far as known."
        )
        lines = _lines(ranking, baselines, {})
        summaries.append(Summary(caption, _names(baselines), lines, title="Baselines"))
    return summaries


def _with_error(checkpoint: CheckpointResult, key: str) -> str:
    told, error = plain(checkpoint.scores[key], _DIGITS), checkpoint.errors.get(key)
    return told if error is None else f"{told} ± {plain(error, 2)}"


def _advice(ranking: Ranking) -> list[Summary]:
    """Summarise how well each score ordered the zoo's networks under conditions like these."""
    known = ranking.advice
    if known is None:
        return []
    keys = [key for key in known.order if key in ranking.scores]
    caption = (
        "Which score to trust, the best first: mean weighted Kendall tau with 95 % intervals over "
        "the targets of a zoo of 128 small networks, under conditions near yours. The truth is "
        "the accuracy of a linear probe or, where it says fine-tuned, of the fine-tuned network. "
        "How a score orders a few checkpoints, above, says less. "
        "Evidence and limits: the page 'A zoo of networks' of the documentation."
    )
    summaries = []
    for start in range(0, len(known.conditions), _MOST_CONDITIONS):
        part = known.conditions[start : start + _MOST_CONDITIONS]
        lines = {
            ALL_SCORES[key].name: [
                _interval(known.weighted_tau[condition][key]) for condition in part
            ]
            for key in keys
        }
        title = "Which score to trust" + ", continued" * (start > 0)
        columns = [CONDITIONS[condition] for condition in part]
        summaries.append(Summary(caption, columns, lines, title=title))
        caption = "The same in the other condition, in the same order."
    return summaries if keys else []


def ranking_tables(ranking: Ranking, static: StaticRanking | None = None) -> list[Table]:
    """Build the tables of `_ranking_summaries` for the terminal.

    Args:
        ranking: Ranking on one downstream set.
        static: Baselines judged on a table of other results, if there is one.

    Returns:
        Tables that an 80-column terminal can show.
    """
    return [_table(summary) for summary in _ranking_summaries(ranking, static)]


def ranking_page(
    ranking: Ranking, facts: Mapping[str, str | int], static: StaticRanking | None = None
) -> str:
    """Render one self-contained HTML page, which requests nothing from the network.

    Args:
        ranking: Ranking on one downstream set.
        facts: Data set and settings of the ranking.
        static: Baselines judged on a table of other results, if there is one.
    """
    figure = ranking_figure(ranking)
    image = io.BytesIO()
    figure.savefig(image, format="svg")
    return rendered(
        "transfer.html.j2",
        title="Which checkpoint transfers",
        lead=_lead(ranking),
        facts=[_FACTS.get(name, name + " {}").format(value) for name, value in facts.items()],
        figure=f"data:image/svg+xml;base64,{b64encode(image.getvalue()).decode()}",
        inches=figure.get_figwidth(),
        caption=_CAPTION,
        summaries=_ranking_summaries(ranking, static),
        notes=ranking.notes,
    )


def _lead(ranking: Ranking) -> str:
    """Name the best checkpoint, or those that share the best accuracy."""
    top = ranking.checkpoints[0].accuracy
    best = [each.name for each in ranking.checkpoints if each.accuracy == top]
    names = f"{', '.join(best[:-1])} and {best[-1]} are" if best[1:] else f"{best[0]} is"
    return f"{names} best: {plain(top)} {ranking.measure} accuracy."


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


def _chosen(ranking: Ranking, scores: Mapping[str, Score]) -> list[str]:
    return [key for key in ranking.scores if key in scores]


def _names(keys: Sequence[str]) -> list[str]:
    return [ALL_SCORES[key].name.removesuffix(", pretraining") for key in keys]


def _lines(
    ranking: Ranking, keys: Sequence[str], before: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    return {
        each.name: [
            *before.get(each.name, []),
            *(_cell(key, each.scores[key]) for key in keys),
        ]
        for each in ranking.checkpoints
    }


def _cell(key: str, value: float) -> str:
    if key == "parameters" and math.isfinite(value):
        return in_millions(value)
    if key in BASELINES and math.isnan(value):
        return "unknown"
    return plain(value, _DIGITS)


def _judged_name(ranking: Ranking, key: str) -> str:
    """Return the name of a score with its direction; the H-score is marked if it is VCI again."""
    arrow = "↑" if ALL_SCORES[key].better > 0 else "↓"
    again = " = VCI" if key == "h_score" and ranking.has_redundant_h_score else ""
    return f"{_names([key])[0]} {arrow}{again}"


def _correlations(ranking: Ranking, keys: Sequence[str]) -> list[Summary]:
    if not any(key in ranking.correlations for key in keys):
        return []
    names = ("pearson", "spearman", "kendall")
    lines = {}
    for key in keys:
        by_name = ranking.correlations.get(key)
        cells = [_interval(by_name[each]) if by_name else "–" for each in names]
        lines[_judged_name(ranking, key)] = cells
    caption = (
        "Correlation of each score with the accuracy over the checkpoints, with bootstrap "
        "intervals of 95 %. ↑ greater is said to be better, ↓ smaller."
    )
    if "h_score" in keys and ranking.has_redundant_h_score:
        caption += " The H-score is the rank times 1 − VCI: the two count as one score."
    columns = [name.capitalize() for name in names]
    return [Summary(caption, columns, lines, title="Correlation with the accuracy")]


def _choices(ranking: Ranking, keys: Sequence[str]) -> list[Summary]:
    """Build the table of how well each score chooses among the checkpoints."""
    if not ranking.qualities:
        return []
    lines = {}
    for key in keys:
        quality = ranking.qualities[key]
        cells = [_interval(quality.weighted_kendall), _interval(quality.regret)]
        lines[_judged_name(ranking, key)] = cells
    caption = (
        "Weighted Kendall tau, in which pairs with a good checkpoint count more, and the accuracy "
        "lost by taking the checkpoint that the score puts first; with bootstrap intervals of 95 % "
        "over the checkpoints."
    )
    if any(key in BASELINES for key in keys):
        caption += " Parameters, source accuracy and other sets know nothing of this set."
    columns = ["Weighted tau", "Top-1 regret"]
    return [Summary(caption, columns, lines, title="As a way to choose a checkpoint")]


def _static_summary(static: StaticRanking) -> Summary:
    """Build the table of the baselines on the sets of other results."""
    rows = {
        "weighted tau": "weighted_kendall",
        "Kendall": "kendall",
        "Spearman": "spearman",
        "top-1 regret": "regret",
    }

    def cell(quality: RankingQuality, name: str) -> str:
        return _interval(getattr(quality, name))

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
    return Summary(caption, _names(list(static.qualities)), lines, title="Without looking at a set")


def _interval(coefficient: Correlation) -> str:
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
