"""A report is a mapping that writes itself, whole or not at all."""

import csv
import json
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ncscope
from ncscope import InputError
from ncscope.files import write_text
from ncscope.measurement.records import LayerRecord

from ..metrics.degenerate import DEGENERATE
from ..pace import others_slow
from ..reference.instances import INSTANCES, Instance

SIGNATURES = {".html": b"<!doctype html>", ".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
BY_PACE = others_slow(SIGNATURES, ".html")
"""Figures are beyond the default suite where the format does not matter."""


def make_report(instance: Instance) -> ncscope.Report:
    return ncscope.measure(instance.features, instance.labels, instance.weight, instance.bias)


@pytest.fixture
def report() -> ncscope.Report:
    return make_report(INSTANCES["balanced"]())


@pytest.fixture
def undefined() -> ncscope.Report:
    return make_report(DEGENERATE["coinciding_means"]())


def test_is_a_mapping_of_floats(report: ncscope.Report) -> None:
    assert isinstance(report, Mapping)
    assert len(report) == len(list(report)) == len(dict(report))
    assert all(type(value) is float for value in report.values())
    assert "vci" in report
    assert report.get("no such metric") is None
    with pytest.raises(KeyError, match=r"^'no such metric'$"):
        report["no such metric"]
    for ask in (report.__getitem__, report.interval):
        with pytest.raises(KeyError, match="'NC1'; did you mean 'nc1'") as refused:
            ask("NC1")
        assert refused.value.args == ("'NC1'; did you mean 'nc1'?",)
    with pytest.raises(TypeError):
        report["vci"] = 0.0


def test_tells_the_sizes(report: ncscope.Report) -> None:
    assert (report.num_samples, report.num_classes, report.dim) == (60, 5, 8)
    text = repr(report)
    assert "60 samples, 5 classes, dimension 8" in text
    assert all(key in text for key in report)
    assert all(note in text for note in report.notes)


def test_prints_the_chance_level_beside_each_value() -> None:
    draws = torch.Generator().manual_seed(0)
    features, labels = torch.randn(60, 4, generator=draws), torch.arange(60) % 3
    report = ncscope.measure(features, labels, groups=["nc1"], baseline=True)
    (line,) = [line for line in repr(report).splitlines() if line.startswith("  nc1 ")]
    assert line.split() == [
        *("nc1", f"{report['nc1']:.6g}"),
        *("by", "chance", f"{report.baseline['nc1']:.4g}"),
    ]


def test_spectra_are_arrays(report: ncscope.Report) -> None:
    assert {name: (v.dtype, v.ndim) for name, v in report.spectra.items()} == dict.fromkeys(
        ["between", "within", "total", "snr_singular_values"], (np.dtype(float), 1)
    )


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_json_states_the_values_for_scripts(report: ncscope.Report) -> None:
    stated = strict(report.to_json())
    assert {key: stated[key] for key in stated if key not in ("probe", "provenance")} == {
        "schema_version": 1,
        "metrics": {key: None if math.isnan(value) else value for key, value in report.items()},
        "notes": report.notes,
        "warnings": report.warnings,
        "num_classes": 5,
        "num_samples": 60,
        "dim": 8,
    }


def fill_record(record: LayerRecord) -> LayerRecord:
    """A record whose every field is filled."""
    return replace(
        record,
        warnings=("n < 5 d",),
        baseline={"nc1": math.inf, "vci": 0.5},
        standard_errors={"nc1": 1 / 3},
        bias_corrected={"nc1": -0.1},
    )


def test_a_file_is_read_again_exactly(undefined: ncscope.Report, tmp_path: Path) -> None:
    report = ncscope.Report(fill_record(undefined.record), undefined.statistics)
    report.class_names = [f"class <{index}>" for index in range(report.num_classes)]
    path = report.save(tmp_path / "report.json")
    for source in (path, str(path), report.to_json()):
        again = ncscope.Report.from_json(source)
        assert type(again) is ncscope.Report
        assert repr(again.record) == repr(report.record)  # nan differs from itself
        assert again.provenance == report.provenance
        assert again.class_names[1] == "class <1>"
        assert again.save(tmp_path / "again.html").stat().st_size > 10_000
        assert again.to_json() == report.to_json()


def test_a_report_of_a_model_is_read_again_with_its_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 8), torch.arange(40) % 4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 4))
    loader = DataLoader(data, 20)
    report = ncscope.measure_model(model, loader, layers=["0", "1"], progress=False)
    again = ncscope.ModelReport.from_json(report.save(tmp_path / "model.json"))
    assert again.model_record == report.model_record
    assert list(again.layers) == list(report.layers)
    assert again.model_record.geodesic is not None
    assert type(ncscope.Report.from_json(report.to_json())) is ncscope.ModelReport
    with pytest.raises(InputError, match="a report with its class means, found a report read"):
        ncscope.measure_model(model, loader, reference=again, progress=False)


