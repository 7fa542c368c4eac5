"""Run folders that lost or changed something: made whole again, or refused in one sentence."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from lab.tests.tiny import halving, linear
from lab.tests.tiny.halving import list_alone

from ncscope.api.comparison import read_sources
from ncscope.errors import InputError
from ncscope_lab import execution
from ncscope_lab.execution import load_run, page_sections
from ncscope_lab.experiment import Part
from ncscope_lab.observations import Heartbeat
from ncscope_lab.sweeps.sweep import sweep

FILES = ("config.yaml", "metrics.jsonl", "finished.json", "claims.json", "report.html")
PLAIN = halving.PLAIN


@pytest.fixture(autouse=True)
def catalogue_of_one(monkeypatch):
    """The tests' own experiment stands in the catalogue, without its figures: they take long."""
    list_alone(monkeypatch, PLAIN)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing befell."""
    with pytest.MonkeyPatch.context() as patch:
        list_alone(patch, PLAIN)
        folder = tmp_path_factory.mktemp("whole") / "run"
        execution.run("halving", out=folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of that folder, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def assert_same_files(folder: Path, whole: Path) -> None:
    for name in FILES:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def change_lines(file: Path, change) -> None:
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(change(lines)))


LINES = {
    "the first line lost": lambda lines: lines[1:],
    "the last line lost": lambda lines: lines[:-1],
    "lines from the middle lost": lambda lines: [*lines[:1], *lines[3:]],
    "a line twice": lambda lines: [lines[0], *lines],
    "two lines swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a digit changed": lambda lines: [lines[0].replace("8.0", "9.0"), *lines[1:]],
    "a part renamed": lambda lines: [lines[0].replace("upper", "uppes"), *lines[1:]],
    "a line of the other part": lambda lines: [
        *lines[:-1],
        lines[-1].replace("lower", "upper"),
    ],
}


@pytest.mark.parametrize("name", LINES)
def test_rows_that_are_not_those_of_a_finished_part_are_made_again(name, folder, whole):
    change_lines(folder / "metrics.jsonl", LINES[name])
    said = (
        r"the rows of part '(upper|lower)'.* as the run wrote them, found .*metrics\.jsonl.*; "
        r"run .* with --resume"
    )
    with pytest.raises(InputError, match=said):
        load_run(folder)
    execution.run("halving", out=folder, resume=True)
    assert_same_files(folder, whole)


@pytest.mark.parametrize("name", [*FILES[:3], "history.json"])
@pytest.mark.parametrize("device", ["", "/dev/zero"])
def test_a_pipe_or_a_device_in_place_of_a_file_is_not_opened(name, device, folder):
    file = folder / name
    file.unlink(missing_ok=True)
    if device:
        file.symlink_to(device)
    else:
        os.mkfifo(file)
    said = "a device, " if device else "a pipe, "
    with pytest.raises(InputError, match=f"found {said}.*{name}; restore it"):
        read_sources([folder], [page_sections])


@pytest.mark.parametrize("value", ["9" * 400, "-" + "9" * 400])
def test_a_number_beyond_the_range_is_refused(value, folder):
    change_lines(
        folder / "metrics.jsonl", lambda lines: [lines[0].replace("8.0", value), *lines[1:]]
    )
    with pytest.raises(InputError, match=r"metrics\.jsonl, damaged"):
        load_run(folder)


def test_a_name_twice_in_a_row_is_refused(folder):
    change_lines(folder / "metrics.jsonl", lambda lines: ['{"part": "lower", ' + lines[0][1:]])
    with pytest.raises(InputError, match=r"metrics\.jsonl, damaged"):
        load_run(folder)


def test_rows_of_whole_parts_in_another_order_are_shown_in_order(folder, whole):
    change_lines(folder / "metrics.jsonl", lambda lines: [*lines[4:], *lines[:4]])
    assert load_run(folder).claims == load_run(whole).claims
    assert repr(list(load_run(folder).rows)) == repr(list(load_run(whole).rows))
    execution.run("halving", out=folder, resume=True)
    assert_same_files(folder, whole)


def test_a_part_that_is_run_again_leaves_the_rows_of_the_others(folder, whole, monkeypatch):
    """The list of finished parts lost the first; the run that mends this is stopped."""
    file = folder / "finished.json"
    finished = json.loads(file.read_text())
    del finished["parts"]["upper"]
    file.write_text(json.dumps(finished))
    with pytest.raises(InputError, match=r"'upper' among the finished parts.* with --resume"):
        load_run(folder)
    monkeypatch.setattr("ncscope_lab.execution._SECONDS_BETWEEN_SAVES", 0.0)

    def stop(part, done, total):
        if part == "upper" and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execution.run("halving", out=folder, resume=True, on_row=stop)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["part"] for row in rows] == ["upper"] * 2 + ["lower"] * 4
    found = load_run(folder)
    assert (found.ended, found.claims) == (False, [])

    def refuse(config):
        def run(resources):
            raise AssertionError
            yield Heartbeat()

        first, second = halving.parts(config)
        return [first, Part(second.name, second.yields, run)]

    list_alone(monkeypatch, replace(PLAIN, parts=refuse))
    execution.run("halving", out=folder, resume=True)
    assert_same_files(folder, whole)


def test_a_part_without_rows_is_finished_like_any_other(tmp_path, monkeypatch):
    made = []

    def empty(config):
        def run(resources):
            made.append(1)
            yield Heartbeat()

        return [Part("silent", 1, run), *halving.parts(config)]

    list_alone(monkeypatch, replace(PLAIN, parts=empty))
    for resume in (False, True):
        execution.run("halving", out=tmp_path, resume=resume)
    assert made == [1]
    assert load_run(tmp_path).ended


@pytest.mark.parametrize("again", [{"steps": 3}, {"steps": 2}])
def test_settings_that_were_changed_in_the_folder_are_seen(again, folder):
    """Also by a resumed run that is given the changed ones, whose rows these are not."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["settings"]["steps"] = 2
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    said = r"config\.yaml as the run wrote it, found .*; restore it"
    with pytest.raises(InputError, match=said):
        load_run(folder)
    with pytest.raises(InputError, match=said):
        execution.run("halving", out=folder, resume=True, settings=again)


