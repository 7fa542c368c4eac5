"""The metrics page against the registry it is written from."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import griffe
import pytest

from ncscope.metrics.registry import GROUPS, METRICS
from ncscope.report.formulas import formula
from tests.docs.pages import PAGES, ROOT

KEYS = sorted(METRICS)


@cache
def documented() -> griffe.ModulesCollection:
    extensions = griffe.load_extensions(ROOT / "docs" / "hooks" / "docstrings.py")
    loader = griffe.GriffeLoader(search_paths=[ROOT / "src"], extensions=extensions)
    loader.load("ncscope.metrics", submodules=True)
    return loader.modules_collection


def hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference, formulas, errata = hook("metrics_reference"), hook("formulas"), hook("errata")
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
def test_code_of_a_metric_shows_formula_and_source(key: str):
    row = METRICS[key]
    text = documented()[f"{row.function.__module__}.{row.function.__name__}"].docstring.value
    assert f"`{key}`" in text
    assert row.formula in text
    assert row.source in text


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
@pytest.mark.parametrize("document", ["docs/index.md", "docs/metrics.md"])
def test_group_is_documented(group: str, document: str):
    assert f"`{group}`" in (ROOT / document).read_text()


def test_formulas_of_a_page_become_svg():
    spans = r'<p>a <span class="arithmatex">\(d &lt; K\)</span> b</p>'
    assert formulas.on_page_content(spans) == f"<p>a {formula('d < K')} b</p>"
    block = '<div class="arithmatex">\\[\n\\frac1K\n\\]</div>'
    drawn = formula(r"\frac1K", display=True)
    assert formulas.on_page_content(block) == f'<div class="display">{drawn}</div>'


def test_a_formula_stays_with_the_brackets_and_marks_beside_it():
    html = r'(<span class="arithmatex">\(K\)</span>), <span class="arithmatex">\(d\)</span>-wise x'
    first, last = f"({formula('K')}),", f"{formula('d')}-wise"
    expected = f'<span class="word">{first}</span> <span class="word">{last}</span> x'
    assert formulas.on_page_content(html) == expected


SOURCES = sorted((ROOT / "src" / "ncscope").rglob("*.py"))
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
MATH = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.S)


def marked(text: str) -> Iterator[tuple[str, bool]]:
    """The formulas of a text, and whether each has a line of its own."""
    for block, inline in MATH.findall(CODE.sub("", text)):
        yield (block or inline).strip(), bool(block)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_formulas_of_pages_can_be_set(path: Path, caplog: pytest.LogCaptureFixture):
    text = page if path == ROOT / "docs" / "metrics.md" else path.read_text()
    text = errata.written(text) if path.name == "errata.md" else text
    for latex, display in marked(text):
        assert formula(latex, display=display)
    assert caplog.messages == []  # no glyph is missing


@pytest.mark.slow
def test_formulas_of_docstrings_use_commands_that_can_be_set(caplog: pytest.LogCaptureFixture):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    trees = [ast.walk(ast.parse(path.read_text())) for path in SOURCES]
    texts = [ast.get_docstring(node) for tree in trees for node in tree if isinstance(node, kinds)]
    written = sorted({latex for text in texts if text for latex, _ in marked(text)}, key=len)
    seen: set[str] = set()
    for latex in written:
        commands = set(re.findall(r"\\[A-Za-z]+|[^\x00-\x7f]", latex))
        if not commands <= seen:  # the shortest formula with each command
            assert formula(latex)
        seen |= commands
    assert len(seen) > 50
    assert caplog.messages == []
