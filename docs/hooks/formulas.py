"""MkDocs hook: the formulas of every page as SVG, so that no script or font has to be fetched."""

import re
from html import unescape
from typing import Any

from ncscope.report.formulas import formula

# What pymdownx.arithmatex leaves behind in its generic mode.
_BLOCK = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.S)
# With brackets before it, and with what follows up to the next space, a formula makes one word.
_INLINE = re.compile(
    r'(?P<before>[(\[“]*)<span class="arithmatex">\\\((?P<latex>.*?)\\\)</span>(?P<after>[^\s<&]*)',
    re.S,
)


def on_page_content(html: str, **_: Any) -> str:
    """Set the formulas of a page, those of docstrings included.

    Args:
        html: The page's content.

    Returns:
        The content, each marked formula replaced by SVG.
    """
    return _INLINE.sub(_word, _BLOCK.sub(_block, html))


def _block(marked: re.Match[str]) -> str:
    return f'<div class="display">{formula(unescape(marked[1]), display=True)}</div>'


def _word(marked: re.Match[str]) -> str:
    drawn = formula(unescape(marked["latex"]))
    before, after = marked["before"], marked["after"]
    return f'<span class="word">{before}{drawn}{after}</span>' if before or after else drawn
