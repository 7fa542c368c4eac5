"""MkDocs hook: the formulas of every page as MathML, so that no script has to typeset them."""

import re
from html import unescape
from typing import Any

from ncscope.report.mathml import formula

# What pymdownx.arithmatex leaves behind in its generic mode.
_MARKED = re.compile(r'<(span|div) class="arithmatex">(?:\\\(|\\\[)(.*?)(?:\\\)|\\\])</\1>', re.S)


def on_page_content(html: str, **_: Any) -> str:
    """Typeset the formulas of a page, those of docstrings included.

    Args:
        html: The page's content.

    Returns:
        The content, each marked formula replaced by a ``<math>`` element.
    """
    return _MARKED.sub(_typeset, html)


def _typeset(marked: re.Match[str]) -> str:
    math = formula(unescape(marked[2]).strip())
    if marked[1] == "span":
        return math
    block = math.replace("<math>", '<math display="block">', 1)
    return f'<div class="formula">{block}</div>'
