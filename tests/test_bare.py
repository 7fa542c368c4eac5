"""What the bare environment does not test imports nothing that it lacks."""

import sys
import tomllib
from pathlib import Path

import pytest

from tests.bare import ROOT, SAME_EVERYWHERE, imports

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BARE = {
    requirement.partition(">=")[0].replace("pyyaml", "yaml")
    for requirement in PROJECT["dependencies"]
}
PURE = (
    *("errors", "arguments", "array_checks", "devices", "labels", "memory", "files"),
    *SAME_EVERYWHERE,
)


def modules() -> list[Path]:
    folders = (ROOT / "src" / "ncscope" / package for package in SAME_EVERYWHERE)
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("file", modules(), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_imports_are_of_the_bare_package(file: Path) -> None:
    for name in imports(file):
        first, *rest = name.split(".")
        if first == "ncscope":
            assert rest[0] in PURE, name
        else:
            assert first in BARE | sys.stdlib_module_names, name