def test_rows_without_their_settings_are_not_taken_for_those_of_others(folder):
    (folder / "config.yaml").unlink()
    with pytest.raises(InputError, match=r"config\.yaml beside .*finished\.json, found none; rest"):
        execution.run("halving", out=folder, resume=True, settings={"start": 2.0})


def test_checkpoints_of_settings_that_were_changed_are_not_gone_on_with(tmp_path, monkeypatch):
    """The folder's settings were changed, and nothing but the checkpoints is left to show it."""
    list_alone(monkeypatch, linear.EXPERIMENT)
    execution.run("tiny", out=tmp_path, settings={"rates": [0.1]})
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    config["settings"]["epochs"] = 9
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (tmp_path / "finished.json").unlink()
    with pytest.raises(InputError, match=r"found that of .* under other settings, in .*; remove"):
        execution.run("tiny", out=tmp_path, settings={"rates": [0.1], "epochs": 9}, resume=True)


def test_a_run_without_a_list_of_finished_parts_is_made_again(folder, whole):
    (folder / "finished.json").unlink()
    with pytest.raises(InputError, match=r"finished\.json.*, found none; run .* with --resume"):
        load_run(folder)
    execution.run("halving", out=folder, resume=True)
    assert_same_files(folder, whole)


TEXTS = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "an empty mapping": b"{}",
    "a number": b"3",
    "a huge number": b"1" * 5000,
    "deep nesting": b"[" * 600,
    "deep nesting that ends": b"[" * 600 + b"]" * 600,
    "deep nesting of mappings": b'{"a": ' * 1500 + b"1" + b"}" * 1500,
    "not UTF-8": b"\xff\xfe{}",
    "NUL bytes": b"\0" * 10,
    "keys that are no text": b"{1: 2, null: 3, [a]: 4}",
    "a date that is none": b"{settings: 2001-99-99}",
    "a tag without a value": b"settings: !!int ''",
    "another mapping": b'{"experiment": [], "scale": 1, "settings": 3, "config": 1, "parts": [1]}',
    "wrong types": b'{"experiment": "a", "scale": "small", "settings": {"steps": {"a": []}}}',
    "unknown settings": b'{"experiment": "a", "scale": "small", "settings": {"1": 2}}',
    "no experiment": b"settings: {}",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "finished.json"])
