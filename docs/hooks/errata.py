"""MkDocs hook: the errata, each with its source and a link to its derivation and check.

``theory/errata.md`` marks with ``<!-- erratum: vci/observation-4.4 -->`` which corrected statement
of the table an entry is about. The derivations are sections of the pages of ``theory``.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

from ncscope_lab.theory.statement import Statement
from ncscope_lab.theory.table import STATEMENTS

_PAGES = Path(__file__).parents[1] / "theory"
_MARK = re.compile(r"<!-- erratum: (\S+) -->")
_ANCHOR = re.compile(r"^#+ .*\{ #([A-Za-z0-9.-]+) \}", re.M)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the errata page.

    Args:
        markdown: Source of a page.
        page: Page that is being built.

    Raises:
        PluginError: If the entries are not the corrected statements, or one has no section.
    """
    return written(markdown) if page.file.src_uri == "theory/errata.md" else markdown


def written(markdown: str) -> str:
    """Write each corrected statement's source, with a link, and its grade at the mark of its entry.

    Raises:
        PluginError: If the entries are not the corrected statements, or one has no section.
    """
    corrected = {one.id: one for one in STATEMENTS if one.corrected is not None}
    marked = _MARK.findall(markdown)
    for name in sorted(corrected):
        if marked.count(name) != 1:
            msg = f"docs/theory/errata.md: write one entry with <!-- erratum: {name} -->"
            raise PluginError(msg)
    unknown = set(marked) - set(corrected)
    if unknown:
        msg = f"docs/theory/errata.md: {min(unknown)} is no corrected statement of the table"
        raise PluginError(msg)
    where = anchors()
    return _MARK.sub(lambda mark: _head(corrected[mark[1]], where), markdown)


def anchors() -> dict[str, str]:
    """Return the page of every section that has an id, by the id."""
    return {
        anchor: page.name
        for page in sorted(_PAGES.glob("*.md"))
        for anchor in _ANCHOR.findall(page.read_text(encoding="utf-8"))
    }


def anchor_of(statement: Statement) -> str:
    """Return the id of the section that derives a statement."""
    return re.sub("[/.]", "-", statement.id)


def _head(statement: Statement, where: dict[str, str]) -> str:
    anchor = anchor_of(statement)
    if anchor not in where:
        msg = f"docs/theory: add a section with {{ #{anchor} }} for {statement.id}"
        raise PluginError(msg)
    return f"**[{statement.source}]({where[anchor]}#{anchor}).** Grade: *{statement.grade}*."
