"""Terminal phase of training, past zero error: its quantities, claims by network, and figures.

As in Papyan, Han and Donoho 2020, the training error counts as zero from 99.9 % accuracy on.

A claim about networks is judged for each data set and kind of network by the 95 % interval over its
seeds. It is held if it is held for two thirds of them, unless it states another number.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.report import panels
from ncscope_lab.claims import Claim, above, two_thirds
from ncscope_lab.experiments.mse.networks import (
    KINDS,
    LOSSES,
    Loss,
    name_kind,
    name_network,
    select_typical,
)
from ncscope_lab.figures import Curve, draw_grid, scale_epochs
from ncscope_lab.quantities import (
    Path,
    Quantity,
    Run,
    Runs,
    ends,
    last,
    quantity,
    values,
    zero_error_row,
)

ZERO_ERROR = 0.999
"""Training accuracy from which on the error counts as zero."""
COLLAPSE = 2.0
"""Least factor by which variability falls past zero error if it collapses."""
FACTOR = 1.1
"""Least factor between two values of which one is said to be larger, or to have fallen."""
LOOKS: Mapping[Loss, tuple[str, Any]] = {
    "mse": (panels.ACCENT, "-"),
    "cross-entropy": (panels.SECOND, panels.DASHED),
}
"""Colour and style of the curves of runs under each loss."""


def find_zero_error(run: Run) -> int | None:
    """Return the first measured epoch of zero training error of a run; None without one."""
    row = zero_error_row(run.path(), ZERO_ERROR)
    return None if row is None else row.epoch


def select_phase(run: Run, split: str = "train") -> Path:
    """Select the rows of a split from the first measured epoch of zero training error on.

    A run that reaches zero error only at its last measurement, or never, has no terminal phase.

    Args:
        run: The run.
        split: Split of the rows.
    """
    since = find_zero_error(run)
    path = [] if since is None else [row for row in run.path(split) if row.epoch >= since]
    return path if len(path) > 1 else []


def at_zero_error(key: str, split: str = "train") -> Quantity:
    """Return the quantity of a metric at zero training error; NaN without a terminal phase."""
    where = "" if split == "train" else f" ({split})"
    return Quantity(
        f"{key} at zero error{where}", lambda run: ends(select_phase(run, split), key)[0]
    )


def end_over_zero_error(key: str, split: str = "train") -> Quantity:
    """Return the quantity of a metric at the end over that at zero training error."""
    return last(key, split) / at_zero_error(key, split)


@quantity("epochs past zero error")
def epochs_past_zero_error(run: Run) -> float:
    """Return the epochs from the first measured epoch of zero training error to the last."""
    path, zero = run.path(), find_zero_error(run)
    if not path:
        return math.nan
    return 0.0 if zero is None else path[-1].epoch - zero


claim_of_most = partial(
    Claim, scale="ratio", where=select_typical, groups=name_network, enough=two_thirds
)
"""Claim of most networks, the paper's exceptions apart, about the mean of a ratio over the seeds.
"""

ZERO_ERROR_CLAIM = Claim(  # the claims past zero error depend on it
    text="every network has zero training error before the last epoch",
    source="ours",
    quantity=epochs_past_zero_error,
    region=above(0),
    rule="all",
    where=select_typical,
    over="runs",
)


def draw_networks(runs: Runs, label: str, draw: Callable[[Axes, Runs], None]) -> Figure:
    """Arrange panels as in the paper: one column per data set, one row per kind of network.

    Args:
        runs: Runs to draw.
        label: Name of the quantity on the vertical axes.
        draw: Function that draws the runs of one network.
    """

    def draw_cell(kind: str, data: str, own: Runs, axes: Axes) -> None:
        draw(axes, own)
        axes.set_title(f"{kind}, {data}")

    columns = list(runs.group("data"))
    order = {kind: row for row, kind in enumerate(KINDS)}
    rows = sorted(runs.group(name_kind).items(), key=lambda each: order.get(each[0], len(order)))
    cells = [(kind, of_kind.group("data")) for kind, of_kind in rows]
    return draw_grid(
        [
            [partial(draw_cell, kind, data, own[data]) if data in own else None for data in columns]
            for kind, own in cells
        ],
        cell=(max(2.9, 5.6 / max(1, len(columns))), 2.2),
        legend="above",
        quantity=label,
    )


def draw_curves(axes: Axes, runs: Runs, curves: Sequence[Curve], split: str = "train") -> None:
    """Draw metrics of each run over training, with its epoch of zero error.

    Args:
        axes: Axes to draw on.
        runs: Runs of one network.
        curves: Metrics, each with the appearance of its curve.
        split: Split of the rows.
    """
    draw_courses(axes, [(run, curve) for run in runs for curve in curves], split)


def draw_losses(axes: Axes, runs: Runs, key: str, split: str = "train") -> None:
    """Draw a metric of runs under two losses, with their epochs of zero error.

    Args:
        axes: Axes to draw on.
        runs: Runs of one network.
        key: Key of the metric.
        split: Split of the rows.
    """
    curves = {loss: Curve(key, LOSSES[loss], *LOOKS[loss]) for loss in LOSSES}
    draw_courses(axes, [(run, curves[run.settings.loss]) for run in runs], split)


def draw_courses(
    axes: Axes,
    courses: Sequence[tuple[Run, Curve]],
    split: str = "train",
    scale: Sequence[float] = (),
) -> None:
    """Draw metrics of runs over training, each with a dot at its epoch of zero error.

    Args:
        axes: Axes to draw on.
        courses: Runs, each with the metric to draw.
        split: Split of the rows.
        scale: All values on the axes, and on those that share their scale.
    """
    scale = scale or list_values(courses, split)
    log = all(panels.is_logarithmic(curve.key, scale) for _, curve in courses)
    for run, curve in courses:
        path = [row for row in run.path(split) if curve.key in row]
        numbers = values(path, curve.key)
        drawn = panels.place_on_log_axis(numbers, scale) if log else numbers
        look = {"color": curve.colour, "linestyle": curve.style, "linewidth": 0.9}
        axes.plot([row.epoch for row in path], drawn, label=curve.label, **look)
        zero = find_zero_error(run)
        reached = [(zero, at) for row, at in zip(path, drawn, strict=True) if row.epoch == zero]
        if reached:
            label = "zero training error"
            axes.plot(*zip(*reached, strict=True), "o", color=curve.colour, ms=4, label=label)
    if log:
        panels.make_logarithmic(axes, "y", scale)
    scale_epochs(axes)


def list_values(courses: Sequence[tuple[Run, Curve]], split: str = "train") -> list[float]:
    """List all finite values of runs' metrics over training."""
    numbers = (
        float(row[curve.key])
        for run, curve in courses
        for row in run.path(split)
        if curve.key in row
    )
    return list(filter(math.isfinite, numbers))
