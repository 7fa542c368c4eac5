"""Every item leads to something that exists, and everything of a paper is an item."""

import re
from importlib import import_module
from itertools import chain

import pytest

from ncscope.metrics.registry import METRICS
from ncscope_lab.catalogue import EXPERIMENTS, REPRODUCTIONS, find_experiment
from ncscope_lab.report.verdicts import PAPERS
from ncscope_lab.theory.table import STATEMENTS
from tests.docs.pages import load_hook

inventory = load_hook("inventory")
ITEMS, Item = inventory.ITEMS, inventory.Item
items_of, labels_of = inventory.items_of, inventory.labels_of

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


each_paper = pytest.mark.parametrize("paper", TAGS)


@each_paper
def test_places_of_items_exist(paper: str):
    for item in ITEMS[paper]:
        assert set(item.metrics) <= set(METRICS), item
        assert set(item.statements) <= {one.id for one in STATEMENTS}, item
        assert set(item.experiments) <= set(EXPERIMENTS), item
        for name in item.code:
            assert name.startswith(("ncscope.", "ncscope_lab.")), item
            assert not any(part.startswith("_") for part in name.split(".")), item
            resolved(name)


@each_paper
def test_statements_and_experiments_of_items_are_of_their_paper(paper: str):
    for item in ITEMS[paper]:
        named_in = (*item.statements, *item.experiments)
        assert {name.partition("/")[0] for name in named_in} <= {paper.lower()}, item


def test_papers_are_those_with_verdicts():
    assert set(TAGS) == set(PAPERS) - {"ours"}


@each_paper
def test_labels_are_unique_and_of_the_paper(paper: str):
    labels = [item.label for item in ITEMS[paper]]
    assert len(set(labels)) == len(labels)
    assert {item.paper for item in ITEMS[paper]} == {paper}


@each_paper
def test_labels_are_read_as_themselves(paper: str):
    for item in ITEMS[paper]:
        if item.label.startswith("remark"):
            assert item in items_of(named(item))
        else:
            assert labels_of(named(item)) == [item.label]
            assert items_of(named(item)) == [item]


@each_paper
def test_contents_are_one_plain_sentence(paper: str):
    for item in ITEMS[paper]:
        assert item.content.endswith("."), item
        assert item.content[0].isupper() or item.content[0] == "(", item
        assert len(item.content) <= 110, item
        assert not item.note.endswith("."), item


def test_statements_and_experiments_belong_to_items():
    assert set(THEIRS) <= {name for item in ALL for name in item.statements}
    assert set(REPRODUCTIONS) <= {name for item in ALL for name in item.experiments}


@each_paper
def test_metrics_that_a_paper_defines_are_its_items(paper: str):
    defined = {key for key, row in METRICS.items() if re.search(rf"\b{paper}\b", row.source)}
    assert defined <= {key for item in ITEMS[paper] for key in item.metrics}


def test_figures_and_tables_of_experiments_list_the_experiment():
    for name in REPRODUCTIONS:
        source = find_experiment(name).source
        wanted = {label for label in labels_of(source) if label.startswith(("figure", "table"))}
        listed = {item.label for item in items_of(source) if name in item.experiments}
        assert wanted <= listed, name


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


def test_files_are_those_of_the_papers():
    names = {file.stem.upper() for file in inventory.FOLDER.glob("*.yaml")}
    assert names == {*TAGS, "ABSTRACTS"}
