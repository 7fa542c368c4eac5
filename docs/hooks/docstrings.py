"""Griffe extension: sections of docstrings that its parser does not know by our names."""

import re
from typing import Any

import griffe

_SINGULAR = re.compile(r"^( *)Example:$", re.M)


class OneExample(griffe.Extension):
    """Read ``Example:`` as ``Examples:``, so that its code is typeset as code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = _SINGULAR.sub(r"\1Examples:", obj.docstring.value)
