"""The metrics page against the registry it is written from."""

import ast
import importlib.util
import logging
import re
from collections.abc import Iterator
from functools import cache
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


reference, formulas = hook("metrics_reference"), hook("formulas")
source = (ROOT / "docs" / "metrics.md").read_text()
page = reference.written(source)
entries = dict(re.findall(r"^### `(\w+)` .*?\n(.*?)(?=^##|\Z)", page, re.M | re.S))


def test_metrics_have_entries_with_all_that_the_registry_says():
    lacking = {
        key: part
        for key, row in METRICS.items()
        for part in (row.formula, row.zero, row.undefined, *row.aliases, *row.also)
        if part not in entries[key]
    }
    assert lacking == {}


def test_entries_are_the_registry():
    assert sorted(entries) == KEYS


def test_the_summary_links_to_the_entries():
    links = [text for key in KEYS for text in (f"[`{key}`](#{key})", f"{{ #{key} }}")]
    assert [text for text in links if text not in page] == []


def test_metrics_are_complete():
    assert all(row.formula for row in METRICS.values())
    assert [row.key for row in METRICS.values() if not row.zero and row.low <= 0] == []
    assert [row.key for row in METRICS.values() if not row.source] == ["accuracy"]


@pytest.mark.slow  # reads the whole package
def test_the_code_of_metrics_shows_formula_and_source():
    for key, row in METRICS.items():
        text = documented()[f"{row.function.__module__}.{row.function.__name__}"].docstring.value
        said = (f"`{key}`", row.formula, row.source)
        assert [part for part in said if part not in text] == [], key


def test_sources_are_in_the_references():
    known = set(re.findall(r"\{ #(\w+) \}", (ROOT / "docs" / "references.md").read_text()))
    for key, row in METRICS.items():
        linked = set(re.findall(r"references\.md#(\w+)", reference._source(row)))
        assert linked <= known, key
        assert linked or key == "accuracy", f"{row.source} has no link to the references"


def test_a_group_without_a_section_is_an_error():
    with pytest.raises(Exception, match="add a section for group 'nc3'"):
        reference.written(source.replace("<!-- metrics: nc3 -->", ""))


@pytest.mark.parametrize("document", ["docs/index.md", "docs/metrics.md"])
def test_groups_are_documented(document: str):
    text = (ROOT / document).read_text()
    assert [group for group in GROUPS if f"`{group}`" not in text] == []


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


SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "lab" / "src").rglob("*.py")])
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
MATH = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.S)


def marked(text: str) -> Iterator[str]:
    """The formulas of a text."""
    for block, inline in MATH.findall(CODE.sub("", text)):
        yield (block or inline).strip()


@pytest.fixture
def warned() -> Iterator[list[str]]:
    """What libraries log as a warning or worse."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    yield messages
    logging.getLogger().removeHandler(handler)


@pytest.mark.slow
def test_formulas_use_commands_that_can_be_set(warned: list[str]):
    """Of docstrings and of pages, all of whose formulas are set where the site is built."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    trees = [ast.walk(ast.parse(path.read_text())) for path in SOURCES]
    texts = [ast.get_docstring(node) for tree in trees for node in tree if isinstance(node, kinds)]
    texts += [page, *(path.read_text() for path in PAGES)]
    written = sorted({latex for text in texts if text for latex in marked(text)}, key=len)
    seen: set[str] = set()
    for latex in written:
        commands = set(re.findall(r"\\[A-Za-z]+|[^\x00-\x7f]", latex))
        if not commands <= seen:  # the shortest formula with each command
            assert formula(latex)
        seen |= commands
    assert len(seen) > 50
    assert warned == []


def test_pages_that_are_written_at_the_build_say_so_in_the_repository() -> None:
    """The note is hidden on the site by a rule of the style sheet."""
    marks = re.compile(r"^:::|^<!-- (metrics|abstracts)|<!-- erratum", re.M)
    written = [page for page in PAGES if marks.search(page.read_text())]
    assert len(written) >= 12
    for page in written:
        address = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        head = page.read_text().partition("</p>")[0]
        assert '<p class="in-repository">' in head, page
        assert f"https://ncscope.github.io/ncscope/{address}/" in head
        assert "<code>make docs</code>" in head
    assert ".in-repository { display: none; }" in (ROOT / "docs" / "style.css").read_text()
