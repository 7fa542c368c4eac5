"""Runs with few labels by data set, number of labels, method and seed, and their errors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel, ConfigDict, Field

from ncscope.lab.observations import Observation
from ncscope.lab.papers.info.runs import reweighted
from ncscope.lab.report.drawing import Drawing
from ncscope.lab.training.semi_supervised.settings import FewLabels
from ncscope.report import panels

METHODS: Mapping[str, Mapping[str, str | float]] = {
    "supervised": {"method": "supervised"},
    "Pi model": {"method": "pi-model"},
    "Pseudo Label": {"method": "pseudo-label"},
    "MeanTeacher": {"method": "mean-teacher"},
    "UDA": {"method": "uda"},
    "FixMatch": {"method": "fixmatch"},
    "FlexMatch": {"method": "flexmatch"},
    "FreeMatch": {"method": "freematch"},
    "SoftMatch": {"method": "softmatch"},
    "FreeMatch + MI": {"method": "freematch", "mutual_information": 0.1},
    "FreeMatch + ED": {"method": "freematch", "entropy_difference": 0.1},
}
"""Compared methods, as fields of `FewLabels`: supervised, and those of table 1 in its order."""


class SemiSupervised(BaseModel):
    """Settings of the recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: dict[str, FewLabels] = Field(description="Training runs by name.")
    weights: tuple[float, ...] = Field(
        (),
        description="Further weights to run each information loss with; the paper prints none.",
    )

    @property
    def swept(self) -> dict[str, FewLabels]:
        """Return the runs with further weights: each run with an information loss, reweighted."""
        return reweighted(self.runs, self.weights)


class Setting(NamedTuple):
    """A data set and a number of labels."""

    data: str
    labels: int

    def __str__(self) -> str:
        return f"{self.data}, {self.labels} labels"


def _method_of(run: FewLabels) -> str:
    """Return the name of a run's method in the table."""
    name = {str(fields["method"]): name for name, fields in METHODS.items() if len(fields) == 1}
    more = [" + MI"] if run.mutual_information else []
    more += [" + ED"] if run.entropy_difference else []
    return "".join([name[run.method], *more])


def by_setting(
    config: SemiSupervised, data: str | None = None
) -> dict[Setting, dict[str, list[str]]]:
    """Return the names of the runs by setting and method, seed by seed.

    Args:
        config: Settings of the study.
        data: Data set to keep; default all.
    """
    settings: dict[Setting, dict[str, list[str]]] = {}
    for name, run in config.runs.items():
        if data in (None, run.data):
            methods = settings.setdefault(Setting(run.data, run.labels), {})
            methods.setdefault(_method_of(run), []).append(name)
    return settings


def last_values(rows: Sequence[Observation], names: Sequence[str], key: str) -> list[float]:
    """Return each run's last value of a metric on held-out images; NaN for a run without one."""
    last = {row.part: row.get(key, math.nan) for row in rows if row.split == "test"}
    return [float(last.get(name, math.nan)) for name in names]


def errors(rows: Sequence[Observation], names: Sequence[str]) -> list[float]:
    """Return each run's last error on held-out images in per cent; NaN for a run without one."""
    return [100 * error for error in last_values(rows, names, "error")]


