"""Tables and figures of the zoo."""

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.transfer.advice import (
    CONDITIONS,
    FEW,
    FEW_OF_MANY,
    MANY,
    MANY_CLASSES,
    MORE_CLASSES,
    TUNED,
    USUAL,
)
from ncscope_lab.experiments.transfer.cells import A_FEW, ALL, Cell
from ncscope_lab.experiments.transfer.judgement import (
    PHRASES,
    PUBLISHED,
    ByTarget,
    Verdicts,
    group_cells,
    judge_scores,
    mean_quality,
    quality_interval,
)
from ncscope_lab.experiments.transfer.scores import INDEX
from ncscope_lab.intervals import Interval, mean_interval
from ncscope_lab.quantities import average
from ncscope_lab.report.drawing import Drawing

_NONE = "–"


def make_tables(verdicts: Verdicts, costs: Mapping[str, float] | None = None) -> list[Summary]:
    """Return all tables of a half of the zoo.

    Args:
        verdicts: Judgement of the half.
        costs: Seconds of each score for a cell, by key; None if they were not measured.
    """
    tables = [quality_table(verdicts, images) for images in PHRASES]
    tables += [table_of_tuning(verdicts), conditions_table(verdicts)]
    tables += [architectures_table(verdicts, images) for images in PHRASES]
    tables += [ingredients_table(verdicts)]
    return tables if costs is None else [*tables, cost_table(verdicts, costs)]


def order_scores(found: Mapping[str, ByTarget]) -> list[str]:
    """Return the keys of all scores, the best mean weighted tau first.

    Args:
        found: Qualities of every score by target.
    """
    means = {key: mean_quality(by_target) for key, by_target in found.items()}
    return sorted(means, key=lambda key: -means[key] if math.isfinite(means[key]) else math.inf)


def quality_table(verdicts: Verdicts, images: str) -> Summary:
    """Return scores by weighted tau, tau, regret and residual correlation.

    Args:
        verdicts: Judgement.
        images: Number of training images of the target.
    """
    found = verdicts.qualities[images]
    caption = (
        f"How well each score orders the networks, with {PHRASES[images]}: means over "
        f"{len(found.get(INDEX, {}))} targets with 95 % intervals (Student's t over "
        "targets). The truth is the held-out accuracy of a linear probe. Regret: best accuracy "
        "less that of the network put first, in percentage points. Residual: rank correlation "
        "that is left after parameters, source accuracy and results on other targets. NCTI is "
        "relative to all networks. With five images a class NLEEP's mixture has a component for "
        "every image, and says little."
    )
    return _table_of_qualities(verdicts, found, caption, f"All scores, {PHRASES[images]}")


def _table_of_qualities(
    verdicts: Verdicts, found: Mapping[str, ByTarget], caption: str, title: str
) -> Summary:
    lines = {
        name_score(verdicts, key): [
            _write_quality(found[key]),
            format_number(mean_quality(found[key], "tau")),
            format_number(100 * mean_quality(found[key], "regret"), 1),
            _write_quality(found[key], "residual"),
        ]
        for key in order_scores(found)
    }
    return Summary(caption, ["weighted tau", "tau", "regret", "residual"], lines, title)


def _write_quality(found: ByTarget, quality: str = "weighted_tau") -> str:
    """Write the mean over targets of a quality, with its interval."""
    return format_interval(quality_interval(found, quality), mean_quality(found, quality))


def table_of_tuning(verdicts: Verdicts) -> Summary:
    """Return scores by quality where fine-tuning is the truth.

    Args:
        verdicts: Judgement.
    """
    caption = (
        "The same with all training images, where the truth is the held-out accuracy after the "
        "whole network was fine-tuned, in a third of the cells; results on other "
        "targets are still those of the probe."
    )
    title = "All scores, fine-tuning as truth"
    return _table_of_qualities(verdicts, verdicts.fine_tuning, caption, title)


