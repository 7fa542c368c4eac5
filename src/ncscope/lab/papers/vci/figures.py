"""Figures of VCI's experiments: the four metrics, variances and eigenvalues."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from ncscope.lab.observations import Observation, Results
from ncscope.lab.papers.trained import history, ratio, values
from ncscope.lab.papers.vci.variability import (
    METRICS,
    Groups,
    projections,
    share_off_signal,
    spectra,
    trained,
)
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import epochs_panel, logarithmic_values
from ncscope.report import panels

Draw = Callable[[Results, Sequence[str]], Figure]


def drawings(
    rows: Results,
    parts: Sequence[str],
    eigenvalues: Sequence[str],
    metrics: Mapping[str, tuple[str, Sequence[str]]],
    held_out: Sequence[str],
) -> list[Drawing]:
    """Draw the paper's figures, except those without runs.

    Args:
        rows: Rows of a study.
        parts: Runs of figure 1.
        eigenvalues: Runs of figure 2.
        metrics: Description of the comparison and its runs, by number of the figure.
        held_out: Runs of figures 6 and 8.
    """
    on_signal = (
        "VCI figure 1: the variance within classes on V_B, the span of the centred class means, "
        "and off V_B, on training images; below, divided by the trace of Sigma_B, so that the two "
        "curves add up to the squared distance."
    )
    spectrum = (
        "VCI figure 2: eigenvalues of Sigma_B, up to its largest possible rank, and of Sigma_T, on "
        "training images at the last epoch."
    )
    names = "fuzziness, squared distance, cosine distance and VCI on training images"
    last = "VCI figure 6: VCI on training and on held-out images."
    others = "VCI figure 8: the three other metrics on training and on held-out images."
    rest = [key for key in METRICS if key != "vci"]
    figures: list[tuple[Sequence[str], str, str, Draw]] = [
        (parts, "1", on_signal, _projections_figure),
        (eigenvalues, "2", spectrum, _spectra_figure),
        *(
            (runs, number, f"VCI figure {number}: {names}, {what}.", _metrics_figure)
            for number, (what, runs) in metrics.items()
        ),
        (held_out, "6", last, partial(_train_test_figure, keys=["vci"])),
        (held_out, "8", others, partial(_train_test_figure, keys=rest)),
    ]
    return [
        Drawing(f"fig-{number}", caption, draw(rows, runs))
        for runs, number, caption, draw in figures
        if runs
    ]


def _metrics_figure(rows: Results, runs: Sequence[str]) -> Figure:
    """Draw the four metrics on training images: one panel per metric, one curve per run.

    Args:
        rows: Rows of a study.
        runs: Names of the runs.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(12, 3.3), layout="constrained")
        for axes, (key, title) in zip(figure.subplots(1, 4), METRICS.items(), strict=True):
            curves = {run: trained(rows, run) for run in runs}
            _over_epochs(axes, curves, key, title[:1].upper() + title[1:])
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(runs))
    return figure


def _train_test_figure(rows: Results, runs: Sequence[str], keys: Sequence[str]) -> Figure:
    """Draw metrics on training and held-out images: one row per metric, one column per run.

    Args:
        rows: Rows of a study.
        runs: Names of the runs.
        keys: Keys of the metrics.
    """
    with mpl.rc_context(panels.STYLE):
        size = (3.4 * len(runs), 0.4 + 2.3 * len(keys))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(keys), len(runs), squeeze=False, sharey="row")
        for line, key in zip(grid, keys, strict=True):
            for axes, run in zip(line, runs, strict=True):
                curves = {split: trained(rows, run, split) for split in ("train", "test")}
                _over_epochs(axes, curves, key, run)
                axes.set_ylabel(METRICS[key] if axes is line[0] else "")
        grid[0][0].legend()
    return figure


def _projections_figure(rows: Results, runs: Sequence[str]) -> Figure:
    """Draw the variance within classes on and off V_B, plain and divided by Tr Sigma_B.

    Args:
        rows: Rows of a study.
        runs: Names of the runs.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(3.4 * len(runs), 5.0), layout="constrained")
        grid = figure.subplots(2, len(runs), squeeze=False, sharex=True)
        for index, run in enumerate(runs):
            _projections_panels(grid[:, index].tolist(), trained(rows, run))
            grid[0][index].set_title(run)
            grid[1][index].set_xlabel("epoch")
        grid[0][0].set_ylabel("variance within classes")
        grid[1][0].set_ylabel("part of squared distance")
        grid[0][0].legend()
    return figure


def _projections_panels(column: Sequence[Axes], path: Sequence[Observation]) -> None:
    projected, epochs = projections(path), values(path, "epoch")
    ones = [1.0] * len(epochs)
    for axes, scale in zip(column, (ones, projected.between), strict=True):
        for label, course, colour in (
            ("on $V_B$", projected.inside, panels.ACCENT),
            ("off $V_B$", projected.outside, panels.SECOND),
        ):
            drawn = [ratio(value, unit) for value, unit in zip(course, scale, strict=True)]
            axes.plot(epochs, drawn, "o-", color=colour, markersize=2.6, label=label)
        logarithmic_values(axes)
        _few_decades(axes)


def _spectra_figure(rows: Results, runs: Sequence[str]) -> Figure:
    """Draw the eigenvalues of Sigma_B and Sigma_T against their index, one panel per run.

    Args:
        rows: Rows of a study.
        runs: Names of the runs.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(3.6 * len(runs), 3.2), layout="constrained")
        for axes, run in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
            measured = spectra(rows, run)
            for label, drawn, colour in (
                (r"$\Sigma_T$", measured.total, panels.SECOND),
                (r"$\Sigma_B$", measured.between, panels.ACCENT),
            ):
                index = range(1, len(drawn) + 1)
                axes.plot(index, drawn, "o-", color=colour, markersize=2.6, label=label)
            logarithmic_values(axes)
            axes.set_xlabel("index")
            axes.set_title(run)
            axes.legend()
    return figure


def shares_figure(rows: Results, groups: Groups) -> Figure:
    """Draw the share of the variance off V_B over training: one colour for each group of runs.

    Args:
        rows: Rows of a study.
        groups: Names of the runs by the name of what they share.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.subplots()
        for index, (name, runs) in enumerate(groups.items()):
            for run in runs:
                epochs = values(history(rows, run), "epoch") or [nan]
                label = name if run == runs[0] else None
                colour = panels.SERIES[index % len(panels.SERIES)]
                drawn = share_off_signal(rows, run)
                axes.plot(epochs, drawn, "o-", color=colour, markersize=2.6, label=label)
        axes.set_ylim(0, 1)
        axes.set_xlabel("epoch")
        axes.set_ylabel("share off $V_B$")
        figure.legend(loc="outside right center")
    return figure


def _over_epochs(axes: Axes, curves: dict[str, list[Observation]], key: str, title: str) -> None:
    """Draw a metric against the epoch, on a linear axis as in the paper."""
    epochs_panel(axes, curves, key)
    axes.set_xscale("linear")
    axes.set_xlim(left=0)
    axes.set_title(title)
    _few_decades(axes)


def _few_decades(axes: Axes) -> None:
    """Label 1, 2, 3 and 5 of each decade by plain numbers: the curves span one or two decades."""
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
