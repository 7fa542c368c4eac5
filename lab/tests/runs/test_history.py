"""The measurements of a run folder: lost, changed, damaged, gone on with; folders of before."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab.tests import measuring
from lab.tests.tiny.halving import list_alone

from ncscope import History
from ncscope.errors import InputError
from ncscope_lab import execution
from ncscope_lab.execution import load_run

FILES = ("config.yaml", "metrics.jsonl", "history.json", "finished.json", "claims.json",
         "report.html")  # fmt: skip
EVENTS = 24


@pytest.fixture(autouse=True)
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    list_alone(monkeypatch, measuring.EXPERIMENT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing befell."""
    with pytest.MonkeyPatch.context() as patch:
        list_alone(patch, measuring.EXPERIMENT)
        folder = tmp_path_factory.mktemp("whole") / "run"
        execution.run("measuring", out=folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def assert_same_files(folder: Path, whole: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def test_the_history_is_that_of_the_run_and_its_page_shows_it(whole: Path) -> None:
    run = load_run(whole)
    assert [each.run for each in run.history] == ["upper"] * 4 + ["lower"] * 4
    assert repr(History.load(whole).measurements) == repr(run.history.measurements)
    assert "Collapse over training" in (whole / "report.html").read_text()


@pytest.mark.parametrize("saves", [0.0, 60.0])
@pytest.mark.parametrize(
    "event",
    [0, 12, 24, *(pytest.param(event, marks=pytest.mark.slow) for event in (1, 4, 11, 13, 20, 23))],
)
def test_a_run_stopped_anywhere_resumes_to_the_same_history(
    event: int, saves: float, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncscope_lab.execution._SECONDS_BETWEEN_SAVES", saves)

    def stop(part: str, done: int, total: int) -> None:
        assert total == EVENTS
        if done > event:
            raise KeyboardInterrupt

    if event < EVENTS:
        with pytest.raises(KeyboardInterrupt):
            execution.run("measuring", out=tmp_path, on_row=stop)
        found = load_run(tmp_path)
        # The second part's measurements are kept when it has ended.
        assert {each.run for each in found.history} == (
            {"upper"} if event >= EVENTS // 2 else set()
        )
    else:
        execution.run("measuring", out=tmp_path)
    execution.run("measuring", out=tmp_path, resume=True)
    assert_same_files(tmp_path, whole)


def edited(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def edit(file: Path) -> None:
        file.write_text("\n".join(change(file.read_text().split("\n"))))

    return edit


LOST = {
    "the file": lambda file: file.unlink(),
    "a measurement": edited(lambda lines: [lines[0], *lines[2:]]),
    "an order": edited(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]]),
    "a digit": edited(lambda lines: [lines[0], lines[1].replace("8.0", "9.0", 1), *lines[2:]]),
    "a part": edited(lambda lines: [lines[0], lines[1].replace("upper", "lower"), *lines[2:]]),
    "a note": edited(lambda lines: [lines[0], lines[1].replace("undefined", "u"), *lines[2:]]),
    "an infinity": edited(lambda lines: [lines[0], lines[1].replace('"inf"', "1.0"), *lines[2:]]),
}


@pytest.mark.parametrize("name", LOST)
def test_measurements_that_were_lost_or_changed_are_made_again(
    name: str, folder: Path, whole: Path
) -> None:
    before = (folder / "history.json").read_bytes()
    LOST[name](folder / "history.json")
    assert (
        not (folder / "history.json").exists() or before != (folder / "history.json").read_bytes()
    )
    said = (
        r"of part '(upper|lower)' in .*, found that history\.json was changed or lost; run .* with"
    )
    with pytest.raises(InputError, match=said) as shown:
        load_run(folder)
    assert "\n" not in str(shown.value)
    execution.run("measuring", out=folder, resume=True)
    assert_same_files(folder, whole)


def damaged(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        history = json.loads(content)
        change(history)
        return json.dumps(history).encode()

    return damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {  # more: tests/measurement/test_history_file.py
    "nothing left": lambda content: b"",
    "half left": lambda content: content[: len(content) // 2],
    "not UTF-8": lambda content: b"\xff\xfe" + content,
    "null": lambda content: b"null",
    "a list": lambda content: b"[]",
    "an empty mapping": lambda content: b"{}",
    "deep nesting": lambda content: b"[" * 600 + b"]" * 600,
    "a later version": damaged(lambda history: history.update(schema_version=99)),
    "no measurements": damaged(lambda history: history.update(measurements=3)),
    "a spectrum that is none": damaged(
        lambda history: history["measurements"][0]["probe"]["layers"][0].update(spectra=3)
    ),
}


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_history_is_one_sentence_and_made_again_once_removed(
    name: str, folder: Path, whole: Path
) -> None:
    file = folder / "history.json"
    file.write_bytes(DAMAGES[name](file.read_bytes()))
    for act in (load_run, lambda path: execution.run("measuring", out=path, resume=True)):
        said = r"found .*history\.json, damaged; restore it, or remove it and run .* with --resume"
        with pytest.raises(InputError, match=said) as shown:
            act(folder)
        assert "\n" not in str(shown.value)
    file.unlink()
    execution.run("measuring", out=folder, resume=True)
    assert_same_files(folder, whole)


def test_a_run_made_anew_leaves_no_measurement_of_before(folder: Path) -> None:
    """Its record of finished parts is lost, and it is stopped in its first part."""
    (folder / "finished.json").unlink()

    def stop(part: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execution.run("measuring", out=folder, resume=True, on_row=stop)
    found = load_run(folder)
    assert (found.ended, len(found.history), list(found.rows)) == (False, 0, [])
