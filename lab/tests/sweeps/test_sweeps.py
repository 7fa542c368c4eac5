"""A sweep in this process: its runs, their names and folders, going on, its table."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from lab.tests.tiny import halving
from lab.tests.tiny.halving import list_alone
from pydantic import BaseModel, Field

from ncscope.errors import InputError
from ncscope_lab import execution
from ncscope_lab.execution import load_run
from ncscope_lab.experiment import Part
from ncscope_lab.runs.resources import Resources
from ncscope_lab.sweeps.sweep import _plan_runs, grid, sweep

FILES = ("config.yaml", "metrics.jsonl", "claims.json", "report.html")
SIX = grid({"start": [1, 2.5], "steps": [1, 2, 3]})
PLAIN = halving.PLAIN


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """The tests' own experiment stands in the catalogue, without its figures: they take long."""
    list_alone(monkeypatch, PLAIN)


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_grid_of_six_runs_is_the_same_runs_one_by_one(tmp_path):
    seen = []
    found = sweep("halving", SIX, out=tmp_path / "all", on_change=seen.append)
    names = [f"start={start},steps={steps}" for start in ("1.0", "2.5") for steps in (1, 2, 3)]
    assert list(found.runs) == names
    for name, point in zip(names, SIX, strict=True):
        execution.run("halving", out=tmp_path / name, settings=point)
        for file in FILES:
            assert (tmp_path / "all" / name / file).read_bytes() == (
                tmp_path / name / file
            ).read_bytes()
    assert {at.state for at in seen[0].values()} == {"waiting"}
    assert seen[2][names[0]].part == "upper"
    assert (seen[2][names[0]].done, seen[2][names[0]].total) == (1, 4)
    assert {at.state for at in seen[-1].values()} == {"ended"}


@pytest.mark.slow
def test_the_table_has_a_line_for_every_run_and_part(tmp_path, monkeypatch):
    list_alone(monkeypatch, halving.EXPERIMENT)
    sweep("halving", [{"start": 2}, {"start": 4}], settings={"steps": 1}, out=tmp_path)
    lines = table_of(tmp_path)
    assert [(line["run"], line["part"], line["value"]) for line in lines] == [
        ("start=2.0", "upper", "1.0"),
        ("start=2.0", "lower", "-1.0"),
        ("start=4.0", "upper", "2.0"),
        ("start=4.0", "lower", "-2.0"),
    ]
    assert {(line["claims_held"], line["claims"], line["error"]) for line in lines} == {
        ("1", "2", "")
    }
    assert [line["start"] for line in lines] == ["2.0", "2.0", "4.0", "4.0"]
    page = (tmp_path / "report.html").read_text()
    assert page.index("The sweep") < page.index("It halves.")
    assert page.count("From 2.0, halved.") == 1
    assert page.count("<dt>steps</dt>") == 1  # the same for all, and said once
    assert page.count("<dt>start</dt>") == 2


def test_a_run_of_a_sweep_is_a_run_like_any_other(tmp_path):
    sweep("halving", SIX, out=tmp_path)
    place = tmp_path / "start=2.5,steps=3"
    assert load_run(place).config == halving.Halving(start=2.5, steps=3)
    before = (place / "metrics.jsonl").read_bytes()
    execution.run("halving", out=place, settings={"start": 2.5, "steps": 3}, resume=True)
    assert (place / "metrics.jsonl").read_bytes() == before


def parts_that_stop(where: float, error: BaseException):
    """The experiment's parts; in runs from one start the second stops."""

    def stopping(part: Part):
        def run(resources):
            yield from part.run(resources)
            raise error

        return replace(part, run=run)

    def parts(config):
        first, second = halving.parts(config)
        return [first, stopping(second) if config.start == where else second]

    return replace(PLAIN, parts=parts)


def test_a_run_that_fails_is_said_to_and_the_others_go_on(tmp_path, monkeypatch):
    broken = parts_that_stop(2.0, ZeroDivisionError("by\nzero"))
    list_alone(monkeypatch, broken)
    found = sweep("halving", grid({"start": [1, 2, 4]}), out=tmp_path)
    assert found.failures == {"start=2.0": "ZeroDivisionError: by zero"}
    assert [run.ended for run in found.runs.values()] == [True, False, True]
    failed = [line for line in table_of(tmp_path) if line["run"] == "start=2.0"]
    assert {(line["claims"], line["error"]) for line in failed} == {
        ("", "ZeroDivisionError: by zero")
    }
    page = (tmp_path / "report.html").read_text()
    assert "✕ failed" in page
    assert "ZeroDivisionError: by zero" in page
    list_alone(monkeypatch, PLAIN)
    again = sweep("halving", grid({"start": [1, 2, 4]}), out=tmp_path, resume=True)
    assert again.failures == {}
    assert all(run.ended for run in again.runs.values())
    assert "✕ failed" not in (tmp_path / "report.html").read_text()


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    stopped = parts_that_stop(2.5, KeyboardInterrupt())
    list_alone(monkeypatch, stopped)
    with pytest.raises(KeyboardInterrupt):
        sweep("halving", SIX, out=tmp_path / "broken")
    first = tmp_path / "broken" / "start=1.0,steps=1" / "report.html"
    before = first.stat().st_mtime_ns
    finished = json.loads((tmp_path / "broken/start=2.5,steps=1/finished.json").read_text())
    assert list(finished["parts"]) == ["upper"]
    list_alone(monkeypatch, PLAIN)
    sweep("halving", SIX, out=tmp_path / "broken", resume=True)
    assert first.stat().st_mtime_ns == before  # what had ended was not run again
    sweep("halving", SIX, out=tmp_path / "whole")
    for file in sorted((tmp_path / "whole").rglob("*.*")):
        if file.is_file():
            same = tmp_path / "broken" / file.relative_to(tmp_path / "whole")
            assert file.read_bytes() == same.read_bytes(), file


