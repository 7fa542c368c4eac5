"""Every item leads to something that exists, and everything of a paper is an item."""

import re
from importlib import import_module
from itertools import chain

import pytest

from ncscope.lab.catalogue import EXPERIMENTS, experiment
from ncscope.lab.inventory.item import Item
from ncscope.lab.inventory.table import ITEMS, items_of, labels_of
from ncscope.lab.report.verdicts import PAPERS
from ncscope.lab.theory.table import STATEMENTS
from ncscope.metrics.registry import METRICS

ALL = list(chain.from_iterable(ITEMS.values()))
TAGS = tuple(ITEMS)
THEIRS = [one.id for one in STATEMENTS if one.source.split()[0] in TAGS]


def named(item: Item) -> str:
    return f"{item.paper}, {item.label}"


def resolved(name: str) -> object:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


@pytest.mark.parametrize("item", ALL, ids=named)
def test_places_of_an_item_exist(item: Item):
    assert set(item.metrics) <= set(METRICS)
    assert set(item.statements) <= {one.id for one in STATEMENTS}
    assert set(item.experiments) <= set(EXPERIMENTS)
    for name in item.code:
        assert name.startswith("ncscope.")
        assert not any(part.startswith("_") for part in name.split("."))
        resolved(name)


@pytest.mark.parametrize("item", ALL, ids=named)
def test_statements_and_experiments_of_an_item_are_of_its_paper(item: Item):
    for name in (*item.statements, *item.experiments):
        assert name.partition("/")[0] == item.paper.lower()


def test_papers_are_those_with_verdicts():
    assert set(TAGS) == set(PAPERS) - {"ours"}


@pytest.mark.parametrize("paper", TAGS)
def test_labels_are_unique_and_of_the_paper(paper: str):
    labels = [item.label for item in ITEMS[paper]]
    assert len(set(labels)) == len(labels)
    assert {item.paper for item in ITEMS[paper]} == {paper}


@pytest.mark.parametrize("item", ALL, ids=named)
def test_a_label_is_read_as_itself(item: Item):
    if item.label.startswith("remark"):
        assert item in items_of(named(item))
    else:
        assert labels_of(named(item)) == [item.label]
        assert items_of(named(item)) == [item]


@pytest.mark.parametrize("item", ALL, ids=named)
def test_content_is_one_plain_sentence(item: Item):
    assert item.content.endswith(".")
    assert item.content[0].isupper() or item.content[0] == "("
    assert len(item.content) <= 110
    assert not item.note.endswith(".")


@pytest.mark.parametrize("name", THEIRS)
def test_a_statement_is_an_item(name: str):
    assert any(name in item.statements for item in ALL)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_belongs_to_an_item(name: str):
    assert any(name in item.experiments for item in ALL)


@pytest.mark.parametrize("key", METRICS)
def test_a_metric_is_an_item_of_every_paper_that_defines_it(key: str):
    for paper in re.findall(rf"\b({'|'.join(TAGS)})\b", METRICS[key].source):
        assert any(key in item.metrics for item in ITEMS[paper]), paper


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_figures_and_tables_of_a_recipe_list_the_recipe(name: str):
    recipe = experiment(name)
    wanted = {label for label in labels_of(recipe.source) if label.startswith(("figure", "table"))}
    listed = {item.label for item in items_of(recipe.source) if name in item.experiments}
    assert wanted <= listed


@pytest.mark.parametrize(
    ("source", "labels"),
    [
        ("VCI", []),
        ("ours", []),
        ("VCI, figure 2", ["figure 2"]),
        ("VCI, section 4.3", ["section 4.3"]),
        ("VCI, tables 1-2", ["table 1", "table 2"]),
        ("XUFM, figures 1-2 and 6-7", ["figure 1", "figure 2", "figure 6", "figure 7"]),
        ("XUFM, section 6, figures 3 and 4", ["section 6", "figure 3", "figure 4"]),
        ("XUFM, theorem 4.2, its assumption", ["theorem 4.2"]),
        ("MSE, corollaries 1 and 2, appendix D", ["corollary 1", "corollary 2", "appendix D"]),
        ("MSE, appendix A.7", ["appendix A.7"]),
        ("PFC, section IV-A, table I", ["section IV-A", "table I"]),
        ("PFC, (12)", ["equation 12"]),
    ],
)
def test_labels_of_a_source(source: str, labels: list[str]):
    assert labels_of(source) == labels


def test_items_are_of_the_paper_that_the_source_names():
    assert [named(item) for item in items_of("MSE, figure 3")] == ["MSE, figure 3"]
    assert items_of("ours") == []
    assert items_of("Galanti 2021, figure 3") == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"coverage": "missing", "note": "not built", "metrics": ("nc1",)}, "has places"),
        ({}, "has no places"),
        ({"coverage": "partial", "metrics": ("nc1",)}, "has no note"),
        ({"coverage": "missing"}, "has no note"),
        ({"coverage": "illustration"}, "has no note"),
    ],
)
def test_an_item_that_contradicts_itself_is_refused(wrong: dict, message: str):
    with pytest.raises(ValueError, match=f"VCI, figure 2 .*{message}"):
        Item(paper="VCI", label="figure 2", content="A figure.", **wrong)
