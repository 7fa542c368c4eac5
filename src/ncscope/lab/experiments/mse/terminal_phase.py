"""Terminal phase of training, past zero error: its quantities, claims by network, and figures.

As in Papyan, Han and Donoho 2020, the training error counts as zero from 99.9 % accuracy on.

A claim about networks is judged for each data set and kind of network by the 95 % interval over its
seeds. It is held if it is held for two thirds of them, unless it states another number.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.claims import Claim, Region, above, tell_each, two_thirds
from ncscope.lab.experiments.mse.networks import (
    KINDS,
    LOSSES,
    name_kind,
    name_network,
    select_typical,
)
from ncscope.lab.figures import Curve, draw_grid, draw_paths
from ncscope.lab.intervals import Scale
from ncscope.lab.quantities import AnyQuantity, Path, Run, Runs, ends, ratio, zero_error_row
from ncscope.report import panels

ZERO_ERROR = 0.999
"""Training accuracy from which on the error counts as zero."""
COLLAPSE = 2.0
"""Least factor by which variability falls past zero error if it collapses."""
FACTOR = 1.1
"""Least factor between two values of which one is said to be larger, or to have fallen."""
COLOURS = {"mse": panels.ACCENT, "cross-entropy": panels.SERIES[2]}


def find_zero_error(run: Run) -> int | None:
    """Return the first measured epoch of zero training error of a run; None without one."""
    row = zero_error_row(run.path(), ZERO_ERROR)
    return None if row is None else row.epoch


def select_phase(run: Run, split: str = "train") -> Path:
    """Select the rows of a split from the first measured epoch of zero training error on.

    Args:
        run: Run; without rows if it has training errors at every measured epoch.
        split: Split of the rows.
    """
    since = find_zero_error(run)
    return [] if since is None else [row for row in run.path(split) if row.epoch >= since]


def phase_ends(run: Run, key: str, split: str = "train") -> tuple[float, float] | None:
    """Return a metric at zero training error and at the end; None if never reached.

    A run that reaches zero error only at its last measurement has no terminal phase.
    """
    path = select_phase(run, split)
    return ends(path, key) if len(path) > 1 else None


def end_over_zero_error(key: str, split: str = "train") -> AnyQuantity:
    """Return the quantity of a metric at the end over that at zero training error."""

    def quantity(run: Run) -> float:
        change = phase_ends(run, key, split)
        return math.nan if change is None else ratio(change[1], change[0])

    return quantity


def write_change(key: str, split: str = "train") -> Callable[[Run], str]:
    """Return a function that writes a metric at zero training error and at the end."""

    def write(run: Run) -> str:
        change = phase_ends(run, key, split)
        return "never at zero error" if change is None else f"{change[0]:.3g} to {change[1]:.3g}"

    return write


def claim_by_network(
    text: str,
    quantity: AnyQuantity,
    *,
    source: str,
    region: Region,
    scale: Scale = "ratio",
    write: Callable[[Run], str] | None = None,
    **fields: Any,
) -> Claim:
    """Make a claim that holds in most networks, the paper's exceptions apart.

    Args:
        text: Text of the claim.
        quantity: Number of one run.
        source: Owner of the claim.
        region: Values for which the claim is true.
        scale: Scale of the mean over the seeds.
        write: Function that writes the numbers of a run, for the evidence.
        fields: Further fields of `Claim`.
    """
    return Claim(
        text=text,
        source=source,
        quantity=quantity,
        region=region,
        scale=scale,
        tell=None if write is None else tell_each(write),
        **{"where": select_typical, "groups": name_network, "enough": two_thirds} | fields,
    )


def claim_zero_error() -> Claim:
    """Make the claim that training goes past zero error, on which the other claims depend."""

    def write(run: Run) -> str:
        epoch = find_zero_error(run)
        return "never" if epoch is None else f"epoch {epoch}"

    return Claim(
        text="every network has zero training error before the last epoch",
        source="ours",
        quantity=lambda run: len(select_phase(run)) if run.path() else math.nan,
        region=above(1),
        rule="each",
        where=select_typical,
        over="runs; first measured",
        tell=tell_each(write),
    )


def draw_networks(runs: Runs, quantity: str, draw: Callable[[Axes, Runs], None]) -> Figure:
    """Arrange panels as in the paper: one column per data set, one row per kind of network.

    Args:
        runs: Runs to draw.
        quantity: AnyQuantity on the vertical axes.
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
        quantity=quantity,
    )


def draw_curves(axes: Axes, runs: Runs, curves: Sequence[Curve], split: str = "train") -> None:
    """Draw metrics of each run over training, with its epoch of zero error.

    Args:
        axes: Axes to draw on.
        runs: Runs of one network.
        curves: Metrics, each with name and colour.
        split: Split of the rows.
    """
    for run in runs:
        path = run.path(split)
        for curve in curves:
            # The line at zero error is drawn once a run.
            mark = find_zero_error(run) if curve is curves[0] else None
            draw_paths(axes, {curve.label: path}, curve.key, colours=[curve.colour], mark=mark)


def draw_losses(axes: Axes, runs: Runs, key: str, split: str = "train") -> None:
    """Draw a metric of runs under two losses, with epochs of zero error in their colours.

    Args:
        axes: Axes to draw on.
        runs: Runs of one network.
        key: Key of the metric.
        split: Split of the rows.
    """
    for run in runs:
        loss = run.settings.loss
        colour = COLOURS[loss]
        draw_paths(axes, {LOSSES[loss]: run.path(split)}, key, colours=[colour])
        epoch = find_zero_error(run)
        if epoch is not None:
            axes.axvline(epoch, color=colour, linewidth=0.9, linestyle=panels.DASHED)
