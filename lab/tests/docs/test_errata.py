"""Every statement has its section, and every correction stands among the errata."""

import importlib.util
import re
import sys
from collections import Counter

import pytest
from mkdocs.exceptions import PluginError

from ncscope_lab.theory.table import STATEMENTS
from tests.docs.pages import ROOT

spec = importlib.util.spec_from_file_location("errata", ROOT / "docs" / "hooks" / "errata.py")
errata = importlib.util.module_from_spec(spec)
sys.modules["errata"] = errata
spec.loader.exec_module(errata)


def test_statements_have_one_section_that_says_their_verdict() -> None:
    anchors = errata.anchors()
    for statement in STATEMENTS:
        anchor = errata.anchor_of(statement)
        page = (ROOT / "docs" / "theory" / anchors[anchor]).read_text()
        assert page.count(f"{{ #{anchor} }}") == 1, statement.id
        section = page.partition(f"{{ #{anchor} }}")[2].partition("\n## ")[0]
        said = "**Holds as corrected" if statement.corrected else "**Holds"
        assert said in " ".join(section.split()), statement.id


SOURCE = (ROOT / "docs" / "theory" / "errata.md").read_text()


def test_every_correction_stands_among_the_errata() -> None:
    page = errata.written(SOURCE)
    for statement in STATEMENTS:
        head = f"**[{statement.source}]("
        assert (f"#{errata.anchor_of(statement)}).**" in page) == (statement.corrected is not None)
        assert head in page or statement.corrected is None
        anchor = errata.anchor_of(statement)
        assert statement.grade is None or f"#{anchor}).** Grade: *{statement.grade}*." in page


def test_every_entry_says_what_is_printed_and_what_is_right() -> None:
    entries = SOURCE.split("<!-- erratum: ")[1:]
    for entry in entries:
        assert entry.index("\n  Printed: ") < entry.index("**Corrected:**")


def test_errata_are_under_the_heading_of_their_paper() -> None:
    for section in SOURCE.split("\n## ")[1:]:
        paper = section.partition("\n")[0].lower()
        assert set(re.findall(r"erratum: (\w+)/", section)) == {paper}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("<!-- erratum: pfc/theorem-2 -->", ""), "one entry with <!-- erratum: pfc/theorem-2"),
        (("pfc/theorem-2 -->", "pfc/theorem-2 --> <!-- erratum: pfc/theorem-9 -->"), "theorem-9"),
        (("pfc/theorem-2", "pfc/theorem-3"), "erratum: pfc/theorem-2"),
    ],
)
def test_entries_that_are_not_the_corrections_are_refused(
    change: tuple[str, str], message: str
) -> None:
    with pytest.raises(PluginError, match=message):
        errata.written(SOURCE.replace(*change))


INDEX = (ROOT / "docs" / "theory" / "index.md").read_text()


def test_the_index_grades_every_correction_and_says_why_in_one_sentence() -> None:
    rows = re.findall(r"^\| \[(\S+)\]\((\S+)\) \| (\w+) \| (.+) \|$", INDEX, re.M)
    corrected = [statement for statement in STATEMENTS if statement.grade is not None]
    assert [(row[0], row[2]) for row in rows] == [(one.id, one.grade) for one in corrected]
    for (_, link, _, why), statement in zip(rows, corrected, strict=True):
        anchor = errata.anchor_of(statement)
        assert link == f"{errata.anchors()[anchor]}#{anchor}"
        assert re.fullmatch(r"[A-Z$].*[^.]\.", why)


def test_the_counts_are_those_of_the_table() -> None:
    text = " ".join((ROOT / "docs/theory/index.md").read_text().split())
    counted = [statement for statement in STATEMENTS if statement.kind == "statement"]
    field = sum(statement.id.startswith("field/") for statement in counted)
    assert f"{len(counted)} statements" in text
    assert f"{len(counted) - field} of the five papers and {field} of the" in text
    grades = Counter(statement.grade for statement in counted)
    assert f"{grades[None]} hold as printed" in text
    assert re.search(rf"{grades['false']} are \[?false", text)
    assert re.search(rf"{grades['gap']} have a gap and {grades['slip']} a slip", text)
    assert f"{len(STATEMENTS) - len(counted)} further rows" in text
    assert f"{len(counted)} statements" in (ROOT / "README.md").read_text()
