"""Every statement has its section, and every correction stands among the errata."""

import importlib.util
import sys

import pytest
from mkdocs.exceptions import PluginError

from ncscope.lab.theory.table import STATEMENTS
from tests.docs.pages import ROOT

spec = importlib.util.spec_from_file_location("errata", ROOT / "docs" / "hooks" / "errata.py")
errata = importlib.util.module_from_spec(spec)
sys.modules["errata"] = errata
spec.loader.exec_module(errata)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.id)
def test_a_statement_has_one_section_that_says_its_verdict(statement) -> None:
    anchor = errata.anchor_of(statement)
    page = (ROOT / "docs" / "theory" / errata.anchors()[anchor]).read_text()
    assert page.count(f"{{ #{anchor} }}") == 1
    section = page.partition(f"{{ #{anchor} }}")[2].partition("\n## ")[0]
    said = "**Holds as corrected" if statement.corrected else "**Holds"
    assert said in " ".join(section.split())


def test_every_correction_stands_among_the_errata() -> None:
    page = errata.written((ROOT / "docs" / "theory" / "errata.md").read_text())
    for statement in STATEMENTS:
        assert (f"#{errata.anchor_of(statement)})" in page) == (statement.corrected is not None)


def test_a_paper_without_a_place_is_refused() -> None:
    with pytest.raises(PluginError, match="errata: INFO"):
        errata.written("no place")
