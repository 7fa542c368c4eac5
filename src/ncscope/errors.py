"""The one error a user is meant to see: what was expected, what was found, the likely fix."""

import unicodedata
from collections.abc import Mapping

EXTRAS: Mapping[str, str] = {
    "torchvision": "models",
    "timm": "models",
    "PIL": "models",
    "lightning": "lab",
    "pydantic": "lab",
    "sklearn": "lab",
    "threadpoolctl": "lab",
    "transformers": "huggingface",
    "torchmetrics": "torchmetrics",
    "foolbox": "attack",
    "ray": "ray",
}
"""Importable name of each optional library, and the extra that installs it."""

_DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}


def distribution(library: str) -> str:
    """Return the name under which a library is installed.

    Args:
        library: Name under which the library is imported.

    Example:
        >>> distribution("sklearn"), distribution("torch")
        ('scikit-learn', 'torch')
    """
    return _DISTRIBUTIONS.get(library, library)


def printable(text: str, keep: str = "") -> str:
    r"""Replace what steers a terminal, or hides, by a visible escape.

    File, layer and class names come from outside. Control characters, line breaks, marks of the
    writing direction and the stray bytes of a name that is not UTF-8 become ``\x1b``, ``\u202e``,
    ``\udcff`` and the like.

    Args:
        text: Any text.
        keep: Characters to leave as they are, for example line breaks.

    Example:
        >>> print(printable("red: \x1b[31m"))
        red: \x1b[31m
    """
    if text.isprintable():
        return text
    shown = (
        char
        if char in keep or char.isprintable() or unicodedata.category(char) == "Zs"
        else char.encode("unicode_escape").decode()
        for char in text
    )
    return "".join(shown)


class InputError(ValueError):
    """Bad input, explained in one sentence, which stands on one line and is `printable`.

    Args:
        expected: Requirement of the call, e.g. ``"labels in 0..9"``.
        found: Input of the call, with the offending value, e.g. ``"label 12 at row 3"``.
        fix: The likely remedy, e.g. ``"pass num_classes=13"``.

    Attributes:
        expected: Requirement as given; likewise the two below, for a caller who says it again.
        found: Input of the call.
        fix: The likely remedy.

    Example:
        >>> str(InputError(expected="labels in 0..9", found="label 12", fix="pass num_classes=13"))
        'expected labels in 0..9, found label 12; pass num_classes=13'
    """

    def __init__(self, *, expected: str, found: str, fix: str) -> None:
        sentence = f"expected {expected}, found {found}; {fix}"
        super().__init__(printable(" ".join(sentence.split())))
        self.expected, self.found, self.fix = expected, found, fix


def missing_library(name: str, extra: str | None = None) -> InputError:
    """Return the error to raise for an optional library that is not installed.

    Args:
        name: Name under which the library is imported, a key of `EXTRAS`.
        extra: Extra to install; by default the one that `EXTRAS` names.

    Example:
        >>> print(missing_library("lightning").fix)
        pip install ".[lab]" in a checkout of ncscope
    """
    found, fix = "that it is not installed", how_to_install(extra or EXTRAS[name])
    return InputError(expected=f"the library {distribution(name)}", found=found, fix=fix)


def how_to_install(extra: str = "") -> str:
    """Return the command that installs ncscope.

    Args:
        extra: Extra to install with ncscope; empty for the bare package.
    """
    what = f'".[{extra}]"' if extra else "."
    return f"pip install {what} in a checkout of ncscope"
