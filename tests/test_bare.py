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
SOURCE = ROOT / "src"


def module_of(name: str) -> Path:
    """The file of a module, or of the one that defines the name."""
    inner = SOURCE.joinpath(*name.split("."))
    for file in (inner.with_suffix(".py"), inner / "__init__.py"):
        if file.exists():
            return file
    return module_of(name.rpartition(".")[0])


@pytest.mark.slow
def test_what_is_not_tested_here_imports_what_the_bare_package_has() -> None:
    """Modules of these packages, the modules that they import, and so on."""
    packages = [SOURCE / "ncscope" / package for package in SAME_EVERYWHERE]
    files = [file for package in packages for file in sorted(package.rglob("*.py"))]
    for file in files:
        for name in imports(file):
            first = name.split(".")[0]
            if first != "ncscope":
                assert first in BARE | sys.stdlib_module_names, (file, name)
            elif (own := module_of(name)) not in files:
                files.append(own)
    assert len(files) > 100
