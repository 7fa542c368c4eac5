"""The commands simulate, reproduce, train, report and list, from their options to what they say."""

import json
import re
from pathlib import Path

import pytest

from ncscope.cli import main
from ncscope.errors import InputError
from ncscope.lab import catalogue
from ncscope.lab.catalogue import BENCHMARKS, EXPERIMENTS, SIMULATIONS
from ncscope.lab.runs.resources import Resources
from tests.lab.papers import halving


def ran(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def with_halving(monkeypatch):
    """The tests' own experiment stands in the catalogue."""
    monkeypatch.setattr("ncscope.lab.studies.experiment", lambda name: halving.RECIPE)
    monkeypatch.setattr("ncscope.lab.studies.simulation", lambda name: halving.RECIPE)


def test_json_is_one_object_and_nothing_else(capsys):
    assert ran("simulate", "geodesic", "--num-classes", 3, "--dim", 4, "--json") == 0
    out, err = capsys.readouterr()
    whole = json.loads(out)
    assert whole["model"] == "geodesic"
    assert whole["settings"]["num_classes"] == 3
    assert whole["rows"][0]["layer"] == "line"
    assert "\n" not in err.strip()


def test_options_of_every_kind_reach_the_settings(capsys):
    words = "--weight-decays 0.01 --weight-decays 0.02 --activation linear --steps 3 --every 2"
    assert ran("simulate", "extended", *words.split(), "--per-class", 2, "--json") == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["weight_decays"] == [0.01, 0.02]
    assert settings["activation"] == "linear"
    assert settings["per_class"] == 2


@pytest.mark.parametrize("model", SIMULATIONS)
def test_help_of_a_model_says_what_it_is_and_names_its_options(model, capsys):
    assert ran("simulate", model, "--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert SIMULATIONS[model] in text
    assert "--seed" in text
    assert "--json" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("simulate ufm --steps 0", "expected steps: greater than or equal to 1, found 0; it is:"),
        ("simulate ufm --seed -1", "expected seed: "),
        ("simulate uffm", "expected one of the surrogate models .*; the nearest is ufm"),
        ("simulate ufm --no-such 3", "No such option"),
        ("reproduce xufm/uffm", "expected one of the experiments .*; the nearest is xufm/ufm"),
        ("reproduce xufm/ufm --scale tiny", "tiny"),
        ("train xufm/ufm --set every", "expected FIELD=VALUE after --set, found 'every'"),
        ("train xufm/ufm --set eveyr=1", "found 'eveyr'; the nearest is every"),
        ("train xufm/ufm --set bias_decays=[", "expected a value after =, found"),
        ("train xufm/ufm --set seed=2001-99-99", "expected a value after =, found"),
        ("train xufm/ufm --set seed=!!int", "expected a value after =, found"),
        (f"train xufm/ufm --set seed={'[' * 600}", "expected a value after =, found"),
        (
            "report nowhere",
            "or the folder of a run, found nothing at nowhere",
        ),
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


def test_an_experiment_runs_into_its_default_folder(with_halving, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ran("reproduce", "xufm/ufm") == 0
    text = capsys.readouterr().out
    assert "It reaches zero." in text
    assert "not held" in text
    assert (tmp_path / "runs" / "xufm-ufm-small" / "report.html").exists()
    assert ran("reproduce", "xufm/ufm") == 2
    assert "pass --resume" in capsys.readouterr().err
    assert ran("reproduce", "xufm/ufm", "--resume") == 0


def test_train_overrides_and_report_compares(with_halving, capsys, tmp_path):
    for start in (2, 4):
        words = ["train", "xufm/ufm", "--set", f"start={start}", "--out", tmp_path / str(start)]
        assert ran(*words) == 0
    assert ran("report", tmp_path / "2", tmp_path / "4", "--save", tmp_path / "both.html") == 0
    page = (tmp_path / "both.html").read_text()
    assert "From 2.0, halved." in page
    assert "From 4.0, halved." in page


def test_list_names_every_experiment_and_sets_benchmarks_apart(capsys):
    assert ran("list") == 0
    ours = "Benchmarks of our own, which belong to no paper"
    papers, title, benchmarks = capsys.readouterr().out.partition(ours)
    assert title
    for text, within, without in (
        (papers, EXPERIMENTS, BENCHMARKS),
        (benchmarks, BENCHMARKS, EXPERIMENTS),
    ):
        assert all(name in text for name in within)
        assert not any(name in text for name in without)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_loads_with_its_scales(name):
    recipe = catalogue.experiment(name)
    assert set(recipe.scales) >= {"paper", "small"}
    assert_complete(name, recipe)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_loads_with_its_scales(name):
    recipe = catalogue.experiment(name)
    assert recipe.source == "ours"
    assert set() < set(recipe.scales) <= {"paper", "medium", "small"}
    assert_complete(name, recipe)


def test_no_name_is_of_an_experiment_and_of_a_benchmark():
    assert not EXPERIMENTS.keys() & BENCHMARKS.keys()
    papers = {name.split("/")[0] for name in EXPERIMENTS}
    assert not papers & {name.split("/")[0] for name in BENCHMARKS}


def assert_complete(name, recipe):
    assert recipe.id == name
    assert set(recipe.scales) == set(recipe.cost)
    assert all(recipe.cost.values())
    for config in recipe.scales.values():
        names = [part.name for part in recipe.parts(config)]
        assert names
        assert len(set(names)) == len(names)
        restored = recipe.config.model_validate(json.loads(config.model_dump_json()))
        assert restored == config


@pytest.mark.parametrize("command", ["reproduce", "train"])
def test_every_means_of_training_reaches_the_work(command, monkeypatch, tmp_path):
    seen = {}

    def caught(name, **given):
        seen.update(given)
        raise InputError(expected="nothing", found="enough", fix="stop")

    monkeypatch.setattr("ncscope.lab.studies.reproduce", caught)
    words = "--data d --download --accelerator cpu --devices 2 --nodes 3 --workers 4"
    assert ran(command, "pfc/training", *words.split()) == 2
    expected = Resources(
        data=Path("d"), download=True, accelerator="cpu", devices=2, nodes=3, workers=4
    )
    assert seen["resources"] == expected
