"""The command sweep, from its options to what it says and leaves."""

import re
from pathlib import Path

import pytest
from lab.tests.cli.commands import ran
from lab.tests.tiny import halving

from ncscope.errors import InputError
from ncscope_lab.runs.resources import Resources


@pytest.fixture
def with_halving(monkeypatch):
    halving.list_alone(monkeypatch, halving.PLAIN)


def test_a_grid_runs_into_its_default_folder(with_halving, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "xufm/ufm", "--over", "start=2,4", "--over", "steps=[1, 2]"]
    assert ran(*words) == 0
    out, err = capsys.readouterr()
    assert (err, out.count("held 1/2")) == ("", 4)
    folder = tmp_path / "runs" / "xufm-ufm-small-sweep"
    assert f"Report: {(folder / 'report.html').as_uri()}" in out
    assert (folder / "start=4.0,steps=2" / "report.html").exists()
    assert ran(*words) == 2
    assert "pass --resume" in capsys.readouterr().err
    assert ran(*words, "--resume") == 0


def test_every_entry_of_a_list_meets_every_point_of_the_grid(with_halving, capsys, tmp_path):
    (tmp_path / "list.yaml").write_text("- {start: 2}\n- {}\n")
    words = ["--list", tmp_path / "list.yaml", "--over", "steps=1,2", "--set", "start=3"]
    assert ran("sweep", "xufm/ufm", *words, "--out", tmp_path / "out") == 0
    names = {place.name for place in (tmp_path / "out").iterdir() if place.is_dir()}
    assert names == {f"start={start},steps={n}" for start in ("2.0", "3.0") for n in (1, 2)}


def test_a_run_that_fails_exits_1_and_is_named(with_halving, capsys, tmp_path, monkeypatch):
    def refuse(order, on_row) -> str:
        return "expected data, found none" if "2.0" in order.name else ""

    monkeypatch.setattr("ncscope_lab.sweeps.requests.run_request", refuse)
    assert ran("sweep", "xufm/ufm", "--over", "start=2,4", "--out", tmp_path) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert "start=2.0 failed: expected data, found none" in out
    assert "Report: " in out


def test_a_field_of_both_the_list_and_the_grid_is_refused(capsys, tmp_path):
    (tmp_path / "list.yaml").write_text("- {first_steps: 9}\n- {seed: 3}\n")
    words = ["--list", tmp_path / "list.yaml", "--over", "seed=1,2", "--out", tmp_path / "out"]
    assert ran("sweep", "xufm/ufm", *words) == 2
    assert "expected seed after --over or in " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_list_of_settings_is_refused(capsys, tmp_path):
    (tmp_path / "list.yaml").write_text("seed: 3\n")
    assert ran("sweep", "xufm/ufm", "--list", tmp_path / "list.yaml") == 2
    assert "found something else; write a line such as - {seed: 0" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[" * 600, "- {seed: 2001-99-99}", "- {seed: !!int ''}"])
def test_a_file_that_cannot_be_parsed_is_one_line(text, capsys, tmp_path):
    (tmp_path / "list.yaml").write_text(text)
    assert ran("sweep", "xufm/ufm", "--list", tmp_path / "list.yaml") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "expected a list of settings in " in err


def test_every_option_reaches_the_sweep(monkeypatch, tmp_path):
    seen = {}

    def caught(name, runs, **given):
        seen.update(given, runs=runs)
        raise InputError(expected="nothing", found="enough", fix="stop")

    monkeypatch.setattr("ncscope_lab.sweeps.sweep.sweep", caught)
    words = "--data d --download --accelerator cpu --workers 4 --cluster auto --scale paper"
    more = "--over seed=0,1 --set every=1e-3 --resume --out o"
    assert ran("sweep", "pfc/training", *words.split(), *more.split()) == 2
    assert seen["resources"] == Resources(
        data=Path("d"), download=True, accelerator="cpu", workers=4
    )
    assert (seen["cluster"], seen["scale"], seen["resume"]) == ("auto", "paper", True)
    assert seen["runs"] == [{"seed": 0}, {"seed": 1}]
    assert seen["settings"] == {"every": "1e-3"}
    assert seen["out"] == Path("o")


def test_an_interruption_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ncscope_lab.sweeps.sweep.sweep", interrupted)
    assert ran("sweep", "xufm/ufm", "--over", "seed=1", "--out", "a") == 130
    assert capsys.readouterr().err.strip().endswith("with --resume to go on with a")


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")  # most of the time, otherwise
def test_the_sweep_of_the_documentation_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "experiments" / "sweeps.md"
    (command,) = re.findall(r"^ncscope (sweep .*)$", page.read_text(), re.M)
    assert ran(*command.split()) == 0
    assert (tmp_path / "seeds" / "seed=0,steps=500" / "metrics.jsonl").exists()
    assert len(list((tmp_path / "seeds").glob("*/metrics.jsonl"))) == 4