def summary(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN for a single value."""
    if not numbers or not all(map(math.isfinite, numbers)):
        return math.nan, math.nan
    return mean(numbers), stdev(numbers) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan


def deviation(numbers: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation, which is NaN for a single value."""
    middle, error = summary(numbers)
    return middle, error * math.sqrt(len(numbers))


def shown(estimate: tuple[float, float]) -> str:
    """Write a mean and its error, or its deviation, as text."""
    middle, error = estimate
    if not math.isfinite(middle):
        return "unknown"
    return f"{middle:.2f}" + (f" ± {error:.2f}" if math.isfinite(error) else "")


COLOURS = {
    "supervised": "#7a8288",
    "Pi model": "#b59bc4",
    "Pseudo Label": "#c9a0a0",
    "MeanTeacher": "#9a6b8f",
    "UDA": "#8aa86a",
    "FixMatch": "#a8761a",
    "FlexMatch": "#4f7a2c",
    "FreeMatch": "#0b6a70",
    "SoftMatch": "#5fa8d3",
    "FreeMatch + MI": "#c2570c",
    "FreeMatch + ED": "#44398a",
}
_FOLLOWED = ("supervised", "FixMatch", "FreeMatch", "FreeMatch + MI", "FreeMatch + ED")
"""Methods that figures over training show: FreeMatch, what it came from, and what INFO adds."""


def drawings(config: SemiSupervised, rows: Sequence[Observation]) -> list[Drawing]:
    """Draw table 1 as a figure, and pseudo-labels and information of features over training."""
    ends = (
        "INFO table 1: error of the averaged network on held-out images at the end, by number of "
        "labels. Bars are standard errors of the mean over seeds; dots are the seeds."
    )
    pseudo = (
        "Pseudo-labels over training, means over seeds: the global threshold, with FreeMatch's "
        "class thresholds as thin lines; the share of pseudo-labels that are trusted; the accuracy "
        "of the trusted pseudo-labels (true labels are read only for this figure); and FreeMatch's "
        "trusted pseudo-labels by class, where 1 is an equal share."
    )
    information = (
        "MIR and HDR of held-out features against the classifier over training, means over seeds."
    )
    return [
        Drawing("table-1", ends, _ends(config, rows)),
        Drawing("pseudo-labels", pseudo, _pseudo_labels(config, rows)),
        Drawing("information", information, _information(config, rows)),
    ]


def _ends(config: SemiSupervised, rows: Sequence[Observation]) -> Figure:
    settings = by_setting(config)
    sets = list(dict.fromkeys(setting.data for setting in settings))
    with mpl.rc_context(panels.STYLE):
        size = (1.6 + 4.6 * len(sets), 3.4)
        figure = Figure(figsize=size, layout="constrained")
        for axes, data in zip(_row(figure, len(sets)), sets, strict=True):
            same_data = {setting: by for setting, by in settings.items() if setting.data == data}
            _bars(axes, same_data, rows)
            axes.set_title(f"Error on {data}, %")
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper")
    return figure


def _bars(
    axes: Axes, settings: Mapping[Setting, Mapping[str, Sequence[str]]], rows: Sequence[Observation]
) -> None:
    for at, methods in enumerate(settings.values()):
        for index, (method, names) in enumerate(methods.items()):
            x = at + 0.8 / len(methods) * (index - (len(methods) - 1) / 2)
            by_seed = errors(rows, names)
            middle, error = summary(by_seed)
            label = method if at == 0 else None
            colour = COLOURS[method]
            axes.plot([x] * len(by_seed), by_seed, ".", color=colour, alpha=0.3, markersize=4)
            axes.errorbar(x, middle, error, fmt="o", color=colour, markersize=5, capsize=2.5,
                          label=label)  # fmt: skip
    axes.set_xticks(range(len(settings)), [str(setting.labels) for setting in settings])
    axes.set_xlabel("labels")
    axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])


_CURVES = {
    "threshold": "Threshold",
    "mask_rate": "Share trusted",
    "pseudo_label_accuracy": "Accuracy of the trusted",
}
_WITH_UNLABELLED = [method for method in _FOLLOWED if method != "supervised"]


def _pseudo_labels(config: SemiSupervised, rows: Sequence[Observation]) -> Figure:
    settings = by_setting(config)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(12, 0.5 + 2.3 * len(settings)), layout="constrained")
        grid = figure.subplots(len(settings), 4, squeeze=False).tolist()
        for line, (setting, methods) in zip(grid, settings.items(), strict=True):
            for axes, key in zip(line, _CURVES, strict=False):
                _curves(axes, rows, methods, "unlabelled", key, _WITH_UNLABELLED)
                axes.set_ylim(0, 1.03)
            _class_thresholds(line[0], rows, methods.get("FreeMatch", []))
            _classes(figure, line[3], rows, methods.get("FreeMatch", []))
            line[0].set_ylabel(str(setting))
        for axes, title in zip(grid[0], [*_CURVES.values(), "Classes, FreeMatch"], strict=True):
            axes.set_title(title)
        _finish(figure, grid)
    return figure


