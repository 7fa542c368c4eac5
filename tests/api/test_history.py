"""A history: columns, selections, files that are read again, pages and tables."""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page
from torch.utils.data import DataLoader

import ncscope
from ncscope import History, InputError, ModelReport
from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope.models.networks.residual import ResidualNet
from tests.test_files import at_most

ODD = "<b>_a&b</b>"


@cache
def reports(depth: int = 2) -> list[ModelReport]:
    """Three reports of an untrained network on samples that are less and less spread."""
    torch.manual_seed(0)
    labels = torch.arange(60) % 4
    model = ResidualNet(8, 16, depth, num_classes=4).eval()
    data = [
        torch.utils.data.TensorDataset(
            4 * torch.eye(8)[labels] + spread * torch.randn(60, 8), labels
        )
        for spread in (2.0, 1.0, 0.5)
    ]
    return [ncscope.measure_model(model, DataLoader(one, 30), progress=False) for one in data]


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The tab of all tests: a browser compiles the pages' script once in each tab."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture(scope="module")
def history() -> History:
    """Two splits of a run with two layers, one of a run with one layer."""
    made = History(model="net", weights="/home/me/best.pt", data="sub/blobs.npz", seed=3)
    for epoch, report in enumerate(reports()):
        made.add(report, step=epoch, run="deep", values={"loss": 1 / (1 + epoch)})
        made.add(report, step=epoch, split="test", run="deep")
    for epoch, report in enumerate(reports(depth=1)[:2]):
        made.add(report, step=epoch, run=ODD)
    return made


def test_columns_stand_in_one_order(history: History) -> None:
    assert len(history) == 8
    assert history.steps.tolist() == [0, 0, 1, 1, 2, 2, 0, 1]
    assert history.splits == ["train", "test"] * 3 + ["train"] * 2
    first = reports()[0]
    assert history["nc1"][0] == history["nc1"][1] == first["nc1"]
    np.testing.assert_array_equal(history["loss"][:5], [1, math.nan, 0.5, math.nan, 1 / 3])
    assert len(set(history["nc1"][:6])) == 3


def test_selections_keep_the_order(history: History) -> None:
    test = history.split("test")
    assert test.steps.tolist() == [0, 1, 2]
    assert history.run(ODD).steps.tolist() == [0, 1]
    stem = history.run("deep").split("train").layer("blocks.0")
    expected = [report.layers["blocks.0"]["pfc1"] for report in reports()]
    assert stem["pfc1"].tolist() == expected
    assert stem["pfc1"].tolist() != history.run("deep").split("train")["pfc1"].tolist()


