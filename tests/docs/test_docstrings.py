"""The examples of every docstring, which the API reference shows."""

import doctest
import importlib
import inspect
import re
from types import ModuleType

import pytest

import ncscope
from tests.docs.pages import ROOT

MODULES = [
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    for source in (ROOT / "src", ROOT / "lab" / "src")
    for path in sorted(source.rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings_hold(name: str):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    mismatches: list[str] = []
    for test in examples(module):
        runner.run(test, out=mismatches.append)
    assert not mismatches, "".join(mismatches)


PUBLIC = {name: getattr(ncscope, name) for name in ncscope.__all__}


def test_every_public_function_has_an_example():
    functions = {name: it for name, it in PUBLIC.items() if inspect.isfunction(it)}
    assert [name for name, it in functions.items() if ">>>" not in it.__doc__] == []


def test_everything_public_is_in_the_api_reference():
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    shown = set(re.findall(r"^::: (\S+)$", pages, re.M))
    ways = {name: {it.__module__, f"{it.__module__}.{name}"} for name, it in PUBLIC.items()}
    assert [name for name, either in ways.items() if not either & shown] == []