def _information(config: SemiSupervised, rows: Sequence[Observation]) -> Figure:
    settings = by_setting(config)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(8, 0.5 + 2.3 * len(settings)), layout="constrained")
        grid = figure.subplots(len(settings), 2, squeeze=False).tolist()
        for line, (setting, methods) in zip(grid, settings.items(), strict=True):
            for axes, key in zip(line, ("mir", "hdr"), strict=True):
                _curves(axes, rows, methods, "test", key, _FOLLOWED)
            line[0].set_ylabel(str(setting))
        for axes, title in zip(grid[0], ("MIR", "HDR"), strict=True):
            axes.set_title(title)
        _finish(figure, grid)
    return figure


def _finish(figure: Figure, grid: Sequence[Sequence[Axes]]) -> None:
    """Add one legend for all panels, and label the epochs only below the last row."""
    for line in grid[:-1]:
        for axes in line:
            axes.set_xlabel("")
    handles, names = grid[0][0].get_legend_handles_labels()
    if names:
        figure.legend(handles, names, loc="outside upper left", ncols=len(names))


def averaged(
    rows: Sequence[Observation], names: Sequence[str], split: str, key: str
) -> dict[int, float]:
    """Average a metric over runs, epoch by epoch; NaN values are left out."""
    by_epoch: dict[int, list[float]] = {}
    for row in rows:
        if row.part in names and row.split == split and key in row:
            by_epoch.setdefault(row.epoch, []).append(float(row[key]))
    kept = {epoch: [v for v in values if math.isfinite(v)] for epoch, values in by_epoch.items()}
    return {epoch: mean(values) for epoch, values in kept.items() if values}


def _curves(
    axes: Axes,
    rows: Sequence[Observation],
    methods: Mapping[str, Sequence[str]],
    split: str,
    key: str,
    wanted: Sequence[str],
) -> None:
    for method in wanted:
        path = averaged(rows, methods.get(method, []), split, key)
        if path:
            axes.plot(
                list(path), list(path.values()), "o-", color=COLOURS[method], markersize=2.6,
                label=method,
            )  # fmt: skip
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _numbered(rows: Sequence[Observation], key: str) -> Iterator[str]:
    """Yield the keys of a quantity that is measured for each class."""
    row = next((row for row in rows if f"{key}_0" in row), None)
    return (name for name in (row.values if row else ()) if name.startswith(f"{key}_"))


def _class_thresholds(axes: Axes, rows: Sequence[Observation], names: Sequence[str]) -> None:
    for key in _numbered(rows, "threshold"):
        path = averaged(rows, names, "unlabelled", key)
        colour = COLOURS["FreeMatch"]
        axes.plot(list(path), list(path.values()), color=colour, alpha=0.35, linewidth=0.6)


def _classes(figure: Figure, axes: Axes, rows: Sequence[Observation], names: Sequence[str]) -> None:
    """Draw each class's share of the trusted pseudo-labels, times the number of classes."""
    paths = [averaged(rows, names, "unlabelled", key) for key in _numbered(rows, "histogram")]
    epochs = sorted({epoch for path in paths for epoch in path})
    axes.grid(visible=False)
    axes.set_xlabel("epoch")
    axes.set_ylabel("class")
    if not epochs:
        return
    shares = np.array([[path.get(epoch, math.nan) for epoch in epochs] for path in paths])
    image = axes.imshow(
        len(paths) * shares, cmap=panels.make_cosine_colours(), vmin=0, vmax=2, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    every = max(1, math.ceil(len(epochs) / 8))
    axes.set_xticks(range(0, len(epochs), every), [str(e) for e in epochs[::every]])
    figure.colorbar(image, ax=axes, ticks=[0, 1, 2])
