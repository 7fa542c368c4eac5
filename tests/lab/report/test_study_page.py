"""The page of a study in a real browser, and its tables."""

import io

import pytest
from rich.console import Console

from ncscope.lab import studies
from ncscope.lab.report.rows import last_rows, recipes_table, rows_table
from ncscope.lab.studies import reproduce
from tests.lab.papers import halving


@pytest.fixture
def page_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "experiment", lambda name: halving.RECIPE)
    return reproduce("halving", out=tmp_path).page


def test_the_page_shows_its_figures_and_asks_the_network_for_nothing(page_of_a_run, browser):
    page = browser.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_of_a_run.as_uri())
    image = page.locator("figure img")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 100
    assert image.get_attribute("alt") == "Figure 1, described below"
    headings = page.locator("h1, h2").all_inner_texts()
    assert headings == ["Halving", "Findings", "Last measurements", "Configuration"]
    assert page.locator(".verdict").all_inner_texts() == ["✓ held", "✕ not held"]
    assert page.locator("table.rows td").all_inner_texts() == [
        "3",
        "1",
        "0",
        "3",
        "-1",
        "undefined",
    ]
    page.set_viewport_size({"width": 300, "height": 600})
    assert image.evaluate("image => image.clientWidth") >= 280  # of 4 inches: it can be read
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()


def printed(table):
    out = io.StringIO()
    Console(file=out, width=80).print(table)
    return out.getvalue()


def test_last_rows_keep_the_latest_of_every_layer_in_order():
    rows = [
        {"part": "a", "layer": layer, "step": step} for step in (0, 5) for layer in ("low", "high")
    ]
    assert last_rows([*rows, {"part": "b", "layer": "low", "step": 1}]) == {
        "a": [{"part": "a", "layer": "low", "step": 5}, {"part": "a", "layer": "high", "step": 5}],
        "b": [{"part": "b", "layer": "low", "step": 1}],
    }


def test_held_out_images_have_a_row_of_their_own():
    rows = [
        {"part": "a", "layer": "low", "split": split, "nc1": 0.5} for split in ("train", "test")
    ]
    assert last_rows(rows) == {"a": rows}
    assert "low, test" in printed(rows_table(rows, ["nc1"]))


def test_the_table_shows_the_columns_and_leaves_blank_what_a_row_lacks():
    text = printed(
        rows_table([{"part": "a", "layer": "low", "step": 2, "nc1": 1e-9}], ("nc1", "x"))
    )
    assert "1e-09" in text
    assert "low" in text


def test_experiments_stand_with_what_they_take():
    text = printed(recipes_table([("test/halving", "Halving.", halving.RECIPE.cost)]))
    assert "test/halving" in text
    assert "paper: nothing" in text
