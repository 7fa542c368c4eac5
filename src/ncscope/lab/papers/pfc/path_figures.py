"""Figures and tables of the paths of features, and of the order of layers, over training."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.lab.observations import Observation
from ncscope.lab.papers.pfc.order import KEYS, last_comparable, order_over_training
from ncscope.lab.papers.pfc.paths import SAMPLE, WHOLE
from ncscope.lab.papers.trained import ends, history, interpolation, values
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.report.histories import logarithmic_values
from ncscope.report import panels
from ncscope.report.tables import Summary
from ncscope.report.wording import format_figure_text

Networks = Mapping[str, Sequence[str]]
"""Names of the runs of each network, which differ in their seeds."""

Course = Sequence[tuple[float, float]]
"""Values by epoch."""

SHARES = {
    "straightness": "chord / path",
    "pairing_efficiency": "W2² / chord²",
    "path_even": "length² / energy",
    "path_optimality": "W2² / energy",
}
PREMISES = {
    "alignment_cosine": "cosine of class means (theorem 1: at least 0)",
    "remaining_pfc1": "PFC1, last / first (theorem 1: 0)",
    "relative_cost": "relative cost (theorem 2: small)",
}


def path_drawings(networks: Networks, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw the order of the layers and the paths of the features over training.

    Args:
        networks: Runs of each network.
        rows: Rows of the study.
    """
    order = (
        "Number of steps between successive layers at which PFC1-3 go in the wrong direction, up "
        "to the effective depth of each epoch; means over seeds and their range."
    )
    paths = (
        "Paths of the samples through the layers of one dimension; means over seeds. Left: the "
        "path compared with optimal transport from the first layer to the last (PFC proposition "
        "1); every share is 1 for a geodesic at constant speed. Middle: energy of a block over "
        "the sum of its squared weights, which the bound of PFC III-C says is at most C, for the "
        "first block and the last; dashed: the C that the proof gives, for blocks of one layer. "
        "Right: premises of theorems 1 and 2."
    )
    return [
        Drawing("order", order, _order(networks, rows)),
        Drawing("paths", paths, _paths(networks, rows)),
    ]


def path_tables(networks: Networks, rows: Sequence[Observation]) -> list[Summary]:
    """Summarise the last layer's PFC1-3, and the paths at the last epoch, for each run.

    Args:
        networks: Runs of each network.
        rows: Rows of the study.
    """
    runs = [run for names in networks.values() for run in names]
    collapse = {run: _last_layer(rows, run) for run in runs}
    paths = {run: _at_the_end(rows, run) for run in runs}
    at = [f"{key.upper()}, {when}" for key in KEYS for when in ("zero error", "end")]
    last_layer = (
        "Last layer of one dimension: PFC1-3 at the first measured epoch of zero training error, "
        "and at the end."
    )
    shares = "Paths of the samples at the last epoch, and straightness before training."
    columns = ["straightness, epoch 0", *SHARES.values(), *PREMISES.values()]
    return [
        Summary(last_layer, at, collapse, title="Collapse of the last layer"),
        Summary(shares, columns, paths, title="Paths"),
    ]


def _last_layer(rows: Sequence[Observation], run: str) -> list[str]:
    reached, path = interpolation(history(rows, run)), last_comparable(rows, run)
    then = [row for row in path if reached is not None and row.epoch == reached.epoch]
    return [f"{value:.3g}" for key in KEYS for value in (ends(then, key)[0], ends(path, key)[1])]


def _at_the_end(rows: Sequence[Observation], run: str) -> list[str]:
    path, whole = last_comparable(rows, run), history(rows, run, SAMPLE, WHOLE)
    straight = ends(path, "straightness")
    others = [key for key in (*SHARES, *PREMISES) if key != "straightness"]
    found = [*straight, *(ends(whole, key)[1] for key in others)]
    return [f"{value:.3g}" for value in found]


