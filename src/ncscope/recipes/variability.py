"""What VCI's experiments share: its four metrics over training, put to the test and drawn."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from ncscope.probing.records import Row
from ncscope.recipes.recipe import Claim
from ncscope.recipes.trained import history, values
from ncscope.report import panels
from ncscope.report.histories import epochs_panel

METRICS = {
    "fuzziness": "fuzziness",
    "nc1_quotient": "squared distance",
    "cosine_within": "cosine distance",
    "vci": "VCI",
}
"""The four metrics by key, as the paper calls them, in the order of its figures."""

GROUPS = ("nc1", "nc4", "spectra")
"""Groups of metrics that the experiments measure."""

_SLACK = 0.1
Trend = Callable[[Sequence[float]], bool]


def falls(course: Sequence[float]) -> bool:
    """Whether values end below their start and within a tenth of the least of them.

    Example:
        >>> falls([3.0, 1.0, 1.05]), falls([3.0, 1.0, 2.0])
        (True, False)
    """
    return course[-1] < course[0] and course[-1] <= (1 + _SLACK) * min(course)


def rises(course: Sequence[float]) -> bool:
    """Whether values end above their start and within a tenth of the greatest of them."""
    return course[-1] > course[0] and course[-1] >= (1 - _SLACK) * max(course)


def trained(rows: Sequence[Row], run: str, split: str = "train") -> list[Row]:
    """The last layer's rows from the first measurement that follows a training epoch.

    Before it the features are those of random weights, whose directions hardly differ.

    Args:
        rows: Of a study.
        run: Name of the run.
        split: ``"train"`` or ``"test"``.
    """
    return [row for row in history(rows, run, split) if row["epoch"] != 0]


class Projections(NamedTuple):
    r"""The variance within classes on $V_B$ and on its complement, over training.

    Attributes:
        inside: $\operatorname{Tr}[P\Sigma_W]$ at each measured epoch.
        outside: $\operatorname{Tr}[(I-P)\Sigma_W]$.
        between: $\operatorname{Tr}\Sigma_B$, which turns both into parts of the squared distance.
    """

    inside: list[float]
    outside: list[float]
    between: list[float]


def projections(path: Sequence[Row]) -> Projections:
    """The parts of the variance, from rows with the metrics of NC1.

    Args:
        path: Rows of one layer over training.
    """
    inside, outside = values(path, "within_in_signal"), values(path, "within_off_signal")
    quotients = zip(inside, outside, values(path, "nc1_quotient"), strict=True)
    return Projections(inside, outside, [(a + b) / quotient for a, b, quotient in quotients])


class Spectra(NamedTuple):
    """Eigenvalues at the end of training, descending."""

    between: list[float]
    total: list[float]


def spectra(rows: Sequence[Row], run: str) -> Spectra:
    r"""The spectra of $\Sigma_B$, as many as it can have, and $\Sigma_T$.

    Args:
        rows: Of a study.
        run: Name of the run.
    """
    own = [row for row in rows if row["part"] == run and row["split"] == "spectrum"]
    return Spectra(
        values([row for row in own if "between" in row], "between"), values(own, "total")
    )


def trend_claim(
    text: str, rows: Sequence[Row], runs: Sequence[str], key: str, split: str, *, all_fall: bool
) -> Claim:
    """Whether a metric falls in every run, or else whether there is one in which it does not.

    Args:
        text: The claim.
        rows: Of a study.
        runs: Names of the runs.
        key: Of the metric.
        split: ``"train"`` or ``"test"``.
        all_fall: What is claimed.
    """
    courses = {run: values(trained(rows, run, split), key) for run in runs}
    evidence = "; ".join(f"{run}: {told(course, min)}" for run, course in courses.items())
    told_apart = all(len(course) > 1 and all(map(isfinite, course)) for course in courses.values())
    held = told_apart and all(falls(course) for course in courses.values()) == all_fall
    return {"claim": text, "held": held, "evidence": evidence}


def told(course: Sequence[float], extreme: Callable[[Sequence[float]], float]) -> str:
    """A course of values in words: its ends, and its least or greatest."""
    name = "least" if extreme is min else "greatest"
    return f"{course[0]:.3g} to {course[-1]:.3g} ({name} {extreme(course):.3g})"


def projection_claims(rows: Sequence[Row], run: str) -> list[Claim]:
    """Section 4.1: what of the within-class variance lies on V_B falls, the rest grows.

    Args:
        rows: Of a study.
        run: Name of the run.
    """
    found = projections(trained(rows, run))
    return [
        _projection(f"{run}: the variance within classes on V_B falls", found.inside, found, falls),
        _projection(f"{run}: the variance off V_B rises", found.outside, found, rises),
    ]


def _projection(text: str, course: Sequence[float], found: Projections, trend: Trend) -> Claim:
    relative = [value / whole for value, whole in zip(course, found.between, strict=True)]
    extreme = min if trend is falls else max
    evidence = f"{told(course, extreme)}; over the trace of Sigma_B {told(relative, extreme)}"
    return {"claim": text, "held": trend(course), "evidence": evidence}


def spectrum_claims(rows: Sequence[Row], run: str) -> list[Claim]:
    """Section 4.3: the spectrum of the total covariance is larger, and more uniform.

    Args:
        rows: Of a study.
        run: Name of the run.
    """
    between, total = spectra(rows, run)
    last = len(between)
    ends = between[-1], total[last - 1]
    decline = between[0] / ends[0], total[0] / ends[1]
    beyond = sum(total[last:]) / sum(total)
    return [
        {
            "claim": f"{run}: Sigma_T's eigenvalue where Sigma_B's end is at least twice as large",
            "held": ends[1] >= 2 * ends[0],
            "evidence": f"number {last}: {ends[0]:.3g} of Sigma_B, {ends[1]:.3g} of Sigma_T, which "
            f"has {beyond:.2%} of its trace beyond",
        },
        {
            "claim": f"{run}: Sigma_T's eigenvalues are more uniform than Sigma_B's",
            "held": decline[1] < decline[0],
            "evidence": f"the first is {decline[0]:.3g} times number {last} of Sigma_B, "
            f"{decline[1]:.3g} times of Sigma_T",
        },
    ]


def metrics_figure(rows: Sequence[Row], runs: Sequence[str]) -> Figure:
    """The four metrics on training images, a panel each, a curve a run.

    Args:
        rows: Of a study.
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


