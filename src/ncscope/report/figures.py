"""Matplotlib figures of a measurement and of a run, ready to save as SVG, PDF or PNG."""

from collections.abc import Callable, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ncscope.measurement.records import LayerRecord, Measurement, ProbeRecord
from ncscope.report import panels
from ncscope.report.labels import PFC_METRICS, SPECTRAL_METRICS, key_metrics, label_of, value_of
from ncscope.report.layer_order import positions
from ncscope.report.names import figure_text
from ncscope.report.timeline import by_run, by_split, moment

_HISTORY = ("nc1_quotient", "nc2_etf", "nc3_self_duality", "nc3_etf")


def plot_probe(probe: ProbeRecord) -> Figure:
    """Draw a measurement.

    Of one layer: spectra, the class means' cosines and the key metrics, those that were
    measured. Of many: PFC1-3 against layer with the geodesic's prediction.

    Args:
        probe: A measurement of one or more layers.

    Returns:
        A figure that belongs to no window; ``figure.savefig("x.svg")`` writes it.
    """
    with mpl.rc_context(panels.STYLE):
        return _layers_figure(probe) if len(probe.layers) > 1 else _layer_figure(probe.layers[0])


def run_figure(measurements: Sequence[Measurement], unit: str = "epoch") -> Figure:
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
    own = next(iter(by_split(measurements).values()))
    gram = own[-1].probe.layers[-1].gram
    with mpl.rc_context(panels.STYLE):
        if not own[-1].probe.layers[-1].num_classes:
            figure = Figure(figsize=(4.5, 3.7), layout="constrained")
            _history(figure.subplots(), own, unit, SPECTRAL_METRICS)
            return figure
        figure = Figure(figsize=(12.5 if gram else 9, 3.7), layout="constrained")
        widths = (3, 3, 1.75) if gram else (3, 3)
        parts = figure.subfigures(1, len(widths), width_ratios=widths, squeeze=False)[0]
        _history(parts[0].subplots(), own, unit)
        _layers_through_time(parts[1].subplots(), own, unit)
        if gram:
            _gram_pair(list(parts[2].subplots(2, 1)), gram, figure_text(moment(own[-1], unit)))
    return figure


def metric_figure(measurements: Sequence[Measurement], key: str, unit: str = "epoch") -> Figure:
    """Draw one metric of every layer against the step, a panel a run.

    Args:
        measurements: Measurements of one run or several.
        key: Metric to draw.
        unit: Unit of the steps.

    Returns:
        A figure; lines of splits other than the first are dashed, lines of deeper layers darker.
    """
    runs, label = by_run(measurements), label_of(key)
    scale = panels.metric_values(measurements, key)
    with mpl.rc_context(panels.STYLE):
        figure = Figure(figsize=(1.2 + 4.6 * len(runs), 3.6), layout="constrained")
        grid = figure.subplots(1, len(runs), squeeze=False, sharey=True)[0]
        last = grid[0]  # panel with lines, for the legend
        for axes, (name, own) in zip(grid, runs.items(), strict=True):
            panels.metric_panel(axes, by_split(own), key, unit, scale)
            axes.set_title(figure_text(f"{label.title}, {name}" if name else label.title))
            if axes.lines:
                last = axes
        last.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _layers_figure(probe: ProbeRecord) -> Figure:
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for axes, key in zip(figure.subplots(1, 3), PFC_METRICS, strict=True):
        panels.pfc_panel(axes, probe, key)
        if probe.geodesic is not None and positions(probe):
            axes.plot(
                [], [], color=panels.SECOND, linestyle=panels.DASHED, label="geodesic prediction"
            )
            axes.legend()
    return figure


def _layer_figure(record: LayerRecord) -> Figure:
    drawings: list[Callable[[Axes], object]] = []
    if any(record.spectra.get(name) for name in ("between", "within", "total")):
        drawings.append(lambda axes: panels.spectra_panel(axes, record))
    if record.gram:
        gram = record.gram
        drawings.append(lambda axes: _gram_with_scale(axes, gram))
    keys = key_metrics(record.metrics)
    labels = [label_of(key) for key in keys if value_of(record.metrics, key) is not None]
    drawings.append(lambda axes: panels.metrics_panel(axes, record, labels))
    figure = Figure(figsize=(4.2 * len(drawings), 3.4), layout="constrained")
    for place, draw in enumerate(drawings, start=1):
        draw(figure.add_subplot(1, len(drawings), place))
    return figure


def _gram_with_scale(axes: Axes, gram: Sequence[Sequence[float]]) -> None:
    target = -1 / max(1, len(gram) - 1)
    image = panels.gram_panel(axes, gram, "Cosines of class means")
    axes.set_xlabel(f"simplex ETF: 1 on the diagonal, {target:.3g} off it")
    axes.figure.colorbar(image, ax=axes, shrink=0.8, ticks=[-1, 0, 1])


def _history(
    axes: Axes, measurements: Sequence[Measurement], unit: str, keys: Sequence[str] = _HISTORY
) -> None:
    last_layers = [measurement.probe.layers[-1].metrics for measurement in measurements]
    found = {key: [value_of(metrics, key) for metrics in last_layers] for key in keys}
    curves = {
        key: [value for value in values if value is not None]
        for key, values in found.items()
        if None not in values and any(value is not None and value > 0 for value in values)
    }
    panels.history_panel(axes, [measurement.step for measurement in measurements], curves, unit)
    axes.set_title("Last layer over training")


def _layers_through_time(axes: Axes, measurements: Sequence[Measurement], unit: str) -> None:
    chosen = [measurements[0], measurements[len(measurements) // 2], measurements[-1]]
    distinct = {measurement.step: measurement for measurement in chosen}
    colours = ("#3dbc74", "#31688e", "#440154")
    scale = [v for each in distinct.values() for v in panels.pfc_values(each.probe, "pfc1")]
    for colour, each in zip(colours[-len(distinct) :], distinct.values(), strict=True):
        when = figure_text(moment(each, unit))
        panels.pfc_panel(axes, each.probe, "pfc1", colour, colour, when, scale)
    if any(each.probe.geodesic and positions(each.probe) for each in distinct.values()):
        axes.plot([], [], color=panels.SOFT, linestyle=panels.DASHED, label="geodesic prediction")
    axes.set_title("PFC1 from layer to layer")
    axes.set_ylabel(label_of("pfc1").title)
    _legend_above(axes)


def _legend_above(axes: Axes) -> None:
    """Put the legend inside the axes, above all curves."""
    above = axes.transAxes.transform((0, 1.25))
    axes.set_ylim(top=float(axes.transData.inverted().transform(above)[1]))
    axes.legend(loc="upper center", ncols=2)


def _gram_pair(axes: Sequence[Axes], gram: Sequence[Sequence[float]], when: str) -> None:
    panels.gram_panel(axes[0], gram, f"Class means, {when}")
    image = panels.gram_panel(axes[1], panels.simplex_cosines(len(gram)), "Simplex ETF")
    axes[0].figure.colorbar(image, ax=list(axes), shrink=0.6, ticks=[-1, 0, 1])
