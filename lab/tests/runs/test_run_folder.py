"""What a run leaves on disk can be read back, and a folder that cannot be written is refused."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ncscope import History
from ncscope.errors import InputError
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import GeodesicRecord, LayerRecord, Measurement, ModelRecord
from ncscope_lab.findings import Finding
from ncscope_lab.observations import ITERATION, flatten
from ncscope_lab.runs import run_folder
from ncscope_lab.runs.run_folder import RunFolder

NAN, INF = float("nan"), float("inf")


def layer(name: str, **metrics: float) -> LayerRecord:
    return LayerRecord(name, metrics, ("a note",), num_classes=2, num_samples=4, dim=3)


GEODESIC = GeodesicRecord([0.0, 1.0], [2.0, INF], [0.5, 0.1], [0.5, 1.0], 1.0, 2.0)
PROBE = ModelRecord((layer("stem", nc1=2.0), layer("head", nc1=NAN, cdnv=INF)), geodesic=GEODESIC)
MEASUREMENTS = [
    Measurement(PROBE, 0, "train", "part"),
    Measurement(PROBE, 1, "test", "part", {ITERATION: 23}),
]
OBSERVATIONS = [replace(each, part="part") for each in flatten(MEASUREMENTS)]


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def lines(path: Path) -> list[dict[str, Any]]:
    return [strict(line) for line in path.read_text().splitlines()]


def test_metrics_are_a_flat_line_a_layer(tmp_path: Path) -> None:
    RunFolder(tmp_path).save_observations(OBSERVATIONS)
    before = {"part": "part", "step": 0, "epoch": 0, "split": "train"}
    after = {"part": "part", "step": 23, "epoch": 1, "split": "test"}
    stem = {"layer": "stem", "nc1": 2.0}
    head = {"layer": "head", "nc1": None, "cdnv": None}
    expected = [before | stem, before | head, after | stem, after | head]
    assert lines(tmp_path / "metrics.jsonl") == expected


def test_the_history_holds_everything_measured(tmp_path: Path) -> None:
    RunFolder(tmp_path).save_history(MEASUREMENTS, "epoch", Provenance(caller="pfc/training small"))
    history = strict((tmp_path / "history.json").read_text())
    first, second = history["measurements"]
    assert (second["step"], second["split"], second["values"]) == (1, "test", {ITERATION: 23})
    assert [record["layer"] for record in first["probe"]["layers"]] == ["stem", "head"]
    assert first["probe"]["layers"][0]["notes"] == ["a note"]
    assert first["probe"]["geodesic"]["pfc1"] == [2.0, "inf"]
    read = History.load(tmp_path)
    assert repr(read.measurements) == repr(MEASUREMENTS)
    assert (read.unit, read.provenance.caller) == ("epoch", "pfc/training small")
    assert read.provenance.date == ""


def test_saving_again_replaces(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_observations(OBSERVATIONS)
    folder.save_observations(OBSERVATIONS[:2])
    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    folder.save_history(MEASUREMENTS, "epoch", Provenance())
    folder.save_history(MEASUREMENTS[:1], "epoch", Provenance())
    assert len(History.load(tmp_path)) == 1
    folder.save_history([], "epoch", Provenance())
    assert not (tmp_path / "history.json").exists()


def test_config_claims_and_page(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    config = {"width": 8, "learning_rate": 0.1}
    claims = [Finding(text="PFC1 falls", source="ours", verdict="not held", evidence="it rose")]
    folder.save_config(config)
    folder.save_claims(claims)
    page = folder.save_page("<p>π</p>")
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == config
    assert list(yaml.safe_load((tmp_path / "config.yaml").read_text())) == list(config)
    assert json.loads((tmp_path / "claims.json").read_text()) == [claims[0].record()]
    assert page == tmp_path / "report.html"
    assert page.read_text(encoding="utf-8") == "<p>π</p>"


def test_folder_is_made_with_its_parents_and_left_empty(tmp_path: Path) -> None:
    RunFolder(str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"output folder, found the file .*taken; pass --out"):
        RunFolder(tmp_path / "taken")


def test_a_read_only_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The superuser may write anywhere, so what the disk would say is simulated."""

    def refuse(path: Path, text: str) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(run_folder, "write_text", refuse)
    with pytest.raises(InputError, match="Read-only file system; pass --out"):
        RunFolder(tmp_path)
