"""The one error a user is meant to see: what was expected, what was found, the likely fix."""

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


class InputError(ValueError):
    """Bad input, explained in one sentence.

    Args:
        expected: What the call needed, e.g. ``"labels in 0..9"``.
        found: What it got, with the offending value, e.g. ``"label 12 at row 3"``.
        fix: The likely remedy, e.g. ``"pass num_classes=13"``.

    Attributes:
        expected: As given, like the two below, for whoever knows more and says it again.
        found: What the call got.
        fix: The likely remedy.

    Example:
        >>> str(InputError(expected="labels in 0..9", found="label 12", fix="pass num_classes=13"))
        'expected labels in 0..9, found label 12; pass num_classes=13'
    """

    def __init__(self, *, expected: str, found: str, fix: str) -> None:
        super().__init__(f"expected {expected}, found {found}; {fix}")
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
