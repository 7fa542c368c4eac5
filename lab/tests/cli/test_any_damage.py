"""A run with a damaged file, any file in any way, is mended or refused; no claim changes."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab.tests.tiny import linear
from lab.tests.tiny.halving import list_alone

from ncscope.api.comparison import read_sources
from ncscope.cli import main
from ncscope_lab import execution

pytestmark = pytest.mark.slow


def lines_of(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True) or [b""]


def without_a_line(content: bytes, chosen: random.Random) -> bytes:
    lines = lines_of(content)
    del lines[chosen.randrange(len(lines))]
    return b"".join(lines)


def with_a_line_twice(content: bytes, chosen: random.Random) -> bytes:
    lines = lines_of(content)
    place = chosen.randrange(len(lines))
    return b"".join([*lines[: place + 1], *lines[place:]])


def with_a_byte_changed(content: bytes, chosen: random.Random) -> bytes:
    changed = bytearray(content)
    changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {  # other content: test_damaged_runs
    "nothing left": lambda content, chosen: b"",
    "half left": lambda content, chosen: content[: len(content) // 2],
    "a line lost": without_a_line,
    "a line twice": with_a_line_twice,
    "a byte changed": with_a_byte_changed,
    "another byte changed": with_a_byte_changed,
}


def damage_files(folder: Path, pattern: str) -> Iterator[str]:
    """Damage every file that matches, in every way, one at a time."""
    files = [file for file in sorted(folder.rglob(pattern)) if file.is_file()]
    assert files
    chosen = random.Random(0)
    for file in files:
        content, other = (
            file.read_bytes(),
            chosen.choice([f for f in files_of(folder) if f != file]),
        )
        for name, damage in DAMAGES.items():
            file.write_bytes(damage(content, chosen))
            yield f"{file.relative_to(folder)}: {name}"
        file.unlink()
        yield f"{file.relative_to(folder)}: deleted"
        exchanged = other.read_bytes()
        file.write_bytes(exchanged)
        other.write_bytes(content)
        yield f"{file.relative_to(folder)}: exchanged with {other.relative_to(folder)}"
        file.write_bytes(content)
        other.write_bytes(exchanged)


def files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


@pytest.fixture(autouse=True)
def catalogue_of_one(monkeypatch):
    list_alone(monkeypatch, linear.EXPERIMENT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing befell, and the page of its report."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        list_alone(patch, linear.EXPERIMENT)
        execution.run("tiny", out=folder / "run")
        read_sources([folder / "run"], [execution.page_sections]).save(folder / "page.html")
    return folder


def run_command(capsys, *words: object) -> bool:
    """Return whether a command was done; if not, it must have said why in one line."""
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    err = capsys.readouterr().err
    assert (stopped.value.code, err.count("\n")) in ((0, 0), (2, 1)), err
    return stopped.value.code == 0


def assert_same(folder: Path, whole: Path) -> None:
    for file in files_of(whole):
        if "checkpoints" not in file.parts:
            assert (folder / file.relative_to(whole)).read_bytes() == file.read_bytes(), file


READ = ("config.yaml", "metrics.jsonl", "finished.json")
UNREAD = ("claims.json", "report.html", "norms.*", "checkpoint.pt", "events.*")
"""Files of a finished run that nothing reads, and a resumed run writes again if it needs them."""


@pytest.mark.parametrize("pattern", [*READ, *UNREAD])
def test_a_finished_run_is_mended_or_refused(pattern, whole, tmp_path, capsys):
    mended = 0
    pristine = tmp_path / "damaged"
    shutil.copytree(whole / "run", pristine)
    for name in damage_files(pristine, pattern):
        folder, page = tmp_path / "run", tmp_path / "page.html"
        shutil.copytree(pristine, folder)
        shown = run_command(capsys, "report", folder, "--save", page)
        assert not shown or page.read_bytes() == (whole / "page.html").read_bytes(), name
        if run_command(capsys, "run", "tiny", "--out", folder, "--resume"):
            assert_same(folder, whole / "run")
            mended += 1
            assert run_command(capsys, "report", folder, "--save", page), name
            assert page.read_bytes() == (whole / "page.html").read_bytes(), name
        else:
            assert pattern in READ or "exchanged" in name, name
        shutil.rmtree(folder)
    assert mended or pattern == "config.yaml"


@pytest.mark.parametrize("pattern", [*READ, "checkpoint.pt"])
def test_a_run_that_was_stopped_is_mended_or_refused(pattern, whole, tmp_path, capsys):
    """It stands in the middle of its second part."""

    def stop(part: str, done: int, total: int) -> None:
        if done == total - 1:
            raise KeyboardInterrupt

    pristine, mended = tmp_path / "damaged", 0
    with pytest.raises(KeyboardInterrupt):
        execution.run("tiny", out=pristine, on_row=stop)
    for name in damage_files(pristine, pattern):
        folder, page = tmp_path / "run", tmp_path / "page.html"
        shutil.copytree(pristine, folder)
        if run_command(capsys, "report", folder, "--save", page):
            assert "This run has not ended" in page.read_text(), name
        if run_command(capsys, "run", "tiny", "--out", folder, "--resume"):
            assert_same(folder, whole / "run")
            mended += 1
        shutil.rmtree(folder)
    assert mended or pattern == "config.yaml"
