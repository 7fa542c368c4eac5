"""Matplotlib figures of measurements, runs, classes and similarities, ready to be saved."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.measurement.records import ClassTable, LayerRecord, Measurement, ModelRecord
from ncscope.measurement.similarity import SimilarityRecord
from ncscope.report import panels
from ncscope.report.classes import MOST_CHARTED, name_class
from ncscope.report.curves import group_by_run, group_by_split, relative_positions
from ncscope.report.labels import (
    PFC_METRICS,
    SPECTRAL_METRICS,
    choose_key_metrics,
    find_label,
    find_value,
    is_fixed,
)
from ncscope.report.wording import format_figure_text, name_step

_HISTORY = ("nc1_quotient", "nc2_etf", "nc3_self_duality", "nc3_etf")

_LONGEST_CLASS_NAME = 24

_MOST_NUMBERED = 12
"""Most layers of a side for which the picture of similarities shows the numbers."""

_MOST_NAMED = 30
"""Most layer names beside an axis."""


def plot_model(model: ModelRecord) -> Figure:
    """Draw a measurement.

    Of one layer: spectra, the class means' cosines and the key metrics, those that were
    measured. Of many: PFC1-3 against layer with the geodesic's prediction.

    Args:
        model: A measurement of one or more layers.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.svg")`` writes it.
    """
    with mpl.rc_context(panels.STYLE):
        if len(model.layers) < 2:
            return _plot_layer(model.layers[0])
        figure = panels.ReportFigure(figsize=(11, 3.4), layout="constrained")
        for axes, key in zip(figure.subplots(1, 3), PFC_METRICS, strict=True):
            panels.draw_pfc(axes, model, key)
            if model.geodesic is not None and relative_positions(model):
                # An empty line, for the legend: the prediction's own line has no label.
                axes.plot(
                    [], [], color=panels.SECOND, linestyle=panels.DASHED,
                    label="geodesic prediction",
                )  # fmt: skip
                axes.legend()
        return figure


def _plot_layer(record: LayerRecord) -> Figure:
    """Draw spectra, the class means' cosines and the key metrics, those that were measured."""
    drawings: list[Callable[[Axes], object]] = []
    if any(record.spectra.get(name) for name in ("between", "within", "total")):
        drawings.append(lambda axes: panels.draw_spectra(axes, record))
    if gram := record.gram:

        def draw_gram(axes: Axes) -> None:
            target = -1 / max(1, len(gram) - 1)
            image = panels.draw_gram(axes, gram, "Cosines of class means")
            axes.set_xlabel(f"simplex ETF: 1 on the diagonal, {target:.3g} off it")
            axes.figure.colorbar(image, ax=axes, shrink=0.8, ticks=[-1, 0, 1])

        drawings.append(draw_gram)
    keys = choose_key_metrics(record.metrics)
    labels = [
        find_label(key)
        for key in keys
        if find_value(record.metrics, key) is not None and not is_fixed(key, record.k)
    ]
    drawings.append(lambda axes: panels.draw_key_metrics(axes, record, labels))
    figure = panels.ReportFigure(figsize=(4.2 * len(drawings), 3.4), layout="constrained")
    for place, draw in enumerate(drawings, start=1):
        draw(figure.add_subplot(1, len(drawings), place))
    return figure


def plot_run(measurements: Sequence[Measurement], unit: str = "epoch") -> Figure:
    """Draw a run: metrics over training, PFC1 over layers, the class means at the end.

    Without labels: the spectra's metrics over training alone.

    Args:
        measurements: Measurements of one run; those of the training split are drawn.
        unit: Unit of their steps.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.svg")`` writes it.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measurements:
        msg = "a figure of a run needs at least one measurement, found none"
        raise ValueError(msg)
    of_split = next(iter(group_by_split(measurements).values()))
    last = of_split[-1].model_record.last
    gram = last.gram
    with mpl.rc_context(panels.STYLE):
        if not last.num_classes:
            figure = panels.ReportFigure(figsize=(4.5, 3.7), layout="constrained")
            _draw_last_layer(figure.subplots(), of_split, unit, SPECTRAL_METRICS)
            return figure
        figure = panels.ReportFigure(figsize=(12.5 if gram else 9, 3.7), layout="constrained")
        widths = (3, 3, 1.75) if gram else (3, 3)
        parts = figure.subfigures(1, len(widths), width_ratios=widths, squeeze=False)[0]
        _draw_last_layer(parts[0].subplots(), of_split, unit, _HISTORY)
        _draw_layers_through_time(parts[1].subplots(), of_split, unit)
        if gram:
            upper, lower = parts[2].subplots(2, 1)
            step = format_figure_text(name_step(of_split[-1], unit))
            panels.draw_gram(upper, gram, f"Class means, {step}")
            image = panels.draw_gram(lower, panels.simplex_cosines(len(gram)), "Simplex ETF")
            upper.figure.colorbar(image, ax=[upper, lower], shrink=0.6, ticks=[-1, 0, 1])
    return figure


def plot_metric(measurements: Sequence[Measurement], key: str, unit: str = "epoch") -> Figure:
    """Draw one metric of every layer against the step, a panel a run.

    Args:
        measurements: Measurements of one run or several.
        key: Metric to draw.
        unit: Unit of the steps.

    Returns:
        A figure; lines of splits other than the first are dashed, lines of deeper layers darker.
    """
    runs, label = group_by_run(measurements), find_label(key)
    scale = panels.collect_metric_values(measurements, key)
    with mpl.rc_context(panels.STYLE):
        figure = panels.ReportFigure(figsize=(1.2 + 4.6 * len(runs), 3.6), layout="constrained")
        grid = figure.subplots(1, len(runs), squeeze=False, sharey=True)[0]
        last = grid[0]  # panel with lines, for the legend
        for axes, (name, of_run) in zip(grid, runs.items(), strict=True):
            panels.draw_metric(axes, group_by_split(of_run), key, unit, scale)
            axes.set_title(format_figure_text(f"{label.title}, {name}" if name else label.title))
            if axes.lines:
                last = axes
        last.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


_COLUMN = 8.5 / 2.54
"""Width of a column of a paper in inches."""

_LEGEND_ROW = 0.145
"""Height in inches of a row of the legend below a paper's figure."""