def test_a_file_of_any_content_is_one_sentence_or_made_again(name, text, folder, whole, tmp_path):
    for known in (True, False):
        (folder / name).write_bytes(TEXTS[text])
        if not known:
            (folder / "finished.json").unlink()
        with pytest.raises(InputError) as shown:
            read_sources([folder], [page_sections])
        said = [str(shown.value)]
        try:
            execution.run("halving", out=folder, resume=True)
        except InputError as error:
            said.append(str(error))
        else:
            assert_same_files(folder, whole)
        assert all(len(each) < 1000 and "\n" not in each for each in said)


NO_ROWS = ("null", "[]", "3", '"a"', "{}", '{"part": 3}', '{"part": null}')
NO_VALUES = ('{"part": "upper", "a": [1]}', '{"part": "upper", "a": {}}')


@pytest.mark.parametrize("line", [*NO_ROWS, *NO_VALUES])
def test_lines_that_are_no_rows_are_one_sentence(line, folder):
    (folder / "metrics.jsonl").write_text(f"{line}\n")
    for act in (load_run, lambda path: execution.run("halving", out=path, resume=True)):
        with pytest.raises(InputError, match=r"found .*metrics\.jsonl, damaged; restore it"):
            act(folder)


def test_a_sweep_file_of_any_content_is_one_sentence(tmp_path):
    sweep("halving", [{"start": 2}], out=tmp_path)
    for text in TEXTS.values():
        (tmp_path / "sweep.yaml").write_bytes(text)
        with pytest.raises(InputError, match=r"sweep\.yaml"):
            sweep("halving", [{"start": 2}], out=tmp_path, resume=True)


def test_a_sweep_makes_damaged_runs_again_and_names_those_that_it_cannot(tmp_path):
    points = [{"start": start} for start in (1, 2, 4)]
    sweep("halving", points, out=tmp_path / "whole")
    sweep("halving", points, out=tmp_path / "run")
    change_lines(tmp_path / "run/start=2.0/metrics.jsonl", lambda lines: lines[1:])
    (tmp_path / "run/start=4.0/metrics.jsonl").write_text("{[")
    found = sweep("halving", points, out=tmp_path / "run", resume=True)
    assert list(found.failures) == ["start=4.0"]
    assert "metrics.jsonl, damaged" in found.failures["start=4.0"]
    assert list(found.runs) == ["start=1.0", "start=2.0"]
    assert_same_files(tmp_path / "run/start=2.0", tmp_path / "whole/start=2.0")
    (tmp_path / "run/start=4.0/metrics.jsonl").unlink()
    assert not sweep("halving", points, out=tmp_path / "run", resume=True).failures
    same = (tmp_path / "whole/report.html").read_bytes()
    assert (tmp_path / "run/report.html").read_bytes() == same


def test_what_a_killed_save_left_is_removed(folder, whole):
    names = ("metrics.jsonlx9k.part", "figures/halves.svgab.part", ".writable")
    (folder / "figures").mkdir()
    for name in (*names, "mine.part"):
        (folder / name).write_text("half")
    execution.run("halving", out=folder, resume=True)
    assert not [name for name in names if (folder / name).exists()]
    assert (folder / "mine.part").exists()
