"""`History.plot("nc")`: NC1 to NC4 for a paper, from a history or over the layers of a report."""

import io
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import nn

import ncscope
from ncscope.errors import InputError
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.report.figures import plot_model
from ncscope.report.labels import find_label
from ncscope.report.payload import build_history_payload

NC = {
    "NC1": "nc1",
    "NC2": "nc2_etf",
    "NC3": "nc3_self_duality",
    "NC4": "nc4_disagreement",
}
FEATURES = torch.randn(60, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(60) % 3
WEIGHT = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture(scope="module")
def history():
    history = ncscope.History()
    for run in (1, 2):
        for epoch in range(4):
            for split, rows in (("train", slice(0, 40)), ("test", slice(40, 60))):
                features = FEATURES[rows] + run * epoch * WEIGHT[LABELS[rows]]
                report = ncscope.measure(features, LABELS[rows], WEIGHT, baseline=False)
                history.add(report, step=epoch, split=split, run=f"seed {run}")
    return history


def draw(history, metrics="nc", **options):
    figure = history.plot(metrics, **options)
    figure.canvas.draw()
    return figure


@pytest.mark.slow
def test_every_run_and_split_is_a_line_of_its_values(history):
    figure = draw(history)
    for axes, (title, key) in zip(figure.axes, NC.items(), strict=True):
        assert axes.get_title(loc="left") == title
        assert axes.get_ylabel()
        assert len(axes.lines) == 4
        for line in axes.lines:
            run, split = str(line.get_label()).split(", ")
            part = history.run(run).split(split)
            assert list(line.get_xdata()) == [0, 1, 2, 3]
            drawn, measured = list(line.get_ydata()), list(part[key])
            positive = [value > 0 for value in measured]
            assert [y for y, p in zip(drawn, positive, strict=True) if p] == [
                y for y, p in zip(measured, positive, strict=True) if p
            ]
        looks = {(to_rgb(line.get_color()), line.is_dashed()) for line in axes.lines}
        assert len(looks) == 4


@pytest.mark.slow
def test_fonts_of_its_files_are_no_type_3(history):
    file = io.BytesIO()
    history.plot("nc").savefig(file, format="pdf")
    assert b"/Type3" not in file.getvalue()
    assert b"/FontFile2" in file.getvalue()


def test_it_is_drawn_on_axes_of_one_s_own(history):
    figure = Figure()
    axes = figure.subplots(1, 4)
    assert history.plot("nc", axes=axes) is figure
    assert all(len(each.lines) == 4 for each in axes)
    alone = Figure().subplots()
    history.plot("vci", axes=alone)
    assert len(alone.lines) == 4


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2), (1, 4)])
def test_panels_do_not_overlap_on_axes_of_a_constrained_layout(history, shape):
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(*shape).ravel()
    history.plot("nc", axes=axes).draw_without_rendering()
    boxes = [each.get_tightbbox() for each in axes]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_axes_are_logarithmic_alike_and_show_it_and_0_has_a_strip():
    history = ncscope.History()
    points = ((0, 1.1, 0.9, 2.0, 0.9), (10, 0.6, 0.7, 0.2, 0.01), (20, 0.5, 0.8, 0.1, 0.0))
    for step, *values in points:
        record = LayerRecord("last", dict(zip(NC.values(), values, strict=True)), (), 3, 60, 5)
        history.append(Measurement(ModelRecord((record,)), step))
    figure = draw(history)
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        low, high = axes.get_ylim()
        assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2
        assert sum(low <= tick <= high for tick in axes.yaxis.get_minorticklocs()) >= 2
        assert sum(0 <= tick <= 20 for tick in axes.get_xticks()) >= 3
    # 0.7 to 0.9 alone would have marks at equal distances, as on a linear axis.
    assert [tick.get_text() for tick in figure.axes[1].get_yticklabels()] == ["0.5", "1"]
    assert [len(axes.patches) for axes in figure.axes] == [0, 0, 0, 1]
    (strip,), (line,) = figure.axes[3].patches, figure.axes[3].lines
    top = strip.get_y() + strip.get_height()
    assert line.get_ydata()[-1] < top < line.get_ydata()[-2]
    assert figure.axes[3].get_yticklabels()[0].get_text() == "0"


def test_labels_of_axes_are_no_taller_than_their_panels(history):
    last = history.measurements[0].model_record.layers[-1]
    keys = [key for key in last.metrics if find_label(key).group != "other"]
    longest = sorted(keys, key=lambda key: -len(find_label(key).title))
    for chosen in (longest[:4], longest[4:8]):
        for axes in draw(history, chosen).axes:
            assert axes.yaxis.label.get_window_extent().height <= axes.bbox.height
    for axes in draw(history).axes:
        assert "\n" not in axes.get_ylabel()


