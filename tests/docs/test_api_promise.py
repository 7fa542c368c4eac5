"""The page on stability names what the package has."""

import importlib
import re
import tomllib

import pytest

import ncscope
from ncscope.cli import running
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "api-promise.md").read_text()


def section(start: str, end: str) -> str:
    return PAGE.partition(start)[2].partition(end)[0]


def test_the_names_are_those_that_the_package_exports():
    names = re.findall(r"`(\w+)`[,.]", section("use\n", "**Modules.**"))
    assert sorted(names) == sorted(ncscope.__all__)


@pytest.mark.parametrize(
    "row", re.findall(r"^\| `([\w.]+)` \| \[.*?\]\((.*?)\) \|$", PAGE, re.M), ids=lambda row: row[0]
)
def test_the_api_page_of_a_module_shows_that_module(row: tuple[str, str]):
    importlib.import_module(row[0])
    shown = re.findall(r"^::: ([\w.]+)", (ROOT / "docs" / row[1]).read_text(), re.M)
    assert any(name.startswith(f"{row[0]}.") for name in shown)


def test_the_commands_are_those_of_the_instrument():
    named = set(re.findall(r"`ncscope ([\w-]+)`", section("**Commands.**", "**Keys.**")))
    callbacks = [command.callback for command in running.app.registered_commands]
    inside = [call for call in callbacks if call and call.__module__.startswith("ncscope.cli.")]
    assert named == {call.__name__.replace("_", "-") for call in inside}


def test_the_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == ncscope.__version__