_SMALL = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "legend.fontsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
}
"""Sizes of fonts in points that fit a column."""


def plot_panels(
    source: Sequence[Measurement] | ModelRecord,
    metrics: Sequence[str] | Mapping[str, str],
    unit: str = "epoch",
    axes: Sequence[Axes] | None = None,
) -> Figure:
    """Draw a panel for each metric, as wide as a column of a paper for four of them.

    Args:
        source: Measurements of one run or several, of which the last layer is drawn against the
            step; or one measurement of several layers, drawn against the layer.
        metrics: Keys of the metrics, or panel title to key.
        unit: Unit of the steps.
        axes: Axes to draw on, one for each metric; None for a new figure.
    """
    keys = metrics if isinstance(metrics, Mapping) else {key: key for key in metrics}
    runs = {}
    if not isinstance(source, ModelRecord):
        runs = {run: group_by_split(each) for run, each in group_by_run(source).items()}
    with mpl.rc_context(panels.STYLE | (_SMALL if axes is None else {})):
        if axes is None:
            columns = min(len(keys), 2)
            rows = math.ceil(len(keys) / columns)
            size = (_COLUMN if columns > 1 else _COLUMN / 2 + 0.6, 1.4 * rows)
            figure: Figure = panels.ReportFigure(figsize=size, layout="constrained")
            grid = list(figure.subplots(rows, columns, squeeze=False).flat)
            for empty in grid[len(keys) :]:
                empty.remove()
        else:
            grid = list(axes)
            figure = cast(Figure, grid[0].get_figure(root=True))
        for panel, (title, key) in zip(grid, keys.items(), strict=False):
            if isinstance(source, ModelRecord):
                panels.draw_layers(panel, source, key)
            else:
                panels.draw_runs(panel, runs, key, unit)
            if title != key:
                panel.set_title(title)
        for panel in grid[: max(0, len(keys) - 2)] if axes is None else ():
            panel.set_xlabel("")  # the panel below says it
        handles = {
            str(line.get_label()): line
            for panel in grid[: len(keys)]
            for line in panel.lines
            if not str(line.get_label()).startswith("_")
        }
        if handles and axes is None:
            legend = _LEGEND_ROW * (math.ceil(len(handles) / 2) + 1)
            figure.set_figheight(figure.get_figheight() + legend)
            figure.legend(
                list(handles.values()), list(handles), loc="outside lower center", ncols=2
            )
        elif handles:
            grid[0].legend(list(handles.values()), list(handles))
    return figure


def _draw_last_layer(
    axes: Axes, measurements: Sequence[Measurement], unit: str, keys: Sequence[str]
) -> None:
    """Draw those metrics that the last layer has at every step, and of which one is positive."""
    last_layers = [measurement.model_record.last.metrics for measurement in measurements]
    curves = {}
    for key in keys:
        values = [find_value(metrics, key) for metrics in last_layers]
        present = [value for value in values if value is not None]
        if len(present) == len(values) and any(value > 0 for value in present):
            curves[key] = present
    panels.draw_history(axes, [measurement.step for measurement in measurements], curves, unit)
    axes.set_title("Last layer over training")


