"""What stands in names of files, entries, layers and runs reaches the terminal as text only."""

import os
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.table import Table
from rich.text import Text

import ncscope
from ncscope.cli import main, terminal
from ncscope.cli.terminal import Terminal
from ncscope_lab.catalogue import EXPERIMENTS
from ncscope_lab.cli import results
from ncscope_lab.sweeps.requests import RunProgress
from tests.test_files import at_most

Run = Callable[..., tuple[int, str, str]]

RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
ODD = "\x1b[31m\u202e[/] [red]:warning:\udcff"
SHOWN = "\\x1b[31m\\u202e[/] [red]:warning:\\udcff"
FILE, FILE_SHOWN = ODD.replace("/", ""), SHOWN.replace("/", "")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in a scratch folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) % 3
    np.savez("f.npz", features=np.random.default_rng(0).normal(size=(60, 5)), labels=labels)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(words)
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


def test_names_in_errors_are_shown(run: Run) -> None:
    np.savez("entries.npz", **{f"{FILE[:-1]}\n": np.ones(2)})
    Path(f"{FILE}.npz").write_bytes(b"damaged")
    cases = {
        (f"gone{ODD}.npz",): f"files that match gone{SHOWN}.npz",
        (f"{FILE}.npz",): f"a damaged file ({FILE_SHOWN}.npz)",
        ("entries.npz",): "found entries " + FILE_SHOWN.removesuffix("\\udcff"),
        ("f.npz", "--prior", ODD): "is not one of",
        ("f.npz", "--save", f"{ODD}/r.html"): f"a folder {SHOWN} to write in",
        ("f.npz", f"--{ODD}"): "No such option",
        ("f.npz", f"two\nlines{ODD}"): f"files that match two lines{SHOWN}",
    }
    for words, said in cases.items():
        for more in ((), ("--debug",)):
            code, out, err = run("measure", *words, *more)
            assert (code, out) == (2, ""), words
            assert said in err, words
            assert not RAW.search(err), words
            assert more or err.count("\n") == 1, words


@pytest.mark.slow
def test_a_report_under_any_name(run: Run) -> None:
    for suffix in (".html", ".json", ".svg"):
        code, out, err = run(
            "measure", "f.npz", "--groups", "pfc", "--save", f"{ODD[:4]}\udcff{suffix}"
        )
        assert (code, err) == (0, "")
        assert out.splitlines()[-1] == f"Written: \\x1b[31\\udcff{suffix}"
        assert not RAW.search(out)
        assert Path(os.fsdecode(b"\x1b[31\xff" + suffix.encode())).stat().st_size > 100
    page = Path(os.fsdecode(b"\x1b[31\xff.html")).read_text(encoding="utf-8")
    assert "<title>\\x1b[31\\udcff" in page


@pytest.mark.slow
def test_a_full_disk_names_the_file(run: Run) -> None:
    for name in ("r.html", "r.json", "r.png"):
        with at_most(100):
            code, out, err = run("measure", "f.npz", "--groups", "pfc", "--save", name)
        assert (code, out) == (2, "")
        said = f"error: expected to write {name}, found File too large; free space, or choose"
        assert err.startswith(said)
        assert err.count("\n") == 1
    assert [file.name for file in Path().iterdir()] == ["f.npz"]


def test_only_files_are_written(run: Run) -> None:
    Path("there.html").mkdir()
    os.mkfifo("pipe.html")
    Path("runs").mkdir()
    Path("runs", "r").mkdir()
    for name, found in {"there.html": "a folder", "pipe.html": "a device"}.items():
        said = f"expected a file {name} to write, found {found}; choose another name"
        code, out, err = run("measure", "gone.npz", "--save", name)  # before anything is read
        assert (code, out, err) == (2, "", f"error: {said}\n")
        code, out, err = run("report", "runs/r", "--save", name)
        assert (code, out, err) == (2, "", f"error: {said}\n")
    for name in ("pipe.html", "f.npz/under.html", "f.npz/under"):
        code, out, err = run("transfer", "--models", "f.npz", "--save", name)
        assert (code, out) == (2, "")
        assert err.startswith("error: expected ")
        assert name.removesuffix("/under.html") in err
        assert "Errno" not in err
    assert Path("pipe.html").is_fifo()


def render_text(what: object, width: int = 60) -> str:
    out = StringIO()
    Terminal(file=out, width=width).print(what)
    return out.getvalue()


def test_all_that_is_printed_passes_one_place() -> None:
    table = Table("name", title=ODD, caption=ODD)
    table.add_row(ODD)
    table.add_row(Text.assemble("in ", (ODD, "red"), " styles"))
    for what in (ODD, Text(ODD), table):
        text = render_text(what)
        assert SHOWN.replace(" ", "") in re.sub(r"\s+", "", text)
        assert not RAW.search(text)
    assert render_text("two\nlines") == "two\nlines\n"


def live(monkeypatch: pytest.MonkeyPatch, module: object) -> StringIO:
    """A terminal in place of standard error, for what a module draws there."""
    out = StringIO()

    def terminal(**_: object) -> Terminal:
        return Terminal(file=out, width=200, force_terminal=True, color_system=None)

    monkeypatch.setattr(module, "Terminal", terminal)
    return out


def test_live_bars_show_names(monkeypatch: pytest.MonkeyPatch) -> None:
    out = live(monkeypatch, terminal)
    with terminal.row_bar() as on_row:
        on_row(ODD, 1, 2)
    over_sweep = live(monkeypatch, results)
    with results.run_bars() as on_change:
        on_change({ODD: RunProgress("running", ODD, 1, 2)})
    for written in (out, over_sweep):
        assert SHOWN in written.getvalue()
        assert ODD[:6] not in written.getvalue()


def test_progress_in_a_pipe_is_a_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.row_bar(pause=0) as on_step:
        for done, part in enumerate(("a", "a", "b", ODD)):
            on_step(part, done, 4)
    written = capsys.readouterr().err.splitlines()
    assert written == ["  0% a", " 50% b", f" 75% {SHOWN}"]
    with terminal.row_bar() as on_step:  # what is quick says nothing
        on_step("a", 0, 4)
    assert capsys.readouterr().err == ""


def test_layers_of_any_name_are_measured() -> None:
    names = [ODD, "x" * 300, "a/b", "a\0b", "last"]
    torch.manual_seed(0)
    model = torch.nn.Sequential()
    for name in names:
        model.add_module(name, torch.nn.Linear(6, 6))
    model.add_module("head", torch.nn.Linear(6, 3))
    data = torch.utils.data.TensorDataset(torch.randn(30, 6), torch.arange(30) % 3)
    loader = torch.utils.data.DataLoader(data, 10)
    spilled = ncscope.measure_model(model, loader, layers=["*"], memory=0, progress=False)
    kept = ncscope.measure_model(model, loader, layers=["*"], progress=False)
    assert list(spilled.layers) == names
    for name, own in kept.layers.items():
        assert dict(spilled.layers[name]) == pytest.approx(dict(own), nan_ok=True)
    with pytest.raises(ncscope.InputError) as refused:
        ncscope.measure_model(model, loader, layers=["none"], progress=False)
    assert not RAW.search(str(refused.value))


def test_names_of_experiments_are_plain() -> None:
    assert all(re.fullmatch(r"([a-z-]+/)?[a-z-]+", name) for name in EXPERIMENTS)
