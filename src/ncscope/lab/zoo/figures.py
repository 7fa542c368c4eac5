"""Figures of the zoo's page."""

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.report.drawing import Drawing
from ncscope.lab.zoo.cells import ALL
from ncscope.lab.zoo.ingredients import INDEX
from ncscope.lab.zoo.judgement import mean_quality, over_targets
from ncscope.lab.zoo.tables import named, ordered
from ncscope.lab.zoo.verdicts import PHRASES, PUBLISHED, Verdicts
from ncscope.report import panels

_HEIGHT = 0.24  # inches of a line


def drawings_of(verdicts: Verdicts) -> list[Drawing]:
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
    keys = ordered(verdicts)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(9.5, 1.1 + _HEIGHT * max(1, len(keys))), layout="constrained")
        grid = figure.subplots(1, len(PHRASES), sharey=True)
        for axes, (images, phrase) in zip(grid, PHRASES.items(), strict=True):
            for place, key in enumerate(keys):
                _mark(axes, verdicts, images, key, place)
            axes.axvline(0, color=panels.SOFT, linewidth=0.8)
            axes.set_title(phrase[:1].upper() + phrase[1:])
            axes.set_xlabel("weighted Kendall tau")
            axes.grid(visible=False, axis="y")
        grid[0].set_yticks(range(len(keys)), [named(verdicts, key) for key in keys])
        grid[0].invert_yaxis()
        for label, key in zip(grid[0].get_yticklabels(), keys, strict=True):
            label.set_color(_colour(verdicts, key))
            label.set_fontweight("bold" if _is_own(verdicts, key) else "normal")
    return figure


def _mark(axes: Axes, verdicts: Verdicts, images: str, key: str, place: int) -> None:
    found = verdicts.qualities[images, key]
    mean, interval = mean_quality(found), over_targets(found)
    colour = _colour(verdicts, key)
    if interval is not None:
        axes.plot([interval.low, interval.high], [place, place], color=colour, linewidth=1.6)
    axes.plot(mean, place, "o", color=colour, markersize=6 if _is_own(verdicts, key) else 4.5)


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
    keys = ordered(verdicts)
    targets = list(dict.fromkeys(t for key in keys for t in verdicts.qualities[ALL, key]))
    values = np.array(
        [[_weighted(verdicts, key, target) for target in targets] for key in keys], dtype=float
    ).reshape(len(keys), len(targets))
    with mpl.rc_context(panels.STYLE):
        size = (3.2 + 0.75 * max(1, len(targets)), 1.6 + _HEIGHT * max(1, len(keys)))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.grid(visible=False)
        if values.size:
            axes.imshow(values, cmap=panels.make_cosine_colours(), vmin=-1, vmax=1, aspect="auto")
            _write(axes, values)
        axes.set_yticks(range(len(keys)), [named(verdicts, key) for key in keys])
        axes.set_xticks(range(len(targets)), targets, rotation=35, ha="right")
        axes.set_title("Weighted Kendall tau by target")
    return figure


def _write(axes: Axes, values: Sequence[Sequence[float]] | np.ndarray) -> None:
    """Write each number into its field, and frame the greatest of each column."""
    table = np.asarray(values)
    for (row, column), value in np.ndenumerate(table):
        if not math.isfinite(value):
            continue
        colour = "white" if abs(value) > 0.6 else "#1d2327"
        text = f"{value:.2f}".replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
        if value == np.nanmax(table[:, column]):
            frame = mpl.patches.Rectangle(
                (column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#1d2327", linewidth=1.6
            )
            axes.add_patch(frame)


def _weighted(verdicts: Verdicts, key: str, target: str) -> float:
    found = verdicts.qualities[ALL, key].get(target)
    return math.nan if found is None else found.weighted_tau