def test_the_same_step_again_replaces_the_measurement() -> None:
    first, second, _ = reports()
    made = History()
    for report in (first, second):
        made.add(report, step=4)
    assert made["nc1"].tolist() == [second["nc1"]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda h: h.split("val"), "found 'val'; choose from 'train', 'test'"),
        (lambda h: h.layer("conv1"), "choose from 'blocks.0', 'blocks.1'"),
        (lambda h: h.run(""), "choose from 'deep', "),
        (lambda h: h.add({"nc1": 0.1}, step=1), "expected report as a Report, found a dict of 1"),
        (lambda h: h.add(reports()[0], step=math.nan), "a number that is finite, found nan"),
        (lambda h: h.add(reports()[0], step="3"), "a number that is finite, found '3'"),
        (lambda h: h.add(reports()[0], step=torch.zeros(2)), "a number that is finite"),
        (lambda h: h.add(reports()[0], step=10**400), "a number that is finite"),
        (lambda h: h.add(reports()[0], step=9, split=None), "expected split as text, found None"),
        (lambda h: h.add(reports()[0], step=9, values={"loss": None}), "found None under 'loss'"),
        (lambda h: h.add(reports()[0], step=9, values={"step": 1}), "no metric or column has"),
        (lambda h: h.add(reports()[0], step=9, values={"nc1": 1}), "no metric or column has"),
        (lambda h: History(data=3), "expected data as text, found 3"),
        (lambda h: h.save("history.xlsx"), "a file name ending in .html, .json, .csv, .tex"),
        (lambda h: h.plot("nc9"), "expected a metric that was measured, found 'nc9'"),
        (lambda h: History().save("history.html"), "a history with a measurement"),
        (lambda h: History().plot(), "a history with a measurement, found an empty one"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked_signatures")
def test_bad_calls_say_what_to_do(history: History, call: Any, said: str) -> None:
    before = len(history)
    with pytest.raises(InputError) as caught:
        call(history)
    assert said in str(caught.value)
    assert len(history) == before


def test_an_unknown_metric_names_the_known_ones(history: History) -> None:
    with pytest.raises(KeyError, match="no measurement has 'nc9', but loss, "):
        history["nc9"]


def extreme() -> Measurement:
    """Whatever a measurement can hold: undefined and infinite numbers, a geodesic, odd names."""
    layer = LayerRecord(
        layer='a"</script>\n',
        metrics={"nc1": math.nan, "fuzziness": math.inf, "nc2_etf": 1e-300, "pfc1": 0.1 + 0.2},
        notes=("nc1 is undefined: why",),
        num_classes=3,
        num_samples=9,
        dim=2,
        spectra={"within": [1.5, 0.0], "snr_singular_values": [math.inf, 2.0]},
        gram=[[1.0, math.nan], [math.nan, 1.0]],
    )
    line = GeodesicRecord([0.0, 1.0], [2.0, 1.0], [1.0, 0.5], [0.5, 1.0], -math.inf, 0.25)
    layers = (layer, replace(layer, layer="b"))
    probe = ModelRecord(layers, (layer.layer, "b"), (0.0, 1.0), line, math.nan)
    return Measurement(probe, 2.5, "tést", ODD, {"loss": -math.inf})


def test_a_saved_history_is_read_again_to_the_last_bit(history: History, tmp_path: Path) -> None:
    whole = History(unit="lambda", class_names=("cat", "dog"))
    for measurement in (*history, extreme()):
        whole.append(measurement)
    path = whole.save(tmp_path / "run.json")
    again = History.load(path)
    # Texts, since NaN equals nothing.
    assert repr(again.measurements) == repr(whole.measurements)
    assert (again.unit, again.provenance) == (whole.unit, whole.provenance)
    assert again.save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))


def test_provenance_keeps_base_names_only(history: History, tmp_path: Path) -> None:
    content = history.save(tmp_path / "run.json").read_text()
    assert "/home/me" not in content
    facts = History.load(tmp_path / "run.json").provenance.facts()
    assert (facts["model"], facts["weights"], facts["data"]) == ("net", "best.pt", "blobs.npz")
    assert facts["seed"] == "3"
    assert f"torch {torch.__version__}" in facts["versions"]
    assert facts["date"].endswith(" UTC")


def test_class_names_of_a_report_are_those_of_its_history() -> None:
    report = ncscope.Report.from_json(reports()[0].to_json())
    report.class_names = ["a", "b", "c", "d"]
    made, named = History(), History(class_names=["x"])
    for history in (made, named):
        history.add(report, step=0)
    assert made.provenance.class_names == ("a", "b", "c", "d")
    assert named.provenance.class_names == ("x",)


def change_first(whole: dict[str, Any], name: str, value: object) -> dict[str, Any]:
    """A file's content with another value in its first measurement."""
    first, *rest = whole["measurements"]
    return {**whole, "measurements": [{**first, name: value}, *rest]}