def test_a_figure_without_a_choice_draws_every_run(history):
    labels = {line.get_label() for axes in history.plot().axes for line in axes.lines}
    assert labels == {f"seed {run}, {split}" for run in (1, 2) for split in ("train", "test")}
    many = ncscope.History()
    for run in range(8):
        for each in history.run("seed 1").split("train"):
            many.append(replace(each, run=f"seed {run}"))
    figure = draw(many)
    assert len({to_rgb(line.get_color()) for line in figure.axes[0].lines}) == 8
    assert figure.get_figheight() > draw(history).get_figheight()  # the legend's rows


def test_what_two_classes_fix_is_left_out_beside_runs_of_more_classes(tmp_path):
    history = ncscope.History()
    for run, labels in (("two", LABELS.clamp(max=1)), ("all", LABELS)):
        for epoch in range(2):
            features = FEATURES + epoch * WEIGHT[labels]
            report = ncscope.measure(features, labels, WEIGHT[: len(labels.unique())])
            history.add(report, step=epoch, run=run)
    nc1, nc2, *_ = draw(history).axes
    assert [line.get_label() for line in nc1.lines] == ["two", "all"]
    assert [line.get_label() for line in nc2.lines] == ["all"]
    assert [text.get_text() for text in nc2.texts] == ["not drawn: 0 of two classes"]
    table = history.save(tmp_path / "t.tex", metrics="nc").read_text()
    assert "two classes fix NC2: no sign of collapse" in table


def test_what_two_classes_fix_is_said_and_not_drawn():
    history, labels = ncscope.History(), LABELS.clamp(max=1)
    for epoch in range(3):
        features = FEATURES + epoch * WEIGHT[labels]
        history.add(ncscope.measure(features, labels, WEIGHT[:2]), step=epoch)
    axes = draw(history).axes
    assert [len(each.lines) for each in axes] == [1, 0, 1, 1]
    assert [text.get_text() for text in axes[1].texts] == ["0 by construction:\ntwo classes"]
    last = history.measurements[-1].model_record
    figure = plot_model(last)
    marks = [tick.get_text() for each in figure.axes for tick in each.get_yticklabels()]
    assert "Distance to simplex ETF" not in marks
    (run,) = build_history_payload(history.measurements, "epoch")["runs"].values()
    fixed = {metric["key"] for metric in run["metrics"] if metric["fixed"]}
    assert "nc2_etf" in fixed
    assert "nc1" not in fixed


def test_a_list_of_keys_has_a_panel_each(history):
    figure = draw(history, ["vci", "accuracy", "cdnv"])
    assert [len(axes.lines) for axes in figure.axes] == [4, 4, 4]


def test_letters_are_legible_in_a_column_of_85_millimetres(history):
    figure = draw(history)
    shrink = min(1, 8.5 / 2.54 / figure.get_figwidth())
    texts = figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and artist.get_text())
    assert min(text.get_fontsize() for text in texts) * shrink >= 5.5


@pytest.fixture(scope="module")
def report():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    groups = ["nc1", "nc2"]
    return ncscope.measure_model(
        model.double(), [(FEATURES, LABELS)], layers=["1", "3"], layer_groups=groups, progress=False
    )


def test_a_report_is_drawn_over_its_layers(report):
    figure = draw(report)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["NC1", "NC2"]
    for axes, key in zip(figure.axes, ("nc1", "nc2_etf"), strict=True):
        (line,) = axes.lines
        assert list(line.get_ydata()) == [layer[key] for layer in report.layers.values()]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "3"]


