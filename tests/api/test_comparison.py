"""`ncscope.compare`: which measurements stand side by side, and in which files."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import ncscope
from ncscope.api.tables import csv_text
from ncscope.errors import InputError
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.report.comparison import _build_dots, build_columns
from ncscope.report.overview import choose_headlines

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 3
NOISE = RNG.normal(size=(120, 4))
CENTRES = 3 * RNG.normal(size=(3, 4))


def measure(signal, **options):
    return ncscope.measure(NOISE + signal * CENTRES[LABELS], LABELS, baseline=False, **options)


def make_point(**metrics):
    """Return a history of one measurement with these metrics."""
    history = ncscope.History()
    history.append(Measurement(ModelRecord((LayerRecord("last", metrics, (), 3, 120, 4),)), 0))
    return history


def make_history(steps, speed=1.0, splits=("train",), **options):
    history = ncscope.History()
    for step in steps:
        for split in splits:
            history.add(measure(0.1 + speed * step, **options), step=step, split=split)
    return history


SHORT, LONG = make_history([0, 2, 4]), make_history(range(9), 0.5, ("train", "test"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "compared", "sentence"),
    [
        (([0, 2, 4], [0, 1, 2, 3, 4]), (4, 4), ""),
        (([0, 2, 4], range(9)), (4, 4), "Runs end at epochs 4 to 8: compared at epoch 4"),
        (
            ([0, 3, 7], [0, 2, 6, 8]),
            (0, 0),
            "Runs end at epochs 7 to 8: compared at epoch 0 (before",
        ),
        (([1, 3, 7], [2, 6, 8]), (7, 6), "Runs end at epochs 7 to 8: compared at epoch 7"),
        (([0, 1], [2, 3]), (1, 3), "Runs have no epoch in common: each is shown at its last"),
    ],
)
def test_runs_are_compared_at_the_last_step_that_all_have(steps, compared, sentence, tmp_path):
    one, two = (make_history(each) for each in steps)
    both = ncscope.compare(one, two, names=["one", "two"])
    text = both.save(tmp_path / "both.tex", metrics="nc1").read_text()
    wanted = [
        f"{name} & train & {step} & ${measure(0.1 + step)['nc1']:.4g}$"
        for name, step in zip(("one", "two"), compared, strict=True)
    ]
    assert [line[:-3] for line in text.splitlines() if line.startswith(("one", "two"))] == wanted
    assert [row["step"] for row in both.rows()] == [*steps[0], *steps[1]]
    page = both.save(tmp_path / "both.html").read_text()
    assert (sentence in page) if sentence else "Runs end" not in page
    box = page.partition('class="warnings"')[2].partition("</li>")[0]
    assert ("no epoch in common" in box) == ("no epoch in common" in sentence)
    shown = " ".join(repr(both).split())
    if "no epoch in common" in sentence:
        assert shown.startswith("warning: Runs have no epoch in common")
        assert "no epoch in common" in both._repr_html_()
    assert f"one, epoch {compared[0]}" in page
    assert f"two, epoch {compared[1]}" in page


def test_splits_are_columns_of_their_own():
    runs = ncscope.History()
    runs.append(replace(LONG.measurements[0], run="first"))
    both = ncscope.compare(SHORT, LONG, runs, measure(1.0), names=["s", "l", "r", "one"])
    places = [[row[key] for key in ("name", "run", "split", "step")] for row in both.rows()]
    assert [place for place in places if not place[3]] == [
        ["s", "", "train", 0],
        ["l", "", "train", 0],
        ["l", "", "test", 0],
        ["r", "first", "train", 0],
        ["one", "", "", None],
    ]
    lines = csv_text(both.rows()).splitlines()
    assert [line.split(",")[:4] for line in (lines[0], lines[-2], lines[-1])] == [
        ["name", "run", "split", "step"],
        ["r", "first", "train", "0"],
        ["one", "", "", ""],
    ]


@pytest.mark.slow
def test_nothing_is_called_better_without_an_interval_beyond_the_other_s(tmp_path):
    def best(*reports):
        page = ncscope.compare(*reports, names=list("ab")).save(tmp_path / "x.html").read_text()
        return page.count('class="number best"')

    without = best(measure(1.0), measure(2.0))
    alike = best(measure(1.0, uncertainty=True), measure(1.01, uncertainty=True))
    apart = best(measure(1.0, uncertainty=True), measure(9.0, uncertainty=True))
    assert without == alike == 0 < apart


@pytest.mark.slow
def test_how_to_get_marks_is_said_where_none_can_stand(tmp_path):
    def save(*reports):
        both = ncscope.compare(*reports, names=list("ab"))
        return both.save(tmp_path / "x.html").read_text()

    sure = measure(1.0, uncertainty=True)
    rule, remedy = "collapse is bold where", "measure all with uncertainty=True"
    for pair, said in (
        ((sure, sure), (True, False)),
        ((sure, measure(1.0)), (False, True)),
        ((measure(1.0), ncscope.measure(NOISE, LABELS % 2)), (False, False)),
        ((sure, ncscope.measure(NOISE[:40], LABELS[:40], uncertainty=True)), (False, False)),
    ):
        page = save(*pair)
        assert (rule in page, remedy in page) == said


@pytest.mark.parametrize(("other", "text"), [(0.5004, "+0.0004"), (0.50004, ""), (0.5, "")])
def test_terminal_and_page_agree_on_what_differs(other, text, tmp_path):
    one, two = (make_point(nc1=value) for value in (0.5, other))
    both = ncscope.compare(one, two, names=list("ab"))
    (line,) = [line.split() for line in repr(both).splitlines() if line.split()[:1] == ["nc1"]]
    page = both.save(tmp_path / "x.html").read_text()
    row = page.partition('title="nc1;')[2].partition("</tr>")[0]
    *_, cell = re.findall(r'<td class="number">(.*?)</td>', row)
    assert line[-1] == (text or "0.5")
    assert cell == text


def test_a_small_difference_does_not_fill_the_axis():
    def around(key, *values):
        both = ncscope.compare(*(make_point(**{key: value}) for value in values))
        (column, *_) = columns = build_columns(both._sources())[0]
        dots = _build_dots(columns, choose_headlines([key], column.last))
        low, high = dots["metrics"][key]["around"]
        return high - low

    assert around("nc1", 0.2643, 0.2638) == pytest.approx(0.05 * 0.26405, rel=1e-4)
    assert around("accuracy", 0.5, 0.505) == pytest.approx(0.05)
    assert around("accuracy", 1.0, 1.0) == pytest.approx(0.025)  # nothing is beyond 1


@pytest.mark.slow
def test_every_file_is_of_its_kind(tmp_path):
    both = ncscope.compare(SHORT, LONG, names=["short", "long"])
    begins = {"csv": b"name,run,split,step,", "tex": b"% \\use", "svg": b"<?xml", "png": b"\x89PNG"}
    begins |= {"pdf": b"%PDF", "html": b"<!doctype html>"}
    for suffix, begin in begins.items():
        content = both.save(tmp_path / f"x.{suffix}").read_bytes()
        assert content[: len(begin)].lower() == begin.lower(), suffix
    with pytest.raises(InputError, match=r"ending in \.html, \.csv"):
        both.save(tmp_path / "x.json")


def test_a_data_frame_has_the_rows():
    pytest.importorskip("pandas")  # a library that the bare package does without
    frame = ncscope.compare(measure(1.0), measure(2.0)).to_dataframe()
    assert list(frame["name"]) == ["source 1", "source 2"]
    steps = [0, 2, 4, *np.repeat(range(9), 2)]
    assert list(ncscope.compare(SHORT, LONG).to_dataframe()["step"]) == steps
    assert list(frame["nc1"]) == [measure(1.0)["nc1"], measure(2.0)["nc1"]]


def test_files_are_sources_too(tmp_path):
    report = measure(1.0).save(tmp_path / "mine.json")
    history = SHORT.save(tmp_path / "theirs.json")
    both = ncscope.compare(report, history, LONG)
    assert list(dict.fromkeys(row["name"] for row in both.rows())) == ["mine", "theirs", "LONG"]


def test_a_figure_has_a_line_for_each_run_and_split():
    figure = ncscope.compare(SHORT, LONG, names=["short", "long"]).plot(["nc1", "cdnv"])
    assert [len(axes.lines) for axes in figure.axes] == [3, 3]


def test_a_table_has_the_metrics_chosen_and_is_shown(tmp_path):
    both = ncscope.compare(SHORT, LONG, names=["short", "long"])
    chosen = ["nc1", "cdnv"]
    header, *rows = both.save(tmp_path / "t.csv", metrics=chosen).read_text().splitlines()
    assert header == "name,run,split,step,nc1,cdnv"
    assert [row.rpartition(",")[2] for row in rows] == [f"{row['cdnv']}" for row in both.rows()]
    tex = both.save(tmp_path / "t.tex", metrics=chosen).read_text()
    assert [tex.count(f"\n{run} & train & 4 &") for run in ("short", "long")] == [1, 1]
    assert "simplex ETF" not in tex
    assert "NC2: distance to simplex ETF" in both.save(tmp_path / "t.tex", metrics="nc").read_text()
    for path, metrics in (("t.csv", ["ncx"]), ("t.html", chosen)):
        with pytest.raises(InputError, match=r"'ncx'|leave metrics out"):
            both.save(tmp_path / path, metrics=metrics)
    shown = repr(both).splitlines()
    (line,) = [line.split() for line in shown if line.split()[:1] == ["nc1"]]
    assert line[-3:] == [f"{row['nc1']:.3g}" for row in both.rows() if row["step"] == 4]
    assert {len(each) <= 80 for each in shown} == {True}
    assert "\x1b" not in repr(both)


def test_a_group_is_no_metric_but_has_some(tmp_path):
    for call in (SHORT.plot, lambda key: measure(1.0).save(tmp_path / "t.csv", metrics=[key])):
        with pytest.raises(InputError, match=r"'nc4', which is a group .*choose from ncc_accuracy"):
            call("nc4")
    few = make_history([0], groups=["nc1"])
    with pytest.raises(InputError, match=r"group of metrics of which none was .*choose from cdnv"):
        few.plot("nc4")


@pytest.mark.slow
def test_splits_are_held_against_their_like():
    def run(**sizes):
        history = ncscope.History()
        for split, size in sizes.items():
            features = (NOISE + CENTRES[LABELS])[:size]
            report = ncscope.measure(features, LABELS[:size], baseline=False)
            history.add(report, step=0, split=split)
        return history

    def warns(*sources):
        return "Samples differ" in repr(ncscope.compare(*sources))

    assert not warns(run(train=120, test=30))
    assert not warns(run(train=120, test=30), run(train=110, test=31), run(train=100))
    assert warns(run(train=120, test=30), run(train=60, test=31))
    assert warns(run(train=120, test=30), run(train=119, test=60))
    assert warns(run(train=120), run(test=30))
    assert warns(run(train=120, test=30), measure(1.0))


@pytest.mark.usefixtures("unchecked_signatures")
def test_what_cannot_be_compared_is_refused(tmp_path):
    report = measure(1.0)
    steps = ncscope.History(unit="step")
    steps.add(report, step=0)
    (tmp_path / "x.json").write_text(json.dumps({"a": 1}))
    for call, message in (
        (lambda: ncscope.compare(), "found nothing"),
        (lambda: ncscope.compare([report, report]), "found list; pass each"),
        (lambda: ncscope.compare(report, report, names=["a", "a"]), "2 different names"),
        (lambda: ncscope.compare(report, ncscope.History()), "an empty one"),
        (lambda: ncscope.compare(report, report).plot(), "reports, without steps; save the table"),
        (lambda: ncscope.compare(SHORT, steps).plot(), "units epoch and step"),
        (lambda: ncscope.compare(SHORT).plot("ncx"), "'ncx'"),
        (lambda: ncscope.compare(tmp_path / "x.json"), "a report that ncscope wrote"),
    ):
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.slow
def test_intervals_and_sizes_are_in_every_table(tmp_path):
    wide = ncscope.measure(np.hstack([NOISE] * 2), LABELS, uncertainty=True)
    both = ncscope.compare(measure(1.0, uncertainty=True), wide, names=["one", "wide"])
    first, second = both.rows()
    assert (first["samples"], first["classes"], first["dimension"], second["dimension"]) == (
        120, 3, 4, 8,
    )  # fmt: skip
    low, high = measure(1.0, uncertainty=True).interval("vci")
    assert (first["vci_low"], first["vci_high"]) == (low, high)
    header = both.save(tmp_path / "t.csv", metrics=["vci"]).read_text().splitlines()[0]
    assert header == "name,run,split,step,vci,vci_low,vci_high"
    assert f"$[{low:.3g}, {high:.3g}]$" in both.save(tmp_path / "t.tex").read_text()
    assert (
        r"{\footnotesize $[\;]$: 95 \% interval, bias corrected}"
        in (tmp_path / "t.tex").read_text()
    )
    assert f"{low:.3g} to {high:.3g}" in repr(both)
    assert "warning: Dimensions differ (4 and 8)" in repr(both)
    assert {len(line) <= 80 for line in repr(both).splitlines()} == {True}
    page = both.save(tmp_path / "t.html").read_text()
    assert "<li>d = 4 and 8</li>" in page
    open_part = page.partition('class="warnings"')[2].partition("<details>")[0]
    assert "Dimensions differ (4 and 8)" in open_part


@pytest.mark.slow
def test_numbers_of_classes_that_differ_leave_nothing_marked(tmp_path):
    three = measure(1.0, uncertainty=True)
    two = ncscope.measure(9 * CENTRES[LABELS % 2] + NOISE, LABELS % 2, uncertainty=True)
    both = ncscope.compare(three, two)
    assert [row["name"] for row in both.rows()] == ["three", "two"]
    page = both.save(tmp_path / "x.html").read_text()
    assert 'class="number best"' not in page
    assert "so nc2_etf is 0 at K = 2" in page


def test_a_table_for_a_paper_has_sizes_and_says_what_its_signs_mean(tmp_path):
    headless = ncscope.measure(NOISE[:60], LABELS[:60], np.eye(3, 4))
    same = np.repeat(CENTRES[:1], 120, axis=0)  # all class means coincide
    both = ncscope.compare(headless, ncscope.measure(same, LABELS), names=["one", "two"])
    whole = both.save(tmp_path / "t.tex").read_text()
    assert "$n$ & 60 & 120 \\\\\n$K$ & 3 & 3 \\\\\n$d$ & 4 & 4 \\\\\n\\bottomrule" in whole
    assert r"& undef. \\" in whole
    assert " und " not in whole
    chosen = both.save(tmp_path / "t.tex", metrics=["cdnv", "accuracy"]).read_text()
    *_, sizes, missing, undefined, end = chosen.splitlines()
    assert sizes.endswith(r"\footnotesize $n$ = 60 and 120, $K$ = 3, $d$ = 4} \\")
    assert "two & undef. & -- " in chosen
    assert missing.endswith(r"--: not measured} \\")
    assert "undef.: without a value" in undefined
    assert end == r"\end{tabular}"