def test_what_a_file_does_not_hold_is_said_in_one_line(
    report: ncscope.Report, tmp_path: Path
) -> None:
    again = ncscope.Report.from_json(report.to_json())
    assert again.statistics is None
    with pytest.raises(InputError, match=r"measure the training set again") as caught:
        ncscope.measure(torch.zeros(4, 8), [0, 0, 1, 1], reference=again)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"a report of a model, found the text: one of features"):
        ncscope.ModelReport.from_json(report.to_json())
    with pytest.raises(InputError, match="a name for each of the 5 classes, found 2 names"):
        report.class_names = ("cat", "dog")


def test_bad_files_are_refused_in_one_line(report: ncscope.Report, tmp_path: Path) -> None:
    whole = json.loads(report.to_json())
    bad = {
        "nothing named 'schema_version'": {"metrics": {}},  # as earlier versions wrote
        "schema version 2, where": whole | {"schema_version": 2},
        "a measurement without a layer": whole | {"probe": whole["probe"] | {"layers": []}},
        "3 where a text should be": whole | {"provenance": whole["provenance"] | {"split": 3}},
    }
    for said, content in bad.items():
        with pytest.raises(InputError, match="a report that ncscope wrote") as caught:
            ncscope.Report.from_json(json.dumps(content))
        assert said in str(caught.value)
    with pytest.raises(InputError, match="expected a report, found nothing at"):
        ncscope.Report.from_json(tmp_path / "none.json")


def test_rows_have_one_metric_and_layer_each(report: ncscope.Report, tmp_path: Path) -> None:
    full = ncscope.Report(fill_record(report.record), report.statistics)
    pytest.importorskip("pandas")
    frame = full.to_dataframe().set_index("metric")
    assert frame.loc["nc1"].drop("layer").tolist() == [report["nc1"], 0, math.inf, 1 / 3, -0.1]
    with full.save(tmp_path / "report.csv").open(newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(report)
    assert float(rows["vci"]["value"]) == report["vci"]
    assert rows["vci"]["standard_error"] == ""
    text = full.save(tmp_path / "report.tex").read_text()
    assert rf"\texttt{{nc2\_etf}} & ${report['nc2_etf']:.4g}$" in text


def test_a_notebook_shows_warnings_and_values(report: ncscope.Report) -> None:
    html = ncscope.Report(fill_record(report.record), report.statistics)._repr_html_()
    assert html.index("n &lt; 5 d") < html.index("Variability collapse index")
    assert "Collapsed at" in html


def test_json_of_undefined_values_is_null_and_the_notes_name_them(
    undefined: ncscope.Report,
) -> None:
    found = strict(undefined.to_json())
    missing = {key for key, value in found["metrics"].items() if value is None}
    assert missing == {key for key, value in undefined.items() if math.isnan(value)}
    assert {"nc1_quotient", "pfc1", "nc2_etf", "pfc2"} <= missing
    notes = [note for note in found["notes"] if "undefined" in note]
    for key in missing:
        assert any(key in note.replace(",", " ").split() for note in notes), key


def test_saves_json(report: ncscope.Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "report.json")
    assert path == tmp_path / "report.json"
    assert json.loads(path.read_text()) == json.loads(report.to_json())
    assert report.save(str(path)) == path


@pytest.mark.parametrize("suffix", others_slow(SIGNATURES, ".html", ".png", ".svg"))
def test_saves_pages_and_figures(report: ncscope.Report, suffix: str, tmp_path: Path) -> None:
    assert_saved(report, suffix, tmp_path)


@pytest.mark.parametrize("suffix", BY_PACE)
def test_saves_what_is_undefined(undefined: ncscope.Report, suffix: str, tmp_path: Path) -> None:
    assert_saved(undefined, suffix, tmp_path)


def assert_saved(report: ncscope.Report, suffix: str, tmp_path: Path) -> None:
    path = report.save(tmp_path / f"report{suffix}")
    assert path.read_bytes()[:40].lower().startswith(SIGNATURES[suffix].lower())
    assert list(tmp_path.iterdir()) == [path]


def test_plots(report: ncscope.Report) -> None:
    assert report.plot().axes


@pytest.mark.parametrize("name", ["report.txt", "report", "report.JSON5", "json"])
def test_an_unknown_suffix_is_refused(report: ncscope.Report, name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.html, \.json"):
        report.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".json", *BY_PACE])
