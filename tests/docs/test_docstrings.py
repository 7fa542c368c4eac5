"""The examples of every docstring, which the API reference shows."""

import doctest
import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import ncscope
from tests.docs.pages import ROOT

MODULES = [info.name for info in pkgutil.walk_packages(ncscope.__path__, "ncscope.")]


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


@pytest.mark.parametrize("name", [name for name, it in PUBLIC.items() if inspect.isfunction(it)])
def test_every_public_function_has_an_example(name: str):
    assert ">>>" in PUBLIC[name].__doc__


@pytest.mark.parametrize("name", ncscope.__all__)
def test_everything_public_is_in_the_api_reference(name: str):
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    assert f"::: {PUBLIC[name].__module__}.{name}\n" in pages
