"""The commands run, list and report, from their options to what they say."""

import json
import re
from pathlib import Path

import pytest
from lab.tests.cli.commands import ran
from lab.tests.tiny import halving

from ncscope.errors import InputError
from ncscope_lab.catalogue import EXPERIMENTS, REPRODUCTIONS, find_experiment
from ncscope_lab.execution import load_run
from ncscope_lab.runs.resources import Resources

MODELS = [name for name in EXPERIMENTS if "/" not in name]


@pytest.fixture
def with_halving(monkeypatch):
    """The tests' own experiment stands in the catalogue, without its figure."""
    halving.list_alone(monkeypatch, halving.PLAIN)


def test_json_is_one_object_and_nothing_else(with_halving, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ("--json", "--json --out here"):
        assert list(tmp_path.iterdir()) == []
        assert ran("run", "ufm", "--set", "steps=2", *words.split()) == 0
        out, err = capsys.readouterr()
        whole = json.loads(out)
        assert (whole["experiment"], whole["scale"]) == ("test/halving", "small")
        assert whole["settings"] == {"start": 8.0, "steps": 2}
        assert [row["value"] for row in whole["rows"]] == [8, 4, 2, -8, -4, -2]
        assert err == ""
    assert (tmp_path / "here" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run ufm --set steps=0", "expected steps: greater than or equal to 1, found 0; it is:"),
        ("run ufm --set seed=-1", "expected seed: "),
        ("run ufm --scale paper", "a scale of ufm, which has small only, found 'paper'; choose"),
        ("run uffm", "expected one of the experiments .*; the nearest is ufm"),
        ("run xufm/uffm", "expected one of the experiments .*; the nearest is xufm/ufm"),
        ("list uffm", "expected one of the experiments .*; the nearest is ufm"),
        ("run xufm/ufm --scale tiny", "tiny"),
        (
            "run info/training --set runs.*.optimisation.epochs=0",
            r"expected runs\..*\.optimisation.epochs: greater than .*; it is: Passes",
        ),
        ("run xufm/ufm --set every", "expected FIELD=VALUE after --set, found 'every'"),
        ("run xufm/ufm --set eveyr=1", "found 'eveyr'; the nearest is every"),
        ("run xufm/ufm --set bias_decays=[", "expected a value after =, found"),
        ("run xufm/ufm --set seed=2001-99-99", "expected a value after =, found"),
        ("run xufm/ufm --set seed=!!int", "expected a value after =, found"),
        (f"run xufm/ufm --set seed={'[' * 600}", "expected a value after =, found"),
        ("run xufm/ufm --only xufm/ufm", "expected --only with all, found 'xufm/ufm'; leave"),
        ("run all --set seed=1", "expected --set with one experiment, found 'all'; leave"),
        ("run all --json", "expected --json with one experiment, found 'all'; leave"),
        ("run all --only ufm", "found ufm; run it alone: ncscope run ufm"),
        ("run all --devices 2", "one device for each of several runs, found devices 2"),
        ("sweep xufm/ufm", "a setting to go over, found none; for example seed=0,1,2"),
        (
            "sweep xufm/ufm --over seed",
            "FIELD=VALUE after --over, found 'seed'; for example --over seed=",
        ),
        ("sweep xufm/ufm --over seed=", "expected values of seed, found none"),
        ("sweep xufm/ufm --over seed=0,-1", "expected seed: "),
        ("sweep xufm/ufm --over seed=1 --over seed=2", "expected seed after --over once"),
        (
            "sweep xufm/ufm --over seed=1 --set seed=2",
            r"expected seed .* \(--over\), found both; leave",
        ),
        ("sweep xufm/ufm --over seed=[1", r"expected a value after =, found '\[\[1"),
        (
            "sweep xufm/ufm --list no.yaml",
            "a list of settings in no.yaml, found nothing at no.yaml",
        ),
        ("sweep xufm/uffm --over seed=1", "the nearest is xufm/ufm"),
        ("report nowhere", "or the folder of a run, found nothing at nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ran(*words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert re.search(said, err)
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_runs_into_its_default_folder(with_halving, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ran("run", "xufm/ufm") == 0
    text = capsys.readouterr().out
    assert "It reaches zero." in text
    assert "not held" in text
    page = tmp_path / "runs" / "xufm-ufm-small" / "report.html"
    assert f"Report: {page.as_uri()}" in text
    assert ran("run", "xufm/ufm") == 2
    assert "pass --resume" in capsys.readouterr().err
    assert ran("run", "xufm/ufm", "--resume") == 0


def test_settings_are_changed_and_report_compares(with_halving, tmp_path):
    for start in (2, 4):
        out = tmp_path / str(start)
        assert ran("run", "xufm/ufm", "--set", f"start={start}", "--out", out) == 0
    assert ran("report", tmp_path / "2", tmp_path / "4", "--save", tmp_path / "both.html") == 0
    page = (tmp_path / "both.html").read_text()
    assert "It halves." in page
    assert page.count("<dt>start</dt>") == 2


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An experiment in a file of somebody's own, in a folder beside the current one."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    path = there / "mine.py"
    path.write_text("from lab.tests.tiny.halving import PLAIN as EXPERIMENT\n")
    return path


def test_a_file_runs_resumes_and_is_reported_from_any_folder(file, capsys, monkeypatch):
    assert ran("run", "../there/mine.py", "--set", "steps=2") == 0
    folder = file.parents[1] / "here" / "runs" / "mine-small"
    assert f"Report: {(folder / 'report.html').as_uri()}" in capsys.readouterr().out
    monkeypatch.chdir(file.parent)
    assert ran("run", "mine.py", "--set", "steps=2", "--out", folder, "--resume") == 0
    assert ran("report", folder, "--save", "page.html") == 0
    assert "It halves." in (file.parent / "page.html").read_text()
    assert load_run(folder).experiment.id == str(file)
    assert ran("list", "mine.py") == 0
    assert "How often to halve." in capsys.readouterr().out


def test_a_file_is_swept(file):
    assert ran("sweep", "../there/mine.py", "--over", "st*s=1,2", "--out", "both") == 0
    steps = {load_run(page.parent).config.steps for page in Path("both").glob("*/report.html")}
    assert steps == {1, 2}


def test_a_file_that_was_changed_is_read_again(file):
    assert find_experiment(str(file)).title == "Halving"
    file.write_text(
        "from dataclasses import replace\nfrom lab.tests.tiny import halving\n"
        "EXPERIMENT = replace(halving.PLAIN, title='Quartering')\n"
    )
    assert find_experiment(str(file)).title == "Quartering"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "expected a file of Python, .*/mine.py, found nothing at"),
        ("", "expected EXPERIMENT in .*/mine.py, found no such name; check the name"),
        ("EXPERIMENT = 3", r"ncscope_lab.Experiment as EXPERIMENT in .*, found int; write EXP"),
        ("import lab_of_nobody", r"No module named 'lab_of_nobody' \(mine.py, line 1\)"),
        ("EXPERIMENT = (", r"SyntaxError: '\(' was never closed \(mine.py, line 1\)"),
    ],
)
def test_a_file_without_an_experiment_is_refused_in_one_line(code, said, file, capsys):
    file.unlink() if code is None else file.write_text(code)
    assert ran("run", "../there/mine.py") == 2
    assert re.search(said, capsys.readouterr().err)
    assert list(Path.cwd().iterdir()) == []


def test_list_names_the_settings_of_training_runs_as_set_takes_them(capsys):
    assert ran("list", "info/training") == 0
    words = " ".join(capsys.readouterr().out.split())
    assert (
        "runs.*.optimisation.epochs Passes over the training set. paper: 1343 small: 300; 150; 60"
        in words
    )


def test_list_names_every_experiment_by_kind_with_its_cost(capsys):
    assert ran("list") == 0
    papers, models = capsys.readouterr().out.split("Surrogate models")
    models, ours = models.split("Of our own")
    for text, names in (
        (papers, REPRODUCTIONS),
        (models, MODELS),
        (ours, ("pfc/demo", "transfer/zoo")),
    ):
        found = {word for word in text.split() if word in EXPERIMENTS}
        assert found == set(names)
        words = " ".join(text.split())
        for name in names:
            assert all(f"{scale}:" in words for scale in find_experiment(name).cost)


def test_every_option_reaches_the_run(monkeypatch):
    seen = {}

    def catch(name, **given):
        seen.update(given)
        raise InputError(expected="nothing", found="enough", fix="stop")

    monkeypatch.setattr("ncscope_lab.execution.run", catch)
    words = "--data d --download --accelerator cpu --devices 2 --nodes 3 --workers 4 --out o"
    more = "--scale paper --set a.b=[1] --resume"
    assert ran("run", "pfc/training", *words.split(), *more.split()) == 2
    assert seen["resources"] == Resources(
        data=Path("d"), download=True, accelerator="cpu", devices=2, nodes=3, workers=4
    )
    assert (seen["scale"], seen["resume"], seen["out"]) == ("paper", True, Path("o"))
    assert seen["settings"] == {"a.b": [1]}
