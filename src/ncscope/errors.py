"""The error for bad input, which names what was expected, what was found and a likely fix."""

import functools
import unicodedata
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

LABORATORY = "./lab"
"""Folder of the laboratory in a checkout of ncscope."""
TARGETS: Mapping[str, str] = {
    "torchvision": ".[models]",
    "timm": ".[models]",
    "PIL": ".[models]",
    "sklearn": ".[models]",
    "lightning": ".[lightning]",
    "transformers": ".[huggingface]",
    "torchmetrics": ".[torchmetrics]",
    "ray": ".[ray]",
    "pyarrow": ".[shards]",
    "fsspec": ".[shards]",
    "h5py": ".[hdf5]",
    "mlxtend": LABORATORY,
    "pydantic": LABORATORY,
    "threadpoolctl": LABORATORY,
    "foolbox": f"{LABORATORY}[attack]",
}
"""Importable name of each optional library, and what to install in a checkout to have it."""

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
    r"""Replace characters that control a terminal or are invisible by escapes.

    Names of files, layers and classes come from outside. Control characters, line breaks, marks of
    the writing direction and bytes of a name that are not UTF-8 become escapes such as ``\x1b``,
    ``\u202e`` and ``\udcff``.

    Args:
        text: Any text.
        keep: Characters that are not replaced, for example line breaks.

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


_LONGEST_WORD = 400
_LONGEST_NAME = 80
_LONGEST_MESSAGE = 200


def shorten_words(text: str) -> str:
    """Return text on one line, each word of more than 400 characters cut in the middle.

    A path may have thousands of characters; the sentence around the path stays readable.

    Example:
        >>> len(shorten_words("nothing at /" + 5000 * "x"))
        412
    """
    half = _LONGEST_WORD // 2
    return " ".join(
        word if len(word) <= _LONGEST_WORD else f"{word[:half]}…{word[-half:]}"
        for word in text.split()
    )


def list_names(names: Iterable[object], most: int = 8) -> str:
    """Return names as text: the first few, each cut after 80 characters, and how many follow.

    Args:
        names: Names, or numbers of classes or rows.
        most: Number of names that are written out.

    Example:
        >>> list_names(["conv1", "conv2", "fc"]), list_names(range(20), 3), list_names([])
        ('conv1, conv2, fc', '0, 1, 2 and 17 more', 'none')
    """
    texts = [str(name)[:_LONGEST_NAME] for name in names]
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more or "none"


def say_error(error: BaseException) -> str:
    r"""Return another library's message on one line, cut after 200 characters.

    Args:
        error: Error that the library raised.

    Example:
        >>> say_error(OSError("no such\n  file"))
        'no such file'
    """
    return " ".join(str(error).split())[:_LONGEST_MESSAGE]


class InputError(ValueError):
    """Bad input, explained in one `printable` sentence on one line.

    Words of more than 400 characters, such as long paths, are cut in the middle.

    Args:
        expected: Requirement of the call, e.g. ``"labels in 0..9"``.
        found: Input of the call, with the offending value, e.g. ``"label 12 at row 3"``.
        fix: Likely remedy, e.g. ``"pass num_classes=13"``.

    Attributes:
        expected: Requirement of the call, for a caller that raises a new error from this one.
        found: Input of the call.
        fix: Likely remedy.

    Example:
        >>> str(InputError(expected="labels in 0..9", found="label 12", fix="pass num_classes=13"))
        'expected labels in 0..9, found label 12; pass num_classes=13'
    """

    def __init__(self, *, expected: str, found: str, fix: str) -> None:
        sentence = f"expected {expected}, found {found}; {fix}"
        super().__init__(printable(shorten_words(sentence)))
        self.expected, self.found, self.fix = expected, found, fix

    def but(
        self, *, expected: str | None = None, found: str | None = None, fix: str | None = None
    ) -> "InputError":
        """Return a copy in which the parts that are passed replace those of this error."""
        return InputError(
            expected=expected or self.expected, found=found or self.found, fix=fix or self.fix
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the parts; a pool of processes waits for ever for an error that it cannot read."""
        # Exceptions are made again from `args`, the sentence alone; the parts are keywords.
        parts = {"expected": self.expected, "found": self.found, "fix": self.fix}
        return functools.partial(InputError, **parts), ()


def library_error(name: str, target: str | None = None) -> InputError:
    """Return the error to raise for an optional library that is not installed.

    Args:
        name: Name under which the library is imported, a key of `TARGETS`.
        target: Folder to install, with its extras; by default the one that `TARGETS` names.

    Example:
        >>> print(library_error("lightning").fix)
        pip install ".[lightning]" in a checkout of ncscope
    """
    found, fix = "that it is not installed", how_to_install(target or TARGETS[name])
    return InputError(expected=f"the library {distribution(name)}", found=found, fix=fix)


def import_library(name: str) -> Any:
    """Import an optional library where it is needed, because importing may take seconds.

    Args:
        name: Name of the library, a key of `TARGETS`, or of a module in it.

    Raises:
        InputError: If the library is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise library_error(name.partition(".")[0]) from error


def how_to_install(target: str = ".") -> str:
    """Return the command that installs ncscope.

    Args:
        target: Folder in the checkout, with the extras in brackets.
    """
    quoted = f'"{target}"' if "[" in target else target
    return f"pip install {quoted} in a checkout of ncscope"
