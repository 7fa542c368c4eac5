"""Matplotlib figures: what is on them, and that they can be written."""

import io
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ncscope
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.report.figures import plot_metric, plot_model, plot_run

from ..pace import others_slow


def titles(figure: Figure) -> list[str]:
    axes = [*figure.axes, *(a for part in figure.subfigs for a in part.axes)]
    return [text for text in dict.fromkeys(a.get_title(loc="left") for a in axes) if text]


@pytest.mark.parametrize("form", others_slow(["svg", "pdf", "png"], "svg", "png"))
def test_run_figure_can_be_written(measurements: list[Measurement], form: str) -> None:
    target = io.BytesIO()
    plot_run(measurements).savefig(target, format=form)
    assert len(target.getvalue()) > 1000


def test_run_figure_shows_history_layers_and_class_means(measurements: list[Measurement]) -> None:
    figure = plot_run(measurements)
    assert titles(figure) == [
        "Last layer over training",
        "PFC1 from layer to layer",
        "Class means, epoch 40",
        "Simplex ETF",
    ]
    layers = figure.subfigs[1].axes[0]
    assert layers.get_legend_handles_labels()[1] == [
        "epoch 0",
        "epoch 3",
        "epoch 40",
        "geodesic prediction",
    ]


def test_run_figure_of_one_snapshot_without_gram(bare: ModelRecord) -> None:
    figure = plot_run([Measurement(bare, 0)])
    figure.savefig(io.BytesIO(), format="png")
    assert len(figure.subfigs) == 2


def test_many_layers_are_drawn_against_position(measurements: list[Measurement]) -> None:
    figure = plot_model(measurements[-2].model_record)
    assert [axes.get_xlabel() for axes in figure.axes] == ["relative position"] * 3
    measured = figure.axes[0].lines[1]
    assert list(measured.get_xdata()) == [0.0, 0.3, 0.62, 1.0]


def test_layers_without_positions_are_drawn_in_order(measurements: list[Measurement]) -> None:
    figure = plot_model(ModelRecord(measurements[-2].model_record.layers))
    assert [axes.get_xlabel() for axes in figure.axes] == ["layer"] * 3
    names = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert names[-1] == "stage3.block1"


@pytest.mark.slow
def test_one_layer_is_drawn_as_far_as_it_was_measured(
    single_layer: ModelRecord, bare: ModelRecord
) -> None:
    figure = plot_model(single_layer)
    assert titles(figure) == ["Covariance eigenvalues", "Cosines of class means", "Key metrics"]
    figure = plot_model(bare)
    assert titles(figure) == ["Key metrics"]
    figure.savefig(io.BytesIO(), format="png")


@pytest.mark.slow
def test_labels_of_an_axis_do_not_overlap(measurements: list[Measurement]) -> None:
    figures = [plot_model(ModelRecord(each.model_record.layers[-1:])) for each in measurements]
    figures += [plot_model(measurements[0].model_record), plot_run(measurements)]
    for figure in figures:
        figure.canvas.draw()
        for axes in (*figure.axes, *(a for part in figure.subfigs for a in part.axes)):
            labels = axes.xaxis.get_ticklabels(which="both")
            boxes = [each.get_window_extent() for each in labels if each.get_text()]
            boxes = sorted(
                (box for box in boxes if box.width and not labels[0].get_rotation()),
                key=lambda box: box.x0,
            )
            assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        (1, 5, ["1", "2", "5"]),
        (0.1, 5, ["0.1", "0.3", "1", "3"]),
        (1, 512, ["1", "10", "100"]),
        (0.8, 1, ["0.7", "1", "1.5"]),
        (3e-5, 9e-5, [r"$2\times10^{-5}$", r"$5\times10^{-5}$", r"$10^{-4}$"]),
        (1e-9, 1, [f"$10^{{-{power}}}$" for power in (9, 7, 5, 3, 1)]),
    ],
)
def test_logarithmic_axis_is_marked_at_few_round_values(
    low: float, high: float, names: list[str]
) -> None:
    record = LayerRecord("l", {"nc1_quotient": high, "vci": low}, (), 2, 4, 3)
    axes = plot_model(ModelRecord((record,))).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == names


def vertical_marks(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_a_value_of_0_has_its_place_on_every_logarithmic_axis() -> None:
    def measured(step: int, *values: float) -> Measurement:
        layers = tuple(
            LayerRecord(f"l{index}", {"nc1_quotient": value, "pfc1": value}, (), 2, 4, 3)
            for index, value in enumerate(values)
        )
        return Measurement(ModelRecord(layers), step)

    run = [measured(0, 2.0, 0.5), measured(1, 1e-3, 0.0)]
    over_time, layers = (part.axes[0] for part in plot_run(run).subfigs)
    by_metric = plot_metric(run, "nc1_quotient").axes[0]
    for axes, line, least in ((over_time, 0, 0.5), (layers, 1, 1e-3), (by_metric, 1, 1e-3)):
        zero = float(axes.lines[line].get_ydata()[-1])
        assert least / 100 < zero < 0.8 * least
        assert axes.get_yticks()[0] == zero
        assert vertical_marks(axes)[0] == "0"
        assert axes.get_ylim()[0] < zero
    of_zeros = plot_metric([measured(0, 0.0), measured(1, 0.0)], "nc1_quotient")
    of_zeros.savefig(io.BytesIO(), format="png")
    record = LayerRecord("l", {"nc1_quotient": 0.0, "vci": 0.2, "cdnv": 3.0}, (), 2, 4, 3)
    (dots,) = plot_model(ModelRecord((record,))).axes
    assert [label.get_text() for label in dots.get_xticklabels()] == ["0", "0.5", "1", "2"]
    assert float(dots.lines[0].get_xdata()[0]) == dots.get_xticks()[0]


def test_global_settings_stay_as_they_are(measurements: list[Measurement]) -> None:
    before = dict(mpl.rcParams)
    plot_run(measurements)
    assert dict(mpl.rcParams) == before


def test_figure_of_no_run_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        plot_run([])


@pytest.mark.parametrize(
    "factor",
    others_slow([0.0, 2.0**-600, 2.0**-500, 2.0**511, 2.0**512, 2.0**600], 0.0, 2.0**512),
)
def test_spectra_of_any_size_can_be_drawn(factor: float) -> None:
    features = np.random.default_rng(0).normal(size=(30, 4)) * factor
    report = ncscope.measure(features, np.arange(30) % 3, groups=["spectra"])
    report.plot().savefig(io.BytesIO(), format="png")