def test_the_folder_holds_one_sweep(tmp_path):
    sweep("halving", SIX, out=tmp_path)
    asked = yaml.safe_load((tmp_path / "sweep.yaml").read_text())
    assert (asked["experiment"], asked["scale"], asked["set"]) == ("test/halving", "small", {})
    assert asked["runs"]["start=2.5,steps=3"] == {"start": 2.5, "steps": 3}
    with pytest.raises(InputError, match="without runs, found one with a sweep in it"):
        sweep("halving", SIX, out=tmp_path)
    with pytest.raises(InputError, match="found other runs; pass another --out"):
        sweep("halving", SIX[:5], out=tmp_path, resume=True)
    with pytest.raises(InputError, match="found another scale; pass another --out"):
        sweep("halving", SIX, out=tmp_path, scale="paper", resume=True)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(asked | {"until": 3}))
    with pytest.raises(InputError, match="found another until; pass another --out"):
        sweep("halving", SIX, out=tmp_path, resume=True)


def test_the_folder_of_a_single_run_is_left_as_it_is(tmp_path):
    execution.run("halving", out=tmp_path, settings={"start": 1})
    before = (tmp_path / "report.html").read_bytes()
    for resume in (False, True):
        with pytest.raises(InputError, match="the folder of a sweep, found one of a single run"):
            sweep("halving", [{"start": 1}], out=tmp_path, resume=resume)
    assert (tmp_path / "report.html").read_bytes() == before


def test_a_run_in_the_way_is_not_taken_for_one_of_the_sweep(tmp_path):
    execution.run("halving", out=tmp_path / "start=1.0", settings={"steps": 9})
    with pytest.raises(InputError, match=r"found one with start=1\.0 in it"):
        sweep("halving", [{"start": 1}], out=tmp_path)
    with pytest.raises(InputError, match=r"the run start=1\.0, found another in "):
        sweep("halving", [{"start": 1}], out=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "a setting to go over, found none"),
        ([{}], "a setting to go over, found none"),
        ([{"steps": 1}, {"steps": 0}], "steps: greater than or equal to 1, found 0"),
        ([{"stepps": 1}], "found 'stepps'; the nearest is steps"),
        ([{"steps": 1}, {"steps": 2}, {"steps": 1.0}], "that differ, found steps=1 2 times"),
    ],
)
def test_what_cannot_be_run_is_found_before_anything_runs(runs, said, tmp_path):
    with pytest.raises(InputError, match=said):
        sweep("halving", runs, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_several_processes_a_run_are_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"one device for each of several runs, found devices 2, nodes 1"
    ):
        sweep("halving", SIX, out=tmp_path, resources=Resources(devices=2))


def test_a_grid_without_values_is_refused():
    with pytest.raises(InputError, match="values of steps, found none"):
        grid({"steps": []})


class Inner(BaseModel):
    """Settings of a part."""

    rate: float | None = Field(0.1, description="Rate.")
    layers: tuple[str, ...] = Field((), description="Layers.")


class Nested(BaseModel):
    """Settings with settings of parts in them."""

    parts: dict[str, Inner] = Field({"a": Inner(), "b": Inner()}, description="Parts.")
    bias: bool = Field(True, description="Bias.")


def names(*points: dict[str, object]) -> list[str]:
    nested = replace(PLAIN, scales={"small": Nested()})
    plans, _ = _plan_runs(nested, "small", {}, points)
    return [plan.name for plan in plans]


def test_names_are_short_distinct_and_safe():
    assert names({"parts.a.rate": "1e-5", "bias": False}) == ["rate=1e-05,bias=false"]
    assert names({"parts.a.rate": 1}, {"parts.b.rate": None}) == [
        "a.rate=1.0,b.rate=0.1",
        "a.rate=0.1,b.rate=null",
    ]
    layers = "parts.a.layers"
    assert names({layers: ["stem", "blocks/*"]}, {layers: []}) == [
        "layers=stem+blocks%2F%2A",
        "layers=",
    ]
    assert names({layers: ["a+b"]}, {layers: ["a", "b"]}) == ["layers=a%2Bb", "layers=a+b"]
    long = names({layers: ["a" * 90, "b" * 90]}, {layers: ["a" * 90, "b" * 91]})
    assert len(set(long)) == 2
    assert all(len(name) == 150 for name in long)


def test_the_last_words_of_a_driver_that_dies_are_told(tmp_path, monkeypatch):
    """Also where it dies with a request unread that is longer than a pipe holds."""
    monkeypatch.setattr("ncscope_lab.sweeps.requests.find_spec", lambda name: True)
    monkeypatch.setattr("ncscope_lab.sweeps.requests._PROGRAM", "import no_such_library")
    for runs in (SIX[:1], grid({"steps": range(1, 401)})):
        with pytest.raises(RuntimeError, match=r"exit status 1.*No module named 'no_such_library'"):
            sweep("halving", runs, out=tmp_path / str(len(runs)), cluster="local")


def test_a_cluster_without_ray_or_without_a_cluster_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="the address of a Ray cluster, found 'nowhere'; pass"):
        sweep("halving", SIX, out=tmp_path / "a", cluster="nowhere")
    with pytest.raises(
        InputError, match=r"Ray cluster at 127\.0\.0\.1:9, found none: .*refused; start"
    ):
        sweep("halving", SIX, out=tmp_path / "a", cluster="127.0.0.1:9")
    # Nothing was run, so the folder is as good as new.
    monkeypatch.setattr("ncscope_lab.sweeps.requests.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "\.\[ray\]"'):
        sweep("halving", SIX[:3], out=tmp_path / "a", cluster="local")
