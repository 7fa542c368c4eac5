"""What holds for every command: help with examples, completion, exit codes, one-line errors."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import import_module
from importlib.metadata import requires, version
from pathlib import Path

import pytest
import typer
from lab.tests.cli.commands import NCSCOPE, start_run
from lab.tests.cli.commands import ran as run

from ncscope.cli.app import app
from ncscope.data.catalogue import CATALOGUE
from ncscope.errors import LABORATORY, TARGETS, distribution, how_to_install
from ncscope_lab.theory.statement import Result
from tests.interrupting import heeds_control_c


def commands() -> dict[str, object]:
    """Every command but the root, by the words that call it."""
    import_module("ncscope.cli.running")  # adds all commands
    found = {}
    groups = [("", typer.main.get_command(app))]
    for name, group in groups:
        context = typer.Context(group)
        for child in group.list_commands(context):
            command, words = group.get_command(context, child), f"{name} {child}".strip()
            found[words] = command
            if hasattr(command, "list_commands"):
                groups.append((words, command))
    return found


def test_every_command_says_what_it_does_and_shows_an_example(capsys) -> None:
    found = commands()
    assert {"demo", "measure", "theory", "run", "list", "sweep", "zoo", "doctor"} <= set(found)
    for words in ["", *found]:
        assert run(*words.split(), "--help") == 0
        text = " ".join(capsys.readouterr().out.split())
        assert f"Example: ncscope {words}" in text, words
    for words, command in found.items():
        for option in command.params:
            assert getattr(option, "help", None), (words, option.name)


def test_the_list_of_commands_fits_the_screen(capsys) -> None:
    assert run("--help") == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def question_of_the_shell(*words: str) -> dict[str, str]:
    return {
        "_NCSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("run pfc/", ["pfc/mufm", "pfc/training", "pfc/demo"]),
        ("run a", ["all"]),
        ("sweep tran", ["transfer/zoo"]),
        ("list cen", ["central-path"]),
        ("r", ["report", "run"]),
        ("measure-model --spl", ["--split"]),
    ],
)
def test_the_shell_completes_experiments_commands_models_and_options(
    words: str, known: list[str], monkeypatch, capsys
) -> None:
    for name, value in question_of_the_shell("ncscope", *words.split()).items():
        monkeypatch.setenv(name, value)
    run()
    assert capsys.readouterr().out.split() == known


@pytest.mark.slow
def test_the_installed_command_completes() -> None:
    asked = question_of_the_shell("ncscope", "run", "pfc/")
    done = subprocess.run(
        [NCSCOPE], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["pfc/mufm", "pfc/training", "pfc/demo"]


def test_doctor_finds_what_is_there_and_says_how_to_get_the_rest(capsys, tmp_path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    assert run("doctor", "--data", tmp_path, "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["torch"]["state"] == version("torch")
    assert found["cifar10"] == {
        "part": "data sets",
        "name": "cifar10",
        "state": str(tmp_path / "cifar-10-batches-py"),
        "fix": "",
    }
    assert found["svhn"]["fix"] == "--download"
    stored = {name for name, each in found.items() if each["part"] == "data sets"}
    made = {name for name in CATALOGUE if name.endswith("digits") or "digits-" in name}
    made.add("mnist-5k")  # a package ships them
    kinds = ("patterns", "gratings", "transfer-")
    made |= {name for name in CATALOGUE if any(kind in name for kind in kinds)}
    assert stored == set(CATALOGUE) - made
    assert run("doctor", "--data", tmp_path) == 0
    assert "data sets" in capsys.readouterr().out


def test_a_library_that_is_missing_names_its_extra(monkeypatch, capsys) -> None:
    from importlib.metadata import PackageNotFoundError

    from ncscope.api import doctor

    def none_of_timm(name: str) -> str:
        if name == "timm":
            raise PackageNotFoundError
        return "1.2.3"

    monkeypatch.setattr(doctor, "version", none_of_timm)
    assert run("doctor", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["timm"]["state"] == "missing"
    assert found["timm"]["fix"] == 'pip install ".[models]" in a checkout of ncscope'


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
        MemoryError(),
    ],
)
def test_too_little_memory_is_called_so(error: Exception, monkeypatch, capsys) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr("ncscope.cli.running.app", fail)
    assert run("doctor") == 2
    err = capsys.readouterr().err
    assert err.startswith("error: expected memory to load and to measure, found too little")
    assert "ulimit -v" in err
    assert err.count("\n") == 1


def test_a_command_that_lacks_a_library_says_how_to_get_it(monkeypatch, capsys) -> None:
    needed = [*(requires("ncscope") or []), *(requires("ncscope-lab") or [])]
    for library in TARGETS:
        assert any(each.startswith(distribution(library)) for each in needed), library
    for library in (*TARGETS, "ours"):
        monkeypatch.setitem(sys.modules, library, None)
        monkeypatch.setattr(
            "ncscope_lab.theory.table.check_theory",
            lambda seed, only, library=library: import_module(f"{library}.part"),
        )
        code, (out, err) = run("theory"), capsys.readouterr()
        target = TARGETS.get(library, "")
        # A verb of the laboratory needs all of it.
        target = LABORATORY if target == ".[models]" else target
        expected = (
            f"expected the library {distribution(library)}, found that it is not installed; "
            f"{how_to_install(target)}\n"
        )
        if library == "ours":
            assert code == 1
            assert err.endswith("run again with --debug for the traceback\n")
        else:
            assert (code, out, err) == (2, "", f"error: {expected}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run xufm/ufm --out a", "with --resume to go on with a"),
        ("run xufm/ufm", f"with --resume to go on with {Path('runs', 'xufm-ufm-small')}"),
        ("run ufm --json", "error: interrupted\n"),
    ],
)
def test_an_interruption_says_how_to_go_on(words, said, monkeypatch, capsys) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ncscope_lab.execution.run", interrupt)
    assert run(*words.split()) == 130
    err = capsys.readouterr().err
    assert err.startswith("error: interrupted")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on_as_it_says(tmp_path) -> None:
    first = start_run(tmp_path / "run", preexec_fn=heeds_control_c)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate()
    assert first.returncode == 130
    assert err.strip().endswith(f"with --resume to go on with {tmp_path / 'run'}")
    second = start_run(tmp_path / "run", "--resume")
    second.communicate()
    assert second.returncode == 0
    assert (tmp_path / "run" / "report.html").exists()


def test_a_statement_that_fails_and_a_crash_both_exit_1_but_only_a_crash_says_so(
    monkeypatch, capsys
) -> None:
    failing = Result("a/b", "it holds", "A 1", "statement", 3, 1.0, 1e-9, "fails", seed=7)
    monkeypatch.setattr("ncscope_lab.theory.table.check_theory", lambda seed, only: [failing])
    assert run("theory", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["verdict"] == "fails"
    assert "error" not in err

    def broken(seed: int | None, only: str | None) -> None:
        raise ZeroDivisionError("by zero")

    line = broken.__code__.co_firstlineno + 1
    monkeypatch.setattr("ncscope_lab.theory.table.check_theory", broken)
    assert run("theory", "--json") == 1
    out, err = capsys.readouterr()
    # The line of code that is not ours says where to look.
    place = f"(test_running.py, line {line})"
    expected = (
        f"error: ZeroDivisionError: by zero {place}; run again with --debug for the traceback\n"
    )
    assert (out, err) == ("", expected)
    monkeypatch.setattr("ncscope_lab.theory.table.check_theory", lambda seed, only: [None])
    assert run("theory", "--json") == 1
    # The check of signatures is this suite's, and stands between our functions.
    assert ".py, line" not in re.sub(r"signatures\.py, line", "", capsys.readouterr().err)


def test_usage_errors_name_the_command(capsys) -> None:
    assert run("measure", "--no-such") == 2
    err = capsys.readouterr().err
    assert err == "error: No such option: --no-such. See ncscope measure --help.\n"
    for option, meant in (("--out", "--save"), ("--metrics", "--groups")):
        assert run("measure", "x.npz", option, "y") == 2
        expected = f"error: No such option: {option}; {meant} is it here. See ncscope measure"
        assert capsys.readouterr().err.startswith(expected)
    assert run("run", "mse/collapse", "--scale", "large") == 2
    err = capsys.readouterr().err
    assert err.startswith("error: Invalid value for '--scale': 'large' is not one of 'paper', ")
    assert run("run") == 2


@pytest.mark.parametrize("words", [["run", "info/grokkin"], ["sweep", "info/grokkin"]])
def test_a_name_that_does_not_exist_is_refused_before_torch_is_loaded(words: list[str]) -> None:
    code = "import sys; from ncscope.cli import main\ntry: main()\nfinally: "
    code += "assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "the nearest is info/grokking" in done.stderr
