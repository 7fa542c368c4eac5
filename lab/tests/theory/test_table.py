"""All statements: expected verdicts, determinism, errors; no check that cannot fail."""

import json
import runpy
from collections.abc import Iterator

import jaxtyping
import pytest
import torch
from lab.tests.theory.expected import (
    field,
    info,
    mse_central_path,
    mse_decomposition,
    pfc,
    vci,
    xufm,
    xufm_extended,
)
from lab.tests.theory.expected.broken import Break

from ncscope.errors import InputError
from ncscope_lab.theory.statement import Result
from ncscope_lab.theory.table import STATEMENTS, check_theory
from tests.docs.pages import ROOT

PAPERS = (info, vci, mse_decomposition, mse_central_path, pfc, xufm, xufm_extended, field)
FILE = ROOT / "docs" / "figures" / "theory-verdicts.json"
RECORD = json.loads(FILE.read_text())
"""Verdict, grade and kind of each statement: the page of evidence shows them."""
VERDICTS = {name: each["verdict"] for name, each in RECORD["statements"].items()}
BREAKS = [broken for paper in PAPERS for broken in paper.BREAKS]
DESCENDING = {("xufm/theorem-4.1", "minimum"), ("xufm/theorem-4.2", "minimum")}
DESCENDING |= {(name, "quasi_newton") for name, _ in DESCENDING}
"""Breaks that are seen after minutes of descents."""


@pytest.fixture(scope="module", autouse=True)
def unchecked() -> Iterator[None]:
    """Thousands of small calls: their signatures are checked by the tests of each module."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def everything() -> list[Result]:
    return check_theory(seed=0)


@pytest.mark.slow
def test_verdicts(everything: list[Result]) -> None:
    assert {result.id: result.verdict for result in everything} == VERDICTS
    for result in everything:
        assert result.deviation < 1e-11, result
        if result.verdict == "holds-as-corrected":
            assert result.printed_deviation is not None
            assert result.printed_deviation > 0.1, result


@pytest.mark.slow
def test_verdicts_of_the_docs_are_up_to_date(
    everything: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "figures" / "evidence.py"))
    assert script["SEED"] == 0
    monkeypatch.setitem(script["verdicts"].__globals__, "check_theory", lambda seed: everything)
    record = {"seed": 0, "statements": script["verdicts"]()}
    assert script["FILE"] == FILE
    assert record == RECORD


@pytest.mark.nightly
def test_verdicts_do_not_hang_on_the_seed() -> None:
    assert {result.id: result.verdict for result in check_theory(seed=100)} == VERDICTS


def test_ids_are_unique_and_sentences_complete() -> None:
    assert len({statement.id for statement in STATEMENTS}) == len(STATEMENTS)
    for statement in STATEMENTS:
        assert statement.statement.endswith(".")
        assert statement.source
        assert (statement.corrected is not None) == ("; corrected: " in statement.statement)


def test_grades_and_kinds_are_those_of_the_record() -> None:
    known = {name: (each.get("grade"), each["kind"]) for name, each in RECORD["statements"].items()}
    assert {one.id: (one.grade, one.kind) for one in STATEMENTS} == known
    graded = {name for name, (grade, _) in known.items() if grade}
    assert graded == {name for name, verdict in VERDICTS.items() if verdict != "holds"}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_results_alone_and_among_all(
    everything: list[Result],
) -> None:
    by_id = {result.id: result for result in everything}
    for chosen in ("info/theorem-4.2", "info/lemma-4.5", "info/remark-4.6"):
        assert check_theory(seed=0, only=chosen) == [by_id[chosen]]
    (other,) = check_theory(seed=1, only="info/remark-4.6")
    assert other.printed_deviation != by_id["info/remark-4.6"].printed_deviation


def test_the_number_of_threads_is_left_as_it_was() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    check_theory(seed=0, only="info/theorem-4.2")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [("info/lemma-4.6", "info/lemma-4."), ("INFO/Theorem-4.2", "info/theorem-4.2"), ("", r"\w+/")],
)
def test_an_unknown_id_names_the_nearest(wanted: str, nearest: str) -> None:
    with pytest.raises(InputError, match="expected the id of one of .*; the nearest is " + nearest):
        check_theory(seed=0, only=wanted)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            broken,
            id=f"{broken.statement}-{broken.name}",
            marks=pytest.mark.nightly
            if (broken.statement, broken.name) in DESCENDING
            else pytest.mark.slow,
        )
        for broken in BREAKS
    ],
)
def test_a_broken_formula_fails(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken.module, broken.name, broken.broken)
    (result,) = check_theory(seed=0, only=broken.statement)
    assert result.verdict == "fails"


def test_every_statement_has_a_formula_that_breaks_it() -> None:
    assert {broken.statement for broken in BREAKS} == set(VERDICTS)