def group_by_condition(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells by condition, in the terms of `ncscope.transfer.advice`.

    Args:
        cells: Cells of the half.
    """
    whole = [cell for cell in cells if cell.images == ALL]
    few = [cell for cell in cells if cell.images == A_FEW]
    return {
        USUAL: whole,
        FEW: few,
        MANY: [cell for cell in whole if cell.value("classes") >= MANY_CLASSES],
        FEW_OF_MANY: [cell for cell in few if cell.value("classes") >= MANY_CLASSES],
        MORE_CLASSES: [cell for cell in whole if cell.value("classes") > cell.value("dim")],
    }


def judge_by_condition(verdicts: Verdicts) -> dict[str, Mapping[str, ByTarget]]:
    """Return the qualities of every score by condition and key; empty conditions are left out.

    Args:
        verdicts: Judgement.
    """
    found: dict[str, Mapping[str, ByTarget]] = {
        name: judge_scores(cells, verdicts.scores)
        for name, cells in group_by_condition(verdicts.cells).items()
        if group_cells(cells)
    }
    if any(verdicts.fine_tuning.values()):
        found[TUNED] = verdicts.fine_tuning
    return found


def conditions_table(verdicts: Verdicts) -> Summary:
    """Return the weighted tau of each score by condition.

    Args:
        verdicts: Judgement.
    """
    parts = judge_by_condition(verdicts)
    lines = {
        name_score(verdicts, key): [_write_quality(found[key]) for found in parts.values()]
        for key in order_scores(verdicts.qualities[ALL])
    }
    columns = []
    for name, found in parts.items():
        count = len(found.get(INDEX, ()))
        told = f" ({count} target{'' if count == 1 else 's'})" if INDEX in found else ""
        columns.append(CONDITIONS[name] + told)
    caption = (
        "Which score to trust when: mean weighted tau over targets with 95 % intervals, by "
        "condition. More classes than features: only the networks with fewer features."
    )
    return Summary(caption, columns, lines, "By condition")


def architectures_table(verdicts: Verdicts, images: str) -> Summary:
    """Return the weighted tau by held-out architecture, and without each architecture.

    Args:
        verdicts: Judgement.
        images: Number of training images of the target.
    """
    config = verdicts.config
    cells = [cell for cell in verdicts.cells if cell.images == images]
    held_out = config.held_out_architectures
    alone = [[cell for cell in cells if cell.architecture == name] for name in held_out]
    groups = [*alone, [cell for group in alone for cell in group]]
    without = [
        [cell for cell in cells if cell.architecture != name] for name in config.architectures
    ]
    inside, outside = (
        [judge_scores(chosen, verdicts.scores) for chosen in parts] for parts in (groups, without)
    )
    lines = {}
    for key in order_scores(verdicts.qualities[images]):
        own = [format_number(mean_quality(found[key])) for found in inside]
        means = [mean_quality(found[key]) for found in outside]
        known = [value for value in means if math.isfinite(value)]
        span = f"{format_number(min(known))} to {format_number(max(known))}" if known else _NONE
        lines[name_score(verdicts, key)] = [*own, span]
    caption = (
        f"Mean weighted tau over targets, with {PHRASES[images]}: within each held-out "
        "architecture, among the three, and the range when one of the eight is left out."
    )
    columns = [*held_out, "the three", "one left out"]
    return Summary(caption, columns, lines, f"Held-out architectures, {PHRASES[images]}")


def ingredients_table(verdicts: Verdicts) -> Summary:
    """Return what our index gains by each ingredient.

    Args:
        verdicts: Judgement.
    """
    by_images = {images: verdicts.ingredients(images) for images in PHRASES}
    names = list(next(iter(by_images.values())))
    lines = {
        name: [
            format_interval(mean_interval(found[name]), average(found[name]), signed=True)
            for found in by_images.values()
        ]
        for name in names
    }
    caption = (
        "What explained entropy gains in weighted tau over itself without an ingredient, or with "
        "something added: means over targets with 95 % intervals. Positive: the index is better as "
        "it is."
    )
    return Summary(caption, list(PHRASES.values()), lines, "Ingredients of explained entropy")


def cost_table(verdicts: Verdicts, costs: Mapping[str, float]) -> Summary:
    """Return the time of each score.

    Args:
        verdicts: Judgement.
        costs: Seconds of each score for a cell, by key.
    """
    probe = costs.get("probe", math.nan)
    lines = {
        (name_score(verdicts, key) if key in verdicts.scores else key): [
            f"{1000 * seconds:.3g} ms",
            f"{probe / seconds:.3g}" if seconds > 0 else _NONE,
        ]
        for key, seconds in sorted(costs.items(), key=lambda pair: pair[1])
    }
    caption = (
        "Time of each score for a cell, from its features: median over cells. "
        "Beside it, how many times faster than the probe it is."
    )
    return Summary(caption, ["time", "times faster than the probe"], lines, "Cost")


def name_score(verdicts: Verdicts, key: str) -> str:
    """Return the name of a score; ours and the user's are marked.

    Args:
        verdicts: Judgement.
        key: Key of the score.
    """
    name = verdicts.scores[key].name
    if key == "h_score":
        return f"{name} (= VCI)"
    if key == INDEX:
        return f"{name} (ours)"
    return f"{name} (yours)" if key in verdicts.user_scores else name


def format_interval(interval: Interval | None, mean: float, *, signed: bool = False) -> str:
    """Return a mean with its interval.

    Args:
        interval: The interval; None if there is none.
        mean: The mean.
        signed: Write a plus before a positive mean if True.
    """
    told = format_number(mean, signed=signed)
    return (
        told
        if interval is None
        else f"{told} [{format_number(interval.low)}, {format_number(interval.high)}]"
    )


def format_number(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number with a true minus sign; a dash if it is unknown.

    Args:
        value: The number.
        digits: Digits after the point.
        signed: Write a plus before a positive number if True.
    """
    if not math.isfinite(value):
        return _NONE
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def brief_table(verdicts: Verdicts) -> Summary:
    """Return the weighted tau of each score, for a terminal of 80 columns.

    Args:
        verdicts: Judgement.
    """
    lines = {
        name_score(verdicts, key): [
            _write_quality(found[key]) for found in verdicts.qualities.values()
        ]
        for key in order_scores(verdicts.qualities[ALL])
    }
    caption = (
        "Mean weighted Kendall tau over targets, with 95 % intervals. The page has all tables."
    )
    return Summary(caption, ["all images", "five a class"], lines)


_HEIGHT = 0.24  # inches of a line


def draw_figures(verdicts: Verdicts) -> list[Drawing]:
    """Draw a half of the zoo.

    Args:
        verdicts: Judgement of the half.
    """
    orders = (
        "How well each score orders the networks: mean weighted tau over the targets with 95 % "
        "intervals; green: explained entropy, orange: what does not look at the target (size, "
        "source accuracy, metrics on the source, results on other targets), the rest: published "
        "scores on the target."
    )
    heat = (
        "Weighted tau of each score on each target, with all training images; the best score of a "
        "target is framed."
    )
    return [
        Drawing("scores", orders, orders_figure(verdicts)),
        Drawing("targets", heat, targets_figure(verdicts)),
    ]


def orders_figure(verdicts: Verdicts) -> Figure:
    """Draw the mean weighted tau of every score, a panel for each number of images.

    Args:
        verdicts: Judgement of the half.
    """
    keys = order_scores(verdicts.qualities[ALL])
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(9.5, 1.1 + _HEIGHT * max(1, len(keys))), layout="constrained")
        grid = figure.subplots(1, len(PHRASES), sharey=True)
        for axes, (images, phrase) in zip(grid, PHRASES.items(), strict=True):
            for place, key in enumerate(keys):
                found, colour = verdicts.qualities[images][key], _colour(verdicts, key)
                interval = quality_interval(found)
                if interval is not None:
                    ends = [interval.low, interval.high]
                    axes.plot(ends, [place, place], color=colour, linewidth=1.6)
                size = 6 if _is_own(verdicts, key) else 4.5
                axes.plot(mean_quality(found), place, "o", color=colour, markersize=size)
            axes.axvline(0, color=panels.SOFT, linewidth=0.8)
            axes.set_title(phrase[:1].upper() + phrase[1:])
            axes.set_xlabel("weighted Kendall tau")
            axes.grid(visible=False, axis="y")
        grid[0].set_yticks(range(len(keys)), [name_score(verdicts, key) for key in keys])
        grid[0].invert_yaxis()
        for label, key in zip(grid[0].get_yticklabels(), keys, strict=True):
            label.set_color(_colour(verdicts, key))
            label.set_fontweight("bold" if _is_own(verdicts, key) else "normal")
    return figure


