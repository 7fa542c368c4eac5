"""MkDocs hook: the errata, written from the table of statements.

``theory/errata.md`` marks with ``<!-- errata: VCI -->`` where a paper's corrections go. Each links
to its derivation and numerical check, a section of one of the pages of ``theory``.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.pages import Page

from ncscope.lab.theory.statement import Statement
from ncscope.lab.theory.table import STATEMENTS

_PAGES = Path(__file__).parents[1] / "theory"
_MARK = re.compile(r"<!-- errata: (\w+) -->")
_ANCHOR = re.compile(r"^#+ .*\{ #([A-Za-z0-9.-]+) \}", re.M)
_SPLIT = "; corrected: "


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the errata page.

    Args:
        markdown: Source of a page.
        page: Page that is being built.

    Raises:
        PluginError: If a statement has no section, or its paper no place.
    """
    return written(markdown) if page.file.src_uri == "theory/errata.md" else markdown


def written(markdown: str) -> str:
    """Write every corrected statement at its paper's mark of the errata page.

    Raises:
        PluginError: If a statement has no section, or its paper no place.
    """
    corrected = [one for one in STATEMENTS if one.corrected is not None]
    missing = {_paper(one) for one in corrected} - set(_MARK.findall(markdown))
    if missing:
        msg = f"docs/theory/errata.md: add a section with <!-- errata: {min(missing)} -->"
        raise PluginError(msg)
    where = anchors()
    return _MARK.sub(
        lambda mark: "\n".join(_row(one, where) for one in corrected if _paper(one) == mark[1]),
        markdown,
    )


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


def _paper(statement: Statement) -> str:
    return statement.id.partition("/")[0].upper()


def _row(statement: Statement, where: dict[str, str]) -> str:
    anchor = anchor_of(statement)
    if anchor not in where:
        msg = f"docs/theory: add a section with {{ #{anchor} }} for {statement.id}"
        raise PluginError(msg)
    printed, _, corrected = statement.statement.partition(_SPLIT)
    link = f"[derivation and check]({where[anchor]}#{anchor})"
    source = statement.source
    return f"* **{source}.** Printed: {printed}. **Corrected:** {corrected} ({link})"
