"""What the bare environment does not test imports nothing that it lacks."""

import sys
import tomllib

import pytest

from tests.bare import ROOT, SAME_EVERYWHERE, imports

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BARE = {
    requirement.partition(">=")[0].replace("pyyaml", "yaml")
    for requirement in PROJECT["dependencies"]
}
PURE = (
    *("errors", "arguments", "array_checks", "labels", "devices", "memory", "files"),
    *SAME_EVERYWHERE,
)


@pytest.mark.parametrize("package", SAME_EVERYWHERE)
def test_imports_are_of_the_bare_package(package: str) -> None:
    files = sorted((ROOT / "src" / "ncscope" / package).rglob("*.py"))
    found = [(file, name) for file in files for name in imports(file)]
    assert found
    for file, name in found:
        first, *rest = name.split(".")
        if first == "ncscope":
            assert rest[0] in PURE, (file, name)
        else:
            assert first in BARE | sys.stdlib_module_names, (file, name)
