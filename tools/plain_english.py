"""Check that docstrings say first what an object is or does.

The first line of a docstring, and every entry of ``Args`` and ``Attributes``, must not begin with
a word that makes the reader look for the noun: see OPENINGS. ruff's D401 checks beside this that
the docstring of a function begins with a verb in the imperative.

Command: ``python tools/plain_english.py src``. Exit code 1 and one line for each finding.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

OPENINGS = ("What", "Of", "Whether", "Where", "That", "As", "Those", "Which", "Who", "How")
"""Words that open no first line and no entry."""

_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b")
_SECTION = re.compile(r"^(Args|Attributes):\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\*{0,2}\w+): (.*)$", re.MULTILINE)

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the message of each opening that is not plain.

    Args:
        source: Text of a Python module.

    Example:
        >>> list(findings('def f(): "Of which rows."'))
        [(1, "f: 'Of which rows.' begins with 'Of'")]
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Documented):
            continue
        text = ast.get_docstring(node) or ""
        line, name = getattr(node, "lineno", 1), getattr(node, "name", "module")
        first = text.partition("\n")[0]
        if word := _OPENING.match(first):
            yield line, f"{name}: {first!r} begins with {word[0]!r}"
        for section in _SECTION.finditer(text + "\n"):
            for entry, sentence in _ENTRY.findall(section[2]):
                if word := _OPENING.match(sentence):
                    yield line, f"{name}, {entry}: {sentence!r} begins with {word[0]!r}"


def main(roots: list[str]) -> int:
    """Print the findings in every module below the roots; return the exit code."""
    count = 0
    for path in sorted(path for root in roots for path in Path(root).rglob("*.py")):
        for line, message in findings(path.read_text(encoding="utf-8")):
            print(f"{path}:{line}: {message}")
            count += 1
    if count:
        print(f"{count} openings are not plain: name the object or the action first")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