def train_test_figure(rows: Sequence[Row], runs: Sequence[str], keys: Sequence[str]) -> Figure:
    """Metrics on training and held-out images: a row a metric, a column a run.

    Args:
        rows: Of a study.
        runs: Names of the runs.
        keys: Of the metrics.
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


def projections_figure(rows: Sequence[Row], runs: Sequence[str]) -> Figure:
    """The variance within classes on V_B and off it: as it is, and over the trace of Sigma_B.

    Args:
        rows: Of a study.
        runs: Names of the runs.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(3.4 * len(runs), 5.0), layout="constrained")
        grid = figure.subplots(2, len(runs), squeeze=False, sharex=True)
        for place, run in enumerate(runs):
            _projections_panels(grid[:, place].tolist(), trained(rows, run))
            grid[0][place].set_title(run)
            grid[1][place].set_xlabel("epoch")
        grid[0][0].set_ylabel("variance within classes")
        grid[1][0].set_ylabel("part of squared distance")
        grid[0][0].legend()
    return figure


def _projections_panels(column: Sequence[Axes], path: Sequence[Row]) -> None:
    found, epochs = projections(path), values(path, "epoch")
    ones = [1.0] * len(epochs)
    for axes, scale in zip(column, (ones, found.between), strict=True):
        for label, course, colour in (
            ("on $V_B$", found.inside, panels.ACCENT),
            ("off $V_B$", found.outside, panels.SECOND),
        ):
            drawn = [value / unit for value, unit in zip(course, scale, strict=True)]
            axes.plot(epochs, drawn, "o-", color=colour, markersize=2.6, label=label)
        axes.set_yscale("log")
        _few_decades(axes)


def spectra_figure(rows: Sequence[Row], runs: Sequence[str]) -> Figure:
    """The eigenvalues of Sigma_B and Sigma_T against index, a panel a run.

    Args:
        rows: Of a study.
        runs: Names of the runs.
    """
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(3.6 * len(runs), 3.2), layout="constrained")
        for axes, run in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
            found = spectra(rows, run)
            for label, drawn, colour in (
                (r"$\Sigma_T$", found.total, panels.SECOND),
                (r"$\Sigma_B$", found.between, panels.ACCENT),
            ):
                index = range(1, len(drawn) + 1)
                axes.plot(index, drawn, "o-", color=colour, markersize=2.6, label=label)
            axes.set_yscale("log")
            axes.set_xlabel("index")
            axes.set_title(run)
            axes.legend()
    return figure


def _over_epochs(axes: Axes, curves: dict[str, list[Row]], key: str, title: str) -> None:
    """A metric against the epoch, which the paper spaces evenly."""
    epochs_panel(axes, curves, key)
    last = max(int(path[-1]["epoch"]) for path in curves.values())
    axes.set_xscale("linear")
    axes.set_xlim(0, 1.03 * last)
    axes.set_title(title)
    _few_decades(axes)


def _few_decades(axes: Axes) -> None:
    """Numbers at 1, 2, 3 and 5 of each decade, as numbers: the curves span one or two."""
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