def test_what_cannot_be_drawn_is_refused(history, report):
    single = ncscope.measure(FEATURES, LABELS)
    net = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    by_default = ncscope.measure_model(net, [(FEATURES, LABELS)], layers=["0", "1"], progress=False)
    of_nc1 = ncscope.History()
    of_nc1.add(ncscope.measure(FEATURES, LABELS, groups=["nc1"]), step=0)
    for call, message in (
        (lambda: history.plot(["nc1", "ncx"]), "'ncx'; choose from nc"),
        (lambda: history.plot("nc", axes=Figure().subplots(1, 3)), "4 axes, one for each of NC1"),
        (lambda: history.plot([]), "expected metrics to draw, found none"),
        (lambda: by_default.plot("nc"), "no nc1 in several layers; measure with layer_groups="),
        (lambda: by_default.plot("nc"), "such as nc2_etf, pfc1, pfc2"),
        (lambda: of_nc1.plot("nc"), "found no nc2_etf; measure with groups="),
        (lambda: of_nc1.save("x.csv", metrics="nc"), "found no nc2_etf"),
        (lambda: single.plot("nc"), "one layer; measure a model with layers"),
        (lambda: report.plot(["seli_means_x"]), "'seli_means_x'"),
        (lambda: ncscope.History().plot("nc"), "an empty one"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_a_table_fits_a_column_and_names_its_short_heads_below(history, tmp_path):
    keys = [*NC.values(), "accuracy", "vci"]
    text = history.save(tmp_path / "h.tex", metrics=keys).read_text()
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert lines[0] == r"run & split & epoch & NC1 & NC2 & NC3 & NC4 & Acc. & \texttt{vci} \\"
    assert [line.split(" & ")[:3] for line in lines[1:5]] == [
        [f"seed {seed}", split, "3"] for seed in (1, 2) for split in ("train", "test")
    ]
    for line, (seed, split) in zip(
        lines[1:5], ((1, "train"), (1, "test"), (2, "train")), strict=False
    ):
        part = history.run(f"seed {seed}").split(split)
        assert line.split(" & ")[3] == f"${part['nc1'][-1]:.4g}$"
    notes = [line.partition(r"\footnotesize ")[2].removesuffix(r"} \\") for line in lines[5:]]
    assert notes == [
        "NC1: fuzziness / K; NC2: distance to simplex ETF",
        "NC3: self-duality; NC4: classifier against nearest mean",
        r"Acc.: accuracy; \texttt{vci}: variability collapse index",
        "$n$ = 40 and 20, $K$ = 3, $d$ = 5",
    ]


def test_one_rule_says_which_steps_are_in_the_tables_of_one_history_and_of_several(
    history, tmp_path
):
    """A ``.csv`` has every measurement, a ``.tex`` the last step that all have."""
    long = ncscope.History()
    for each in history.run("seed 1"):
        long.append(each)
        long.append(replace(each, step=each.step + 4))
    several = ncscope.compare(long, history.run("seed 2"), names=["seed 1", "seed 2"])
    one = ncscope.History()
    for each in (*long, *history.run("seed 2")):
        one.append(each)
    for source, steps in ((one, "3"), (several, "3"), (long, "7")):
        text = source.save(tmp_path / "x.tex", metrics="nc1").read_text()
        rows = [line.split(" & ") for line in text.splitlines() if line.startswith("seed")]
        assert {row[2] for row in rows} == {steps}
        lines = source.save(tmp_path / "x.csv", metrics="nc1").read_text().splitlines()
        assert len(lines) - 1 == len(one if source is several else source)
    assert "Runs end at epochs 3 to 7: compared at epoch 3" in (
        several.save(tmp_path / "x.tex").read_text()
    )
    early = ncscope.History()
    early.append(replace(history.measurements[0], step=0))
    early.append(replace(history.measurements[0], step=9))
    text = ncscope.compare(early, history.run("seed 2")).save(tmp_path / "x.tex").read_text()
    assert "compared at epoch 0 (before training)" in text


def test_a_csv_keeps_the_order_of_the_metrics_asked_for(history, tmp_path):
    first, *rest = history
    layer = first.model_record.layers[0]
    # The first row lacks the first metric.
    early = replace(layer, layer="early", metrics={"vci": 1.0})
    late = ncscope.History()
    late.append(replace(first, model_record=ModelRecord((early, layer))))
    for each in rest:
        late.append(each)
    for source in (late, ncscope.compare(late), ncscope.compare(late, history)):
        text = source.save(tmp_path / "x.csv", metrics=["nc1", "vci"]).read_text()
        assert text.splitlines()[0].endswith(",nc1,vci")
    report = ncscope.ModelReport(ModelRecord((early, layer)), {})
    text = report.save(tmp_path / "x.csv", metrics=["nc1", "vci"]).read_text()
    assert text.splitlines()[0] == "layer,nc1,vci"


def test_tables_hold_the_metrics_asked_for(history, report, tmp_path):
    keys = ["nc1", "vci"]
    lines = report.save(tmp_path / "r.csv", metrics=keys).read_text().splitlines()
    assert lines[0] == "layer,nc1,vci"
    wanted = [[name, each["nc1"], each["vci"]] for name, each in report.layers.items()]
    assert [
        [name, *map(float, rest)] for name, *rest in (x.split(",") for x in lines[1:])
    ] == wanted
    text = report.save(tmp_path / "r.tex", metrics=["nc1", "nc3_self_duality"]).read_text()
    body = text.partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert [row.partition(" &")[0] for row in rows] == ["layer", "1", "3"]
    assert rows[1].endswith(r"& -- \\")  # the head reads layer 3 alone
    assert r"\multicolumn{3}{l}{\footnotesize --: not measured} \\" in text
    lines = history.save(tmp_path / "h.csv", metrics="nc").read_text().splitlines()
    assert lines[0] == "run,split,step,layer," + ",".join(NC.values())
    assert len(lines) == 1 + 16
    rows = history.save(tmp_path / "h.tex", metrics=keys).read_text().splitlines()
    assert sum("seed" in row for row in rows) == 4  # the last of two runs and two splits
    assert history.save(tmp_path / "h.svg", metrics=keys).stat().st_size > 1000
    for each in (history, report):
        with pytest.raises(InputError, match="a choice; leave metrics out"):
            each.save(tmp_path / "x.html", metrics=keys)
        with pytest.raises(InputError, match="'ncx'"):
            each.save(tmp_path / "x.csv", metrics=["ncx"])
