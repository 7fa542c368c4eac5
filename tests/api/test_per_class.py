"""The table of classes as users have it: columns, text, files, names, and in a history."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
import torch

import ncscope
from ncscope import InputError
from ncscope.models.networks.residual import ResidualNet

NAMES = ("cat", "dog", "co_w")


def make_report(scale: float = 1.0) -> ncscope.Report:
    """Classes 0 and 2 are near each other; class 1 varies most; the head has no row for class 0."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    means = torch.tensor([[0.0, 0, 0, 1], [9, 0, 0, 0], [0, 2, 0, 1]])
    spread = torch.tensor([1.0, 3.0, 1.0])[labels, None]
    features = means[labels] + scale * spread * torch.randn(90, 4, generator=draws)
    return ncscope.measure(features, labels, means * torch.tensor([[0.0], [1.0], [1.0]]))


@pytest.fixture(scope="module")
def report() -> ncscope.Report:
    report = make_report()
    report.class_names = NAMES
    return report


def test_a_mapping_of_columns_and_rows_with_the_worst_first(report: ncscope.Report) -> None:
    table = report.per_class
    assert table is not None
    assert list(table)[:3] == ["class", "samples", "within_share"]
    assert len(table) == len(list(table)) == 13
    assert table["class"] == [0, 1, 2]
    rows = table.rows()
    assert {row["class_name"] for row in rows[:2]} == {"cat", "co_w"}
    assert [row["nearest_name"] for row in rows if row["class"] == 0] == ["co_w"]
    overlaps = [row["nearest_cdnv"] for row in rows]
    assert overlaps == sorted(overlaps, reverse=True)
    with pytest.raises(KeyError, match="'weather'; the columns are class, samples, within_share"):
        table["weather"]
    assert "nc1_quotient" in table


def test_columns_that_were_not_measured_are_absent() -> None:
    features, labels = torch.randn(12, 3), torch.arange(12) % 2
    headless = ncscope.measure(features, labels).per_class
    assert headless is not None
    assert not {"head_norm", "head_cosine", "accuracy", "class_name"} & set(headless.rows()[0])
    moments = ncscope.ClassMoments(num_classes=2, dim=3)
    moments.update(features, labels)
    undecided = ncscope.measure_moments(moments).per_class
    assert undecided is not None
    assert "ncc_accuracy" not in undecided
    assert undecided["nearest_cdnv"] == headless["nearest_cdnv"]


def test_text_is_aligned_and_has_a_dash_for_what_is_undefined(report: ncscope.Report) -> None:
    lines = repr(report.per_class).splitlines()
    assert lines[0] == "PerClass: 3 classes, the least separated first"
    assert lines[2].split()[:2] == ["class", "samples"]
    own = next(line for line in lines if line.startswith("cat"))
    assert "–" in own
    assert "nan" not in own
    assert len({len(line) for line in lines[2:]}) == 1


def test_text_and_page_show_the_worst_50_and_say_so() -> None:
    draws = torch.Generator().manual_seed(0)
    features, labels = torch.randn(180, 5, generator=draws), torch.arange(180) % 60
    report = ncscope.measure(features, labels)
    lines = repr(report.per_class).splitlines()
    assert len(lines) == 3 + 50 + 1
    assert "50 least separated of 60 classes" in lines[-1]
    html = report.per_class._repr_html_()
    assert html.count("<tr>") == 1 + 50
    assert "50 least separated of 60 classes" in html
    assert len(report.per_class.rows()) == 60


def test_names_are_escaped(report: ncscope.Report) -> None:
    other = ncscope.Report(report.record, None, replace(report.provenance, class_names=()))
    other.class_names = ["<script>", "$a_b$", "\x1b[31m"]
    html = other.per_class._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html + repr(other.per_class)


