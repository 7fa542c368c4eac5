"""The documentation as programs: what a page's code blocks hold, and running them in order."""

import doctest
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ncscope.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOOKS = ROOT / "docs" / "hooks"
COSTLY = {"demo", "sweep"}
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: As named after the fence.
        text: The code.
        line: The page's line before its first.
    """

    language: str
    text: str
    line: int


def load_hook(name: str) -> ModuleType:
    """Import a hook as MkDocs does, with its neighbours on the path."""
    sys.path.insert(0, str(HOOKS))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(HOOKS))


def load_script(name: str) -> ModuleType:
    """Import a script of ``docs/figures``; a hook may have its name."""
    path = ROOT / "docs" / "figures" / f"{name}.py"
    spec = spec_from_file_location(f"figures_{name}", path)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        yield Block(fence[1], fence[2], text.count("\n", 0, fence.start()) + 1)


def run_page(page: Path) -> None:
    """Run a page's Python and its ``ncscope`` commands, top to bottom, in one namespace.

    The scripts beside the page, which a reader downloads, are copied into the current folder.

    Raises:
        AssertionError: With the page's line, what was expected and what came.
    """
    for script in page.parent.glob("*.py") if page.parent.name == "tutorials" else ():
        shutil.copy(script, ".")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and ">>>" in block.text:
            run_examples(block, page, names)
        elif block.language == "python":
            source = "\n" * block.line + block.text
            exec(compile(source, str(page), "exec"), names)
        elif block.language == "bash":
            run_commands(block)


def run_examples(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Run a block of ``>>>`` examples and compare what they print; keeps the names they bind."""
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    mismatches: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=mismatches.append, clear_globs=False)
    assert not mismatches, "".join(mismatches)
    names.update(test.globs)


def run_commands(block: Block) -> None:
    """Run the block's ``ncscope`` commands, but for those that train."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["ncscope"] and words[1] not in COSTLY:
            with pytest.raises(SystemExit) as end:
                main(words[1:])
            assert end.value.code == 0, f"{line} ended with {end.value.code}"
