"""MkDocs hook: the site must ask no other host for a script, a style sheet, a font or a picture."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link(?![^>]*rel="?canonical))\b[^>]*?"""
    r"""\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)
_STYLED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Look through the finished site.

    Raises:
        PluginError: If a page or style sheet fetches something from another host.
    """
    site = Path(config.site_dir)
    found = [(page, _FETCHED.findall(page.read_text())) for page in site.rglob("*.html")]
    found += [(sheet, _STYLED.findall(sheet.read_text())) for sheet in site.rglob("*.css")]
    for file, addresses in found:
        if addresses:
            msg = f"{file.relative_to(site)} fetches {addresses[0]}: keep a copy in docs/ instead"
            raise PluginError(msg)
