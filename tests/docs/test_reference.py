"""The metrics page against the registry it is written from."""

import ast
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ncscope.metrics.registry import GROUPS, METRICS
from ncscope.report.mathml import formula
from tests.docs.pages import PAGES, ROOT

KEYS = sorted(METRICS)


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference, mathml = hook("metrics_reference"), hook("mathml")
source = (ROOT / "docs" / "metrics.md").read_text()
page = reference.written(source)
entries = dict(re.findall(r"^### `(\w+)` .*?\n(.*?)(?=^##|\Z)", page, re.M | re.S))


@pytest.mark.parametrize("key", KEYS)
def test_metric_has_an_entry_with_all_that_the_registry_says(key: str):
    row, entry = METRICS[key], entries[key]
    said = [row.formula, row.zero, row.undefined, *row.aliases, *row.also]
    assert [part for part in said if part not in entry] == []


def test_entries_are_the_registry():
    assert sorted(entries) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_summary_links_to_the_entry(key: str):
    assert f"[`{key}`](#{key})" in page
    assert f"{{ #{key} }}" in page


@pytest.mark.parametrize("key", KEYS)
def test_metric_is_complete(key: str):
    row = METRICS[key]
    assert row.formula
    assert row.zero or row.low > 0
    assert row.source or key == "accuracy"


@pytest.mark.parametrize("key", KEYS)
def test_code_of_a_metric_states_formula_and_source(key: str):
    code = reference.definition(METRICS[key])
    text = inspect.getdoc(code) + sys.modules[code.__module__].__doc__
    assert code.__module__.startswith("ncscope.metrics.")
    assert "$" in text
    assert "Source:" in text or key == "accuracy"


@pytest.mark.parametrize("key", KEYS)
def test_source_is_in_the_references(key: str):
    row = METRICS[key]
    known = set(re.findall(r"\{ #(\w+) \}", (ROOT / "docs" / "references.md").read_text()))
    linked = set(re.findall(r"references\.md#(\w+)", reference._source(row)))
    assert linked <= known
    assert linked or key == "accuracy", f"{row.source} has no link to the references"


def test_a_group_without_a_section_is_an_error():
    with pytest.raises(Exception, match="add a section for group 'nc3'"):
        reference.written(source.replace("<!-- metrics: nc3 -->", ""))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("document", ["README.md", "docs/metrics.md"])
def test_group_is_documented(group: str, document: str):
    assert f"`{group}`" in (ROOT / document).read_text()


def test_formulas_of_a_page_become_mathml():
    spans = r'<p><span class="arithmatex">\(d &lt; K\)</span></p>'
    assert mathml.on_page_content(spans) == f"<p>{formula('d < K')}</p>"
    block = '<div class="arithmatex">\\[\n\\frac1K\n\\]</div>'
    assert '<math display="block"><mfrac>' in mathml.on_page_content(block)


# Names that are typeset as they stand; any other command that `formula` shows by its name is one
# that it does not know.
NAMES = {"min", "max", "arg", "operatorname", "diag", "log", "exp", "cos", "sin", "tan"}
SOURCES = sorted((ROOT / "src" / "ncscope").rglob("*.py"))


def untypeset(text: str) -> set[str]:
    """Commands in the formulas of a text that would appear by their names."""
    return {
        command
        for math in re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$", text, re.S)
        for command in re.findall(r"\\([A-Za-z]+)", "".join(math))
        if f"<mtext>{command}</mtext>" in formula(f"\\{command} x")
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_formulas_of_pages_use_commands_that_can_be_typeset(path: Path):
    text = page if path == ROOT / "docs" / "metrics.md" else path.read_text()
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    assert untypeset(text) <= NAMES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_formulas_of_docstrings_use_commands_that_can_be_typeset(path: Path):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    texts = [ast.get_docstring(node) or "" for node in nodes]
    assert set().union(*map(untypeset, texts)) <= NAMES