def test_files(report: ncscope.Report, tmp_path: Path) -> None:
    table = report.per_class
    rows = list(csv.DictReader(table.save(tmp_path / "classes.csv").read_text().splitlines()))
    assert [row["class_name"] for row in rows] == [row["class_name"] for row in table.rows()]
    assert {int(row["class"]): float(row["within_share"]) for row in rows} == dict(
        zip(table["class"], table["within_share"], strict=True)
    )
    text = table.save(tmp_path / "classes.tex").read_text()
    assert text.count(r" \\") == 4
    assert r"co\_w & 30 & " in text
    assert table.save(tmp_path / "classes.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match=r"ending in \.csv"):
        table.save(tmp_path / "classes.xml")
    with pytest.raises(InputError, match="a folder"):
        table.save(tmp_path / "none" / "classes.csv")


def test_data_frame(report: ncscope.Report) -> None:
    frame = report.per_class.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.set_index("class_name").loc["dog", "class"] == 1


def test_json_keeps_every_bit(report: ncscope.Report) -> None:
    again = ncscope.Report.from_json(report.to_json())
    assert again.to_json() == report.to_json()
    assert repr(again.per_class) == repr(report.per_class)
    assert again.record.per_class.nearest_cdnv == report.record.per_class.nearest_cdnv


DAMAGE = {
    "a column too short": lambda table: table["mean_norm"].pop(),
    "an accuracy too many": lambda table: table["accuracy"].append(1.0),
    "a column lost": lambda table: table.pop("nearest"),
    "a text": lambda table: table["within_share"].__setitem__(0, "much"),
    "a class twice": lambda table: table["classes"].__setitem__(1, 0),
    "a class below 0": lambda table: table["classes"].__setitem__(0, -1),
    "a class without samples": lambda table: table["samples"].__setitem__(0, 0),
    "half a sample": lambda table: table["samples"].__setitem__(0, 0.5),
    "a class nearest to itself": lambda table: table["nearest"].__setitem__(0, 0),
    "a nearest class that is none": lambda table: table["nearest"].__setitem__(0, 9),
    "no class": lambda table: [column.clear() for column in table.values()],
    "a column that is no list": lambda table: table.__setitem__("accuracy", 1.0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_refused(damage: str, report: ncscope.Report) -> None:
    whole = json.loads(report.to_json())
    DAMAGE[damage](whole["probe"]["layers"][0]["per_class"])
    with pytest.raises(InputError, match="a report that ncscope wrote"):
        ncscope.Report.from_json(json.dumps(whole))


def test_history_keeps_the_tables(tmp_path: Path) -> None:
    history = ncscope.History(class_names=NAMES)
    for step, scale in enumerate((2.0, 1.0, 0.5)):
        history.add(make_report(scale), step=step)
    again = ncscope.History.load(history.save(tmp_path / "run.json"))
    for each in (history, again):
        last, first = each.per_class(), each.per_class(step=0)
        assert last.class_names == NAMES
        assert max(last["nearest_cdnv"]) < max(first["nearest_cdnv"])
        assert each.per_class(step=7) is None
    without = ncscope.History()
    without.add(ncscope.measure(torch.randn(9, 2), torch.arange(9) % 3, groups=["nc1"]), step=0)
    assert without.per_class() is None


def test_class_names_reach_the_reports_of_the_layers() -> None:
    draws = torch.Generator().manual_seed(0)
    batch = torch.randn(40, 4, generator=draws), torch.arange(40) % 3
    model = ResidualNet(in_features=4, width=8, depth=2, num_classes=3)
    report = ncscope.measure_model(model, [batch], layer_groups=["pfc", "per_class"])
    report.class_names = NAMES
    for own in report.layers.values():
        assert own.class_names == NAMES
        assert own.per_class.rows()[0]["class_name"] in NAMES
    again = ncscope.Report.from_json(report.to_json())
    assert [own.class_names for own in again.layers.values()] == [NAMES, NAMES]
    plain = ncscope.measure_model(model, [batch])
    assert [own.per_class is None for own in plain.layers.values()] == [True, False]
    hits = torch.tensor(plain.per_class["accuracy"]) @ torch.tensor([14.0, 13.0, 13.0])
    assert hits / 40 == pytest.approx(plain["accuracy"])