def damage(text: str) -> list[tuple[str, str]]:
    """Files that are no history, each with a part of what is said of it."""
    whole = json.loads(text)
    origin = whole["provenance"]
    later = {**whole, "schema_version": 2}
    worded = json.loads(text)
    worded["measurements"][0]["probe"]["layers"][0]["metrics"]["nc1"] = "0.1; import os"
    return [
        ("", "Expecting value"),
        (text[:-40], "Expecting"),
        ("[1, 2]", "no JSON object where one should be"),
        (json.dumps(later), "schema version 2, where this ncscope reads 1"),
        (json.dumps({**whole, "measurements": [[]]}), "no JSON object where one should be"),
        (json.dumps({**whole, "provenance": {}}), "nothing named 'model'"),
        (json.dumps(change_first(whole, "step", 10**400)), "a whole number of 401 digits"),
        (text.replace('"step": 0', '"step": 1e999', 1), "a finite step"),
        (json.dumps(change_first(whole, "split", 3)), "3 where a text should be"),
        (json.dumps({**whole, "provenance": {**origin, "versions": [1]}}), "no JSON object"),
        (json.dumps({**whole, "provenance": {**origin, "seed": "x"}}), "'x' where a whole number"),
        (json.dumps({**whole, "provenance": {**origin, "date": 5}}), "5 where a text should be"),
        (json.dumps({**whole, "provenance": {**origin, "x": 5}}), "x in the Provenance, which"),
        (json.dumps(change_first(whole, "x", 5)), "x in the Measurement, which"),
        (json.dumps(worded), "'0.1; import os' where a number should be"),
        ("[" * 100_000, "recursion"),
    ]


def test_a_damaged_file_gets_one_line(history: History, tmp_path: Path) -> None:
    text = history.save(tmp_path / "run.json").read_text()
    for index, (content, said) in enumerate(damage(text)):
        file = tmp_path / f"{index}.json"
        file.write_text(content)
        with pytest.raises(InputError, match="expected a history that ncscope wrote") as caught:
            History.load(file)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="expected a history, found nothing at"):
        History.load(tmp_path / "none.json")


def test_a_measurement_stands_in_a_file_once(history: History, tmp_path: Path) -> None:
    whole = json.loads(history.save(tmp_path / "run.json").read_text())
    whole["measurements"].append(whole["measurements"][0])
    (tmp_path / "run.json").write_text(json.dumps(whole))
    with pytest.raises(InputError, match="several measurements of one run, split and step"):
        History.load(tmp_path / "run.json")


@pytest.mark.parametrize(
    "suffix", [".csv", ".html", ".tex", ".json", pytest.param(".svg", marks=pytest.mark.slow)]
)
def test_any_names_are_saved(suffix: str, tmp_path: Path) -> None:
    """Names of files that are no UTF-8 come with surrogates, which no file can hold."""
    report = ncscope.measure([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    report.class_names = ("=\udcff", "\x00$x$")
    made = History(unit="cost $\\x$\udcff", model="\udcff")
    for step in (0, 1):
        made.add(report, step=step, run="=run\udcff", split="\udcff", values={"\udcff$": 1})
    classes = report.per_class
    assert classes is not None
    for one in (made, report, *([classes] if suffix in (".csv", ".tex", ".svg") else [])):
        one.save(tmp_path / f"a{suffix}").read_text(encoding="utf-8")
    if suffix == ".json":
        content = made.save(tmp_path / "a.json").read_text(encoding="utf-8")
        json.loads(content)["unit"].encode()
        assert History.load(tmp_path / "a.json").measurements[0].run == "=run\\udcff"


@pytest.mark.parametrize(
    "suffix", [".json", ".csv", ".html", pytest.param(".svg", marks=pytest.mark.slow)]
)
def test_a_full_disk_is_an_input_error(history: History, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"run{suffix}"
    path.write_text("old")
    with at_most(100), pytest.raises(InputError, match=rf"to write {path}, found File too large;"):
        history.save(path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"model": "/home/me/secret/model.pt"}, "model.pt"),
        ({"model": "facebook/convnext-tiny"}, "facebook/convnext-tiny"),
        ({"weights": "https://u:p@host/best.pt?token=abc"}, "best.pt"),
        ({"weights": "runs/3/best.pt"}, "best.pt"),
        ({"data": r"C:\Users\me\x.npz"}, "x.npz"),
        ({"data": "~/data/cifar"}, "cifar"),
        ({"data": "CIFAR-10 train/test split"}, "CIFAR-10 train/test split"),
    ],
)
def test_names_stay_and_paths_and_addresses_lose_what_leads_there(
    given: dict[str, str], kept: str
) -> None:
    (name,) = given
    assert getattr(History(**given).provenance, name) == kept


