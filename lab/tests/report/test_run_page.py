"""The page of a run in a real browser, and its tables."""

import io

import pytest
from lab.tests.tiny import halving
from lab.tests.tiny.halving import list_alone
from rich.console import Console

from ncscope_lab import execution
from ncscope_lab.observations import Observation
from ncscope_lab.report.rows import costs_table, last_rows, rows_table


@pytest.fixture
def page_of_a_run(tmp_path, monkeypatch):
    list_alone(monkeypatch, halving.EXPERIMENT)
    return execution.run("halving", out=tmp_path).page


@pytest.mark.slow
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
    assert headings == ["Halving", "Findings", "Every number", "Settings and provenance"]
    assert page.locator(".claims .verdict").all_inner_texts() == ["✓ held", "✕ not held"]
    assert page.locator("table.rows td").all_text_contents() == [
        "3",
        "1",
        "0",
        "3",
        "-1",
        "undefined",
    ]
    inverted = "image => getComputedStyle(image).filter"
    page.emulate_media(color_scheme="light")
    assert image.evaluate(inverted) == "none"
    page.emulate_media(color_scheme="dark")
    assert image.evaluate(inverted) == "invert(1) hue-rotate(180deg)"
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
        Observation(step, step, layer=layer, part="a")
        for step in (0, 5)
        for layer in ("low", "high")
    ]
    other = Observation(1, 1, layer="low", part="b")
    assert last_rows([*rows, other]) == {
        "a": [
            Observation(5, 5, layer="low", part="a"),
            Observation(5, 5, layer="high", part="a"),
        ],
        "b": [other],
    }


def test_held_out_images_have_a_row_of_their_own():
    rows = [
        Observation(0, 0, split, "low", part="a", values={"nc1": 0.5})
        for split in ("train", "test")
    ]
    assert last_rows(rows) == {"a": rows}
    assert "low, test" in printed(rows_table(rows, ["nc1"]))


def test_the_table_shows_the_columns_and_leaves_blank_what_a_row_lacks():
    row = Observation(2, 2, layer="low", part="a", values={"nc1": 1e-9})
    text = printed(rows_table([row], ("nc1", "x")))
    assert "1e-09" in text
    assert "low" in text


def test_experiments_stand_with_what_they_take():
    costs = [("test/halving", "Halving.", halving.EXPERIMENT.cost)]
    text = printed(costs_table(costs, "Ours"))
    assert all(words in text for words in ("Ours", "experiment", "test/halving"))
    assert "paper: nothing" in text