def _is_own(verdicts: Verdicts, key: str) -> bool:
    return key == INDEX or key in verdicts.user_scores


def _colour(verdicts: Verdicts, key: str) -> str:
    if _is_own(verdicts, key):
        return panels.ACCENT
    return "#1d2327" if key in PUBLISHED else panels.SECOND


def targets_figure(verdicts: Verdicts) -> Figure:
    """Draw the weighted tau of every score on every target.

    Args:
        verdicts: Judgement of the half.
    """
    keys = order_scores(verdicts.qualities[ALL])
    of_keys = [verdicts.qualities[ALL][key] for key in keys]
    targets = list(dict.fromkeys(target for of in of_keys for target in of))
    values = np.array(
        [[of[at].weighted_tau if at in of else math.nan for at in targets] for of in of_keys],
        dtype=float,
    ).reshape(len(keys), len(targets))
    with mpl.rc_context(panels.STYLE):
        size = (3.2 + 0.75 * max(1, len(targets)), 1.6 + _HEIGHT * max(1, len(keys)))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.grid(visible=False)
        if values.size:
            axes.imshow(values, cmap=panels.make_cosine_colours(), vmin=-1, vmax=1, aspect="auto")
        for (row, column), value in np.ndenumerate(values):
            if not math.isfinite(value):
                continue
            colour = "white" if abs(value) > 0.6 else "#1d2327"
            text = f"{value:.2f}".replace("-", "−")
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
            if value == np.nanmax(values[:, column]):  # the best score of the target is framed
                at = column - 0.5, row - 0.5
                frame = mpl.patches.Rectangle(
                    at, 1, 1, fill=False, edgecolor="#1d2327", linewidth=1.6
                )
                axes.add_patch(frame)
        axes.set_yticks(range(len(keys)), [name_score(verdicts, key) for key in keys])
        axes.set_xticks(range(len(targets)), targets, rotation=35, ha="right")
        axes.set_title("Weighted Kendall tau by target")
    return figure