def test_a_missing_folder_is_named(report: ncscope.Report, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder .*/missing to write in, found none"):
        report.save(tmp_path / "missing" / f"report{suffix}")


@pytest.mark.parametrize("suffix", [".json", *BY_PACE])
def test_a_failed_save_leaves_the_old_file(
    report: ncscope.Report, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"report{suffix}"
    path.write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    # at the last moment: all of the new content is written, none of it is in place
    for name in ("replace", "rename"):
        monkeypatch.setattr(Path, name, fail)
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(InputError, match=f"expected to write {path}, found disk full; free space"):
        report.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_text_is_written_whole_or_not_at_all(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_text(tmp_path / "note.txt", "old")
    assert path.read_text() == "old"

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error):
        write_text(path, "new" * 10_000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    write_text(path, "new")
    assert path.read_text() == "new"


def test_a_metric_that_was_not_measured_is_said_to_need_something() -> None:
    features, labels = torch.randn(30, 4), torch.arange(30) % 3
    labelled, unlabelled = ncscope.measure(features, labels), ncscope.measure(features)
    said = {
        "neco_auroc": "group 'ood' and needs samples from outside the distribution",
        "nc3_self_duality": "it is in the group 'nc3' and needs the classifier's weight",
        "seli_logits": "it is in the group 'nc3' and needs the classifier's weight",
    }
    for key, reason in said.items():
        with pytest.raises(KeyError, match=f"'{key}' was not measured; .*{reason}"):
            labelled[key]
    with pytest.raises(KeyError, match="it is in the group 'nc1' and needs labels"):
        unlabelled["cdnv"]
    chosen = ncscope.measure(features, labels, groups=["nc2"])
    with pytest.raises(KeyError, match=r"it is in the group 'nc1'\"$"):
        chosen["vci"]


def test_groups_that_need_a_weight_are_not_left_out_in_silence() -> None:
    features, labels = torch.randn(30, 4), torch.arange(30) % 3
    report = ncscope.measure(features, labels, groups=["nc1", "nc3", "mir"])
    assert report.notes[-1] == "left out, because no weight was given: nc3, mir"
    assert '"left out, because no weight was given: nc3, mir"' in report.to_json()
    for groups in (None, ["nc1", "nc2"], "nc4"):
        notes = ncscope.measure(features, labels, groups=groups).notes
        assert not any("no weight" in note for note in notes)
    weighted = ncscope.measure(features, labels, torch.randn(3, 4), groups=["nc3"])
    assert not any("no weight" in note for note in weighted.notes)


@pytest.mark.parametrize("classes", [4, 40, 1000])
def test_values_at_collapse_are_those_of_the_classes_present(classes: int) -> None:
    present = torch.tensor([1, 2, 3]) if classes == 4 else torch.arange(classes)[7 : 7 + 3]
    labels = present.repeat_interleave(50)
    generator = torch.Generator().manual_seed(0)
    features = 4 * torch.eye(3).repeat_interleave(50, 0).double()
    features += 0.01 * torch.randn(150, 3, generator=generator, dtype=torch.float64)
    weight = torch.zeros(classes, 3).double()
    weight[present] = torch.eye(3).double() - 1 / 3
    report = ncscope.measure(features, labels, weight)
    alone = ncscope.measure(features, torch.arange(3).repeat_interleave(50), weight[present])
    found, wanted = (
        {row["metric"]: (row["collapsed_at"], row["value"]) for row in each.rows()}
        for each in (report, alone)
    )
    for key in ("gnc2_log", "nc2_of", "participation_ratio", "rankme", "nc2_etf", "nc3_etf"):
        assert found[key][0] == wanted[key][0], key
        assert found[key][0] is not None, key  # also with more classes than dimensions
        assert found[key] == pytest.approx(wanted[key], rel=1e-9), key
    assert f"3 of {classes} classes" in repr(report)
    read = type(report).from_json(report.to_json())
    assert read.rows() == report.rows()


@pytest.mark.parametrize("suffix", [".csv", ".tex"])
def test_a_table_without_a_metric_is_refused(suffix: str, tmp_path: Path) -> None:
    report = ncscope.measure(torch.randn(12, 3), torch.arange(12) % 3, groups=["per_class"])
    with pytest.raises(InputError, match=r"expected metrics for the table .*per_class\.save"):
        report.save(tmp_path / f"x{suffix}")
    assert not list(tmp_path.iterdir())