def test_steps_of_any_number_type_are_numbers() -> None:
    made = History(unit="decay", seed=np.int64(3))
    for step in (np.int64(3), torch.tensor(0.5), np.float32(0.25), np.array(-2.0), 1):
        made.add(reports()[0], step=step, values={"loss": torch.tensor(0.5)})
    assert made.steps.tolist() == [3, 0.5, 0.25, -2, 1]
    assert made.provenance.seed == 3


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(-3, -2, 0), (0.001, 0.01, 0.1), (5, 5.5, 6)])
def test_any_steps_are_drawn(steps: tuple[float, ...], page: Page, tmp_path: Path) -> None:
    made = History(unit="decay <b>")
    for step, report in zip(steps, reports(), strict=True):
        made.add(report, step=step, split="eval")
    made.save(tmp_path / "run.png")
    page.goto(made.save(tmp_path / "run.html").as_uri())
    page.wait_for_function("document.getElementById('history-chart').dataset.drawn === 'true'")
    trace = page.evaluate("document.getElementById('history-chart').data[1]")
    assert trace["x"] == list(steps)
    assert trace["line"]["dash"] == "solid"
    assert page.locator("#history-chart .xtitle").text_content() == "decay <b>"


@pytest.mark.slow
def test_further_numbers_are_drawn(history: History, page: Page, tmp_path: Path) -> None:
    deep, _ = history.plot("loss").axes
    np.testing.assert_array_equal(deep.lines[0].get_ydata(), [1, 1 / 2, 1 / 3])
    page.goto(history.save(tmp_path / "run.html").as_uri())
    page.select_option("#history-metric", "loss")
    traces = page.evaluate(
        "document.getElementById('history-chart').data.map((t) => [t.name, t.y])"
    )
    assert traces == [["blocks.1, train", [1, 0.5, 0.333333]]]
    assert "deep, train, epoch 2" in page.locator(".details caption").first.text_content()


@pytest.mark.slow
def test_a_split_measured_less_often_is_shown_at_the_nearest_step(
    page: Page, tmp_path: Path
) -> None:
    made, some = History(), reports()
    for step in range(6):
        made.add(some[step % 3], step=step)
        if step % 2 == 0:
            made.add(some[step % 3], step=step, split="test")
    page.goto(made.save(tmp_path / "run.html").as_uri())
    page.wait_for_function("document.getElementById('gram-measured').dataset.drawn === 'true'")
    page.locator("#gram .frame-time").fill("2")
    page.locator("#gram .frame-split").select_option("test")
    assert page.locator("#gram .moment").inner_text() == "Test, epoch 2"
    assert page.locator("#gram .frame-time").get_attribute("max") == "2"