def _draw_layers_through_time(axes: Axes, measurements: Sequence[Measurement], unit: str) -> None:
    """Draw PFC1 of all layers at the first, the middle and the last step."""
    moments = [measurements[0], measurements[len(measurements) // 2], measurements[-1]]
    distinct = {measurement.step: measurement for measurement in moments}
    colours = ("#3dbc74", "#31688e", "#440154")
    scale = [
        v
        for each in distinct.values()
        for v in panels.collect_pfc_values(each.model_record, "pfc1")
    ]
    for colour, each in zip(colours[-len(distinct) :], distinct.values(), strict=True):
        step = format_figure_text(name_step(each, unit))
        panels.draw_pfc(axes, each.model_record, "pfc1", colour, colour, step, scale)
    if any(
        each.model_record.geodesic and relative_positions(each.model_record)
        for each in distinct.values()
    ):
        axes.plot([], [], color=panels.SOFT, linestyle=panels.DASHED, label="geodesic prediction")
    axes.set_title("PFC1 from layer to layer")
    axes.set_ylabel(find_label("pfc1").title)
    # Room for the legend above all curves: a quarter of the axes' height, in the axis's own scale.
    above = axes.transAxes.transform((0, 1.25))
    axes.set_ylim(top=float(axes.transData.inverted().transform(above)[1]))
    axes.legend(loc="upper center", ncols=2)


def plot_classes(table: ClassTable, class_names: Sequence[str] = ()) -> Figure:
    """Draw overlap, variability and accuracy of each class as dots, the least separated on top.

    Args:
        table: Values of each class; at most `MOST_CHARTED` of them are drawn.
        class_names: Names of all classes, in the order of the labels; empty if unknown.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.svg")`` writes it.
    """
    order = table.worst_first()[:MOST_CHARTED]
    accuracies = [
        (name, column, mark, colour)
        for name, column, mark, colour in (
            ("nearest mean", table.ncc_accuracy, "D", panels.SECOND),
            ("head", table.accuracy, "o", panels.ACCENT),
        )
        if column is not None
    ]
    names = [name_class(table.classes[index], class_names) for index in order]
    with mpl.rc_context(panels.STYLE):
        count = 3 if accuracies else 2
        size = (3.2 * count + 1, 1.3 + 0.2 * len(order))
        figure = panels.ReportFigure(figsize=size, layout="constrained")
        grid = figure.subplots(1, count, sharey=True)
        _draw_dots(grid[0], [table.nearest_cdnv[index] for index in order])
        grid[0].set_title("CDNV with the nearest class")
        _draw_dots(grid[1], [table.nc1_quotient[index] for index in order])
        grid[1].set_title("NC1 of the class")
        for name, column, mark, colour in accuracies:
            values = [column[index] for index in order]
            grid[2].plot(values, range(len(order)), mark, color=colour, markersize=4.5, label=name)
        if accuracies:
            grid[2].set_title("Accuracy")
            grid[2].legend(loc="best")
            grid[2].tick_params(axis="y", length=0)
        ticks = [format_figure_text(name, _LONGEST_CLASS_NAME) for name in names]
        grid[0].set_yticks(range(len(order)), ticks)
        grid[0].set_ylim(len(order) - 0.4, -0.6)
        if len(order) < len(table.classes):
            figure.supxlabel(
                f"the {len(order)} least separated of {len(table.classes):,} classes",
                fontsize=8.5, color=panels.SOFT,
            )  # fmt: skip
    return figure


def _draw_dots(axes: Axes, values: Sequence[float]) -> None:
    """Draw positive values on a logarithmic axis; infinite ones as a mark at its end."""
    finite = [value for value in values if math.isfinite(value)]
    for row, value in enumerate(panels.place_on_log_axis(values, finite)):
        if math.isfinite(value):
            axes.plot([value], [row], "o", color=panels.ACCENT, markersize=5)
    panels.make_logarithmic(axes, "x", finite)
    for row, value in enumerate(values):
        if value == math.inf:
            axes.annotate("∞", (1.0, row), xycoords=("axes fraction", "data"), va="center")
    axes.tick_params(axis="y", length=0)


def plot_similarity(record: SimilarityRecord) -> Figure:
    """Draw the CKA of all pairs of layers as a picture, first layers at the lower left.

    Args:
        record: CKA between layers.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.png")`` writes it.
    """
    values = np.asarray(record.values, dtype=float)
    height, width = (2.2 + 0.42 * min(size, _MOST_NAMED) for size in values.shape)
    with mpl.rc_context(panels.STYLE):
        figure = panels.ReportFigure(figsize=(width + 1.2, height), layout="constrained")
        axes = figure.add_subplot()
        least = min(0.0, float(np.nanmin(values, initial=0.0)))
        image = axes.imshow(values, origin="lower", cmap="viridis", vmin=least, vmax=1)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        places, ticks = _choose_ticks(record.columns)
        axes.set_xticks(places, ticks, rotation=40, ha="right")
        axes.set_yticks(*_choose_ticks(record.rows))
        axes.set_title(f"CKA between layers, {record.num_samples:,} samples")
        axes.set_xlabel("layer of the other model" if record.two_models else "layer")
        axes.set_ylabel("layer of the model" if record.two_models else "layer")
        if max(values.shape) <= _MOST_NUMBERED:
            for (row, column), value in np.ndenumerate(values):
                text = "–" if math.isnan(value) else f"{value:.2f}"
                # Viridis is dark below six tenths of its range.
                is_dark = not math.isnan(value) and value < least + 0.6 * (1 - least)
                colour = "white" if is_dark else "#1d2327"
                axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _choose_ticks(names: Sequence[str]) -> tuple[range, list[str]]:
    """Return the places beside an axis that are named, and the names."""
    places = range(0, len(names), math.ceil(len(names) / _MOST_NAMED))
    return places, [format_figure_text(names[place]) for place in places]