def _order(networks: Networks, rows: Sequence[Observation]) -> Figure:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(3.4 * len(networks) + 1, 2.7), layout="constrained")
        grid = figure.subplots(1, len(networks), squeeze=False)[0]
        for axes, (network, runs) in zip(grid, networks.items(), strict=True):
            courses = {run: order_over_training(rows, run) for run in runs}
            for key, colour in zip(KEYS, panels.SERIES, strict=False):
                counts = [
                    [(at.epoch, float(at.breaks[key])) for at in course]
                    for course in courses.values()
                ]
                _curve(axes, counts, key.upper(), colour, spread=True)
            axes.set_title(format_figure_text(network))
            axes.set_ylim(bottom=-0.2)
        grid[0].set_ylabel("order breaks")
        grid[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _paths(networks: Networks, rows: Sequence[Observation]) -> Figure:
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(11, 2.9 * len(networks)), layout="constrained")
        grid = figure.subplots(len(networks), 3, squeeze=False)
        for (shares, constants, premises), (network, runs) in zip(
            grid, networks.items(), strict=True
        ):
            title = format_figure_text(network)
            _keys(shares, runs, SHARES, lambda run, key: _course(rows, run, key))
            shares.set_ylim(-0.02, 1.05)
            shares.set_title(f"share of the optimum, {title}")
            _constants(constants, runs, rows)
            constants.set_title(f"energy / weights, {title}")
            _keys(premises, runs, PREMISES, lambda run, key: _course(rows, run, key))
            premises.set_title(f"premises, {title}")
        for axes in grid[0]:
            axes.legend(fontsize=6)
    return figure


def _keys(
    axes: Axes, runs: Sequence[str], labels: Mapping[str, str], of: Callable[[str, str], Course]
) -> None:
    for (key, label), colour in zip(labels.items(), panels.SERIES, strict=False):
        _curve(axes, [of(run, key) for run in runs], label, colour)


def _constants(axes: Axes, runs: Sequence[str], rows: Sequence[Observation]) -> None:
    """Draw energy over weights of the first and of the last block, and the proof's constant."""
    for index, colour in zip((0, -1), panels.SERIES, strict=False):
        for key, style, label in (
            ("energy_constant", "-", f"{'first' if index == 0 else 'last'} block"),
            ("energy_bound", panels.DASHED, None),
        ):
            courses = []
            for run in runs:
                blocks = [name for name in _blocks(rows, run) if name != WHOLE]
                path = history(rows, run, SAMPLE, blocks[index]) if blocks else []
                courses.append([(row.epoch, value) for row, value in _pairs(path, key)])
            _curve(axes, courses, label, colour, style=style)
    logarithmic_values(axes)


def _blocks(rows: Sequence[Observation], run: str) -> list[str]:
    """Return the names of the rows on the sample, in order."""
    return list(dict.fromkeys(row.layer for row in rows if row.part == run and row.split == SAMPLE))


def _course(rows: Sequence[Observation], run: str, key: str) -> Course:
    straight = key == "straightness"
    path = last_comparable(rows, run) if straight else history(rows, run, SAMPLE, WHOLE)
    return [(row.epoch, value) for row, value in _pairs(path, key)]


def _pairs(path: Sequence[Observation], key: str) -> list[tuple[Observation, float]]:
    return list(zip(path, values(path, key), strict=True))


def _curve(
    axes: Axes,
    courses: Sequence[Course],
    label: str | None,
    colour: str,
    *,
    style: object = "-",
    spread: bool = False,
) -> None:
    """Draw the mean over runs against the epoch, and the range if asked."""
    by_epoch: dict[float, list[float]] = {}
    for course in courses:
        for epoch, value in course:
            if math.isfinite(value):
                by_epoch.setdefault(epoch, []).append(value)
    epochs = sorted(by_epoch)
    means = [mean(by_epoch[epoch]) for epoch in epochs]
    axes.plot(epochs, means, "o", linestyle=style, color=colour, markersize=2.6, label=label)
    if spread:
        low, high = ([end(by_epoch[epoch]) for epoch in epochs] for end in (min, max))
        axes.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("epoch")