def test_the_table_has_a_row_a_layer_and_measurement(history: History, tmp_path: Path) -> None:
    with history.save(tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * 2 + 2
    first = reports()[0]
    assert (rows[0]["run"], rows[0]["split"], rows[0]["step"]) == ("deep", "train", "0")
    assert rows[0]["layer"] == "blocks.0"
    assert float(rows[1]["nc1"]) == first["nc1"]
    assert rows[0]["nc3_self_duality"] == ""  # of the last layer alone
    assert rows[-1]["run"] == ODD


def test_the_data_frame_holds_the_same_rows(history: History) -> None:
    frame = history.to_dataframe()
    assert list(frame.columns[:4]) == ["run", "split", "step", "layer"]
    last = frame[(frame.run == "deep") & (frame.layer == "blocks.1") & (frame.split == "test")]
    assert last.nc1.tolist() == history.run("deep").split("test")["nc1"].tolist()


def test_tensorboard_reads_what_the_history_holds(history: History, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = history.to_tensorboard(tmp_path / "logs", log="headline")
    parts = sorted(part.name for part in folder.iterdir())
    assert parts == ["-b-_a-b-b-", "deep"]
    events = accumulator.EventAccumulator(str(folder / "deep")).Reload()
    deep = history.run("deep").split("test")
    for tag, expected in {
        "test/nc/nc1": deep["nc1"],
        "test/nc/blocks.0/pfc1": deep.layer("blocks.0")["nc1_quotient"],
        "train/loss": [1, 1 / 2, 1 / 3],
    }.items():
        scalars = events.Scalars(tag)
        assert [each.step for each in scalars] == [0, 1, 2]
        assert [each.value for each in scalars] == pytest.approx(expected, rel=1e-6)
    assert "test/nc/blocks.0/nc1_quotient" not in events.Tags()["scalars"]


def test_what_tensorboard_cannot_hold_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    history, report = History(unit="alpha"), reports()[0]
    history.add(report, step=0.5)
    with pytest.raises(InputError, match=r"whole steps, found step 0\.5"):
        history.to_tensorboard(tmp_path)
    whole = History()
    whole.add(report, step=1)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="folder"):
        whole.to_tensorboard(tmp_path / "file" / "logs")
    monkeypatch.setattr("ncscope.api.history.find_spec", lambda name: None)
    with pytest.raises(InputError, match="library tensorboard, found that it is not installed"):
        whole.to_tensorboard(tmp_path)


def test_the_latex_table_escapes_and_holds_values_at_the_last_common_step(
    history: History, tmp_path: Path
) -> None:
    text = history.save(tmp_path / "run.tex").read_text()
    assert r"run & deep & deep & <b>\_a\&b</b> \\" in text
    train, test = (f"{history.run('deep').split(name)['nc1'][1]:.4g}" for name in ("train", "test"))
    assert rf"\texttt{{nc1}} & ${train}$ & ${test}$ & " in text
    assert "epoch & 1 & 1 & 1" in text
    assert text.count(r"\begin{tabular}{lrrr}") == 1


def test_a_notebook_shows_first_against_last(history: History) -> None:
    html = history._repr_html_()
    head = html[: html.index("<details")].replace("<wbr>", "")
    name = "&lt;b&gt;_a&amp;b&lt;/b&gt;, train, epoch"
    assert 0 < head.index(f"{name} 0") < head.index(f"{name} 1")
    assert ODD not in html
    assert "An empty history" in History()._repr_html_()


def test_a_metric_is_drawn_for_every_layer_split_and_run(history: History) -> None:
    deep, odd = history.plot("pfc1").axes
    assert len(deep.lines) == 4
    assert len(odd.lines) == 1
    expected = history.run("deep").split("train").layer("blocks.0")["pfc1"]
    np.testing.assert_array_equal(deep.lines[0].get_ydata(), expected)
    assert deep.lines[2].get_linestyle() != deep.lines[0].get_linestyle()


@pytest.mark.slow
def test_the_page_shows_the_chosen_run(history: History, page: Page, tmp_path: Path) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(history.save(tmp_path / "run.html", title="My run").as_uri())
    drawn = "[...document.querySelectorAll('section:not(.absent) .chart')]"
    done = f"{drawn}.every((chart) => chart.dataset.drawn === 'true')"
    names = "document.getElementById('history-chart').data.map((trace) => trace.name)"
    page.wait_for_function(done)
    assert page.locator("h1").inner_text() == "My run"
    assert "best.pt" in page.locator("section", has_text="Provenance").last.inner_text()
    assert page.evaluate(names) == [
        f"blocks.{index}, {split}" for split in ("train", "test") for index in (0, 1)
    ]
    assert page.locator("#layers").is_visible()
    page.select_option("#history-metric", "cdnv")
    page.select_option("#run", ODD)
    page.wait_for_function(f"{names}.length === 1")
    assert page.evaluate(names) == ["head input, train"]
    assert not page.locator("#layers").is_visible()
    assert page.locator("#history-metric").input_value() == "cdnv"
    page.select_option("#run", "deep")
    assert page.locator("#history-metric").input_value() == "cdnv"
    page.select_option("#history-metric", "nc1_quotient")
    page.wait_for_function(f"{names}.length === 4")
    page.wait_for_function(done)
    assert page.locator("#layers").is_visible()
    assert page.locator("#layers .controls input[type=range]").count() == 1
    assert said == []
