"""The HTML of reports in a notebook: headline first, nothing lost, a style that stays inside."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.report.labels import find_label
from ncscope.report.notebook import (
    build_headline,
    render_comparison_fragment,
    render_history_fragment,
    render_model_fragment,
)
from ncscope.report.wording import typeset

Fragments = dict[str, tuple[str, list[LayerRecord]]]


class Reader(HTMLParser):
    """Text of the parts of a fragment: before the first fold, in the folds, and the style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"open": [], "folded": [], "style": []}
        self.tags: list[str] = []
        self.unclosed: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag != "wbr":
            self.unclosed.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed.pop() == tag

    def handle_data(self, data: str) -> None:
        part = "folded" if "details" in self.unclosed else "open"
        self.texts["style" if "style" in self.unclosed else part].append(data)

    def read(self, part: str) -> str:
        return "".join(self.texts[part])


@pytest.fixture(scope="module")
def fragments(measurements: list[Measurement], single_layer: ModelRecord) -> Fragments:
    last = [each.model_record for each in measurements if each.step == 40]
    ends = [each.model_record.layers[-1] for each in measurements if each.step in (0, 40)]
    numbered = [replace(each, values={"lr": 0.125}) for each in measurements]
    named = {"one": last[0], "other": last[1], "single": single_layer}
    return {
        "model": (render_model_fragment(last[0]), list(last[0].layers)),
        "single": (render_model_fragment(single_layer), list(single_layer.layers)),
        "history": (
            render_history_fragment(numbered),
            [replace(each, metrics={**each.metrics, "lr": 0.125}) for each in ends],
        ),
        "comparison": (
            render_comparison_fragment(named),
            [each.layers[-1] for each in named.values()],
        ),
    }


@pytest.mark.parametrize("kind", ["model", "single", "history", "comparison"])
def test_the_headline_is_first_and_the_folds_hold_every_number(
    fragments: Fragments, kind: str
) -> None:
    html, records = fragments[kind]
    reader = Reader(html)
    titles = [html.index(f">{title}<small>") for title in ("NC1", "NC2", "NC4", "Nearest mean")]
    assert titles == sorted(titles)
    assert max(titles) < html.index("<details")
    assert "collapsed at" in reader.read("open")
    folded = reader.read("folded")
    for record in records:
        for key, value in record.metrics.items():
            assert find_label(key).key in folded
            assert typeset(value, 4) in folded
        for note in record.notes:
            assert note in folded
    assert "script" not in reader.tags
    assert reader.unclosed == []


@pytest.mark.parametrize("kind", ["model", "history"])
def test_the_style_touches_nothing_else_and_sets_no_colour_of_its_own(
    fragments: Fragments, kind: str
) -> None:
    style = Reader(fragments[kind][0]).read("style")
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", style)
    assert len(rules) > 15
    for selectors, body in rules:
        for selector in selectors.split(","):
            assert re.match(r"\.ncscope[ .]", selector.strip()), selector
        # Any theme's ink and paper stay: the only other colours are grey lines and a mark.
        assert set(re.findall(r"(?<!-)\bcolor: ([^;]+)", body)) <= {"inherit"}
        assert set(re.findall(r"background: ([^;]+)", body)) <= {"none"}
    assert "@" not in style


def test_a_headline_shows_interval_and_chance_and_takes_what_most_rows_have() -> None:
    def make(**metrics: float) -> LayerRecord:
        return LayerRecord("h", metrics, (), 4, 40, 8)

    last = replace(
        make(nc1=0.25, nc1_quotient=0.5, accuracy=0.75),
        standard_errors={"nc1": 0.01},
        bias_corrected={"nc1": 0.25},
        baseline={"accuracy": 0.25},
    )
    alone = build_headline({"last": last})
    assert [(title, metric.key) for title, metric in alone.columns] == [
        ("NC1", "nc1"),
        ("Accuracy", "accuracy"),
    ]
    ((name, cells, strong),) = alone.rows
    assert (name, strong, [cell.value for cell in cells]) == ("last", True, ["0.25", "0.75"])
    assert (cells[0].interval, cells[0].chance) == ("0.229 to 0.273", "")
    assert (cells[1].interval, cells[1].chance) == ("", "0.25")
    assert alone.collapsed == ["0 ↓", "1 ↑"]
    layers = build_headline({"first": make(nc1_quotient=2.0), "last": last}, strong=["last"])
    assert [metric.key for _, metric in layers.columns] == ["nc1_quotient", "accuracy"]
    assert [[cell.value for cell in row[1]] for row in layers.rows] == [["2", ""], ["0.5", "0.75"]]
    assert [row[2] for row in layers.rows] == [False, True]
    unusual = build_headline({"h": make(novel=3.0)})
    assert [metric.key for _, metric in unusual.columns] == ["novel"]
    assert unusual.collapsed == ()


def test_many_runs_show_twelve_rows_and_fold_the_others(measurements: list[Measurement]) -> None:
    runs = [replace(each, run=f"run{run}") for run in range(9) for each in measurements]
    reader = Reader(render_history_fragment(runs))
    assert reader.read("open").count("epoch 40") == 12
    assert "First and last epoch of all 9 runs" in reader.read("folded")
    assert "run8, test, epoch 0" in reader.read("folded")


def test_names_are_escaped(bare: ModelRecord) -> None:
    html = render_comparison_fragment({"<b>\x1b[31m": bare})
    assert "<script" not in html
    assert "<b>" not in html
    assert "\x1b" not in html
