"""A run of an experiment: its folder, resuming, settings, JSON, errors."""

import json
import math
from dataclasses import replace

import pytest
from lab.tests.tiny import halving
from lab.tests.tiny.halving import list_alone

import ncscope
from ncscope.api.comparison import read_sources
from ncscope.errors import InputError
from ncscope_lab import execution
from ncscope_lab.execution import load_run, page_sections
from ncscope_lab.experiment import Part
from ncscope_lab.observations import Heartbeat
from ncscope_lab.runs.settings import change_settings
from ncscope_lab.training.settings import Training


def written(folders, page):
    """Write the page of `ncscope report`."""
    return read_sources(folders, [page_sections]).save(page)


FILES = ("config.yaml", "metrics.jsonl", "claims.json", "report.html")


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    """The experiment of these tests stands in the catalogue."""
    list_alone(monkeypatch, halving.EXPERIMENT)


def test_a_run_without_a_folder_writes_nothing_and_knows_its_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    run = execution.run("halving", settings={"steps": 2}, on_row=lambda *now: seen.append(now))
    assert [row["value"] for row in run.rows] == [8, 4, 2, -8, -4, -2]
    assert {row.part for row in run.rows} == {"upper", "lower"}
    assert seen[0] == ("upper", 1, 6)
    assert seen[-1] == ("lower", 6, 6)
    assert [claim.held for claim in run.claims] == [True, False]
    assert run.page is None
    assert list(tmp_path.iterdir()) == []


def test_json_holds_settings_claims_and_rows_and_says_null_for_nan():
    whole = json.loads(execution.run("halving", settings={"steps": 1}).to_json())
    assert (whole["experiment"], whole["scale"]) == ("test/halving", "small")
    assert whole["settings"] == {"start": 8.0, "steps": 1}
    assert [claim["verdict"] for claim in whole["claims"]] == ["held", "not held"]
    assert [row["log"] for row in whole["rows"]] == [math.log(8), math.log(4), None, None]


@pytest.mark.slow
def test_the_run_folder_is_complete_and_the_same_every_time(tmp_path):
    for name in "ab":
        execution.run("halving", out=tmp_path / name)
    names = {str(f.relative_to(tmp_path / "a")) for f in (tmp_path / "a").rglob("*") if f.is_file()}
    figures = {"figures/halves.svg", "figures/halves.pdf"}
    assert names == {*FILES, "finished.json"} | figures
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    page = (tmp_path / "a" / "report.html").read_text()
    assert "It reaches zero." in page
    assert "data:image/svg+xml;base64," in page


@pytest.mark.slow
def test_a_finished_part_is_not_run_again(tmp_path, monkeypatch):
    execution.run("halving", out=tmp_path)

    def refuse(config):
        def run(resources):
            raise AssertionError
            yield Heartbeat()

        return [Part(part.name, part.yields, run) for part in halving.parts(config)]

    list_alone(monkeypatch, replace(halving.EXPERIMENT, parts=refuse))
    assert len(execution.run("halving", out=tmp_path, resume=True).rows) == 8
    with pytest.raises(AssertionError):
        execution.run("halving", out=tmp_path / "other")


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    execution.run("halving", out=tmp_path)
    with pytest.raises(InputError, match=r"without a run, found one .*; pass --resume"):
        execution.run("halving", out=tmp_path)
    with pytest.raises(InputError, match="found another scale: small there, paper here"):
        execution.run("halving", out=tmp_path, scale="paper", resume=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"step": 3}, r"settings start, steps, found 'step'; .* is steps"),
        ({"steps": 0}, r"steps: greater than or equal to 1, found 0; .*halve"),
        ({"start": "eight"}, "start: a valid number"),
    ],
)
def test_bad_settings_are_one_sentence(settings, said):
    with pytest.raises(InputError, match=said):
        execution.run("halving", settings=settings)


def test_a_scale_that_an_experiment_lacks_is_refused(tmp_path, unchecked_signatures):
    said = r"a scale of test/halving, which has paper and small only, found 'tiny'; choose"
    with pytest.raises(InputError, match=said):
        execution.run("halving", out=tmp_path / "run", scale="tiny")
    assert not (tmp_path / "run").exists()


def test_a_field_is_changed_by_its_dotted_name():
    run = execution.run("halving", settings={"steps": 1})
    assert (run.config.steps, run.config.start) == (1, 8.0)
    whole = Training(data="digits", network="small-resnet")
    found = change_settings(whole, {"optimisation.epochs": 3, "layers": ["stages.*"]})
    assert found.optimisation.epochs == 3
    assert found.layers == ("stages.*",)
    with pytest.raises(InputError, match=r"the nearest is optimisation\.epochs"):
        change_settings(whole, {"optimisation.epoch": 3})


def test_a_run_comes_back_from_its_folder(tmp_path):
    run = execution.run("halving", out=tmp_path)
    found = load_run(tmp_path)
    assert found.config == run.config
    assert (found.experiment.id, found.scale) == ("test/halving", "small")
    assert repr(list(found.rows)) == repr(list(run.rows))
    assert found.claims == run.claims
    with pytest.raises(InputError, match=r"expected the folder of a run, found .*nowhere without"):
        load_run(tmp_path / "nowhere")


@pytest.mark.slow
def test_runs_stand_side_by_side_on_one_page(tmp_path):
    for steps in (1, 2):
        execution.run("halving", out=tmp_path / f"{steps}", settings={"steps": steps})
    page = written([tmp_path / "1", tmp_path / "2"], tmp_path / "both.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    assert page.count("It reaches zero.") == 1  # a row of the matrix
    assert page.count("✓ held") == page.count("✕ not") == 2
    assert page.index("data:image/svg+xml;base64,") < page.index("It reaches zero.")
    alone = written([tmp_path / "1"], tmp_path / "alone.html").read_text()
    assert alone.count("It reaches zero.") == 1
    assert "<h3>" not in alone


@pytest.mark.slow
def test_a_report_beside_runs_is_compared_and_the_runs_keep_their_claims(tmp_path):
    execution.run("halving", out=tmp_path / "run")
    report = ncscope.measure([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    report.save(tmp_path / "mine.json")
    page = written([tmp_path / "mine.json", tmp_path / "run"], tmp_path / "both.html").read_text()
    assert "<h1>mine and run</h1>" in page
    assert "Side by side" in page
    assert page.count("It reaches zero.") == 1
    assert page.count("data:image/svg+xml;base64,") == 1


def test_a_run_that_has_not_ended_is_shown_without_claims(tmp_path):
    def stop(part, done, total):
        if part == "lower":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execution.run("halving", out=tmp_path, on_row=stop)
    found = load_run(tmp_path)
    assert not found.ended
    assert found.claims == []
    assert {row.part for row in found.rows} == {"upper"}
    page = written([tmp_path], tmp_path / "page.html").read_text()
    assert "This run has not ended" in page
    assert "<img" not in page


@pytest.mark.slow
def test_a_fresh_run_takes_nothing_from_what_lies_in_its_folder(tmp_path):
    execution.run("halving", out=tmp_path)
    (tmp_path / "config.yaml").unlink()
    run = execution.run("halving", out=tmp_path, settings={"start": 2.0})
    assert run.rows[0]["value"] == 2


def test_no_run_is_no_page(tmp_path):
    with pytest.raises(InputError, match="or the folder of a run, found none"):
        written([], tmp_path / "page.html")
