"""The page of a ranking in a real browser."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from ncscope.api.transfer import TransferReport
from ncscope.report.transfer import format_ranking_latex
from ncscope.transfer.intervals import Answers
from ncscope.transfer.records import CheckpointResult, Ranking, rank_results
from ncscope.transfer.samples import check_downstream
from ncscope.transfer.scores.all_scores import sample_scores

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RIGHT = (150, 147, 136, 110, 90)


def make_ranking(*right: int) -> Ranking:
    """Checkpoints that decide so many of 200 samples right, each the first of them."""
    made = []
    for place, count in enumerate(right):
        answers = Answers(torch.arange(200) < count, torch.tensor([100, 100]))
        name = f"runs/<b>{place}</b>/a_long_name_of_a_checkpoint.safetensors"
        scores = {"vci": place / 100, "log_me": -place / 100}
        made.append(CheckpointResult(name, scores, count / 200, 0.1, answers, size=(800, 2, 4)))
    return rank_results(made)


def open_page(browser: "Browser", path: Path, width: int, height: int) -> "Page":
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(path.as_uri())
    return page


def box(page: "Page", selector: str, index: int = 0) -> dict[str, float]:
    return page.locator(selector).nth(index).bounding_box()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transfer")
    facts = {"data": "flowers", "train": 800, "test": 200}
    return TransferReport(make_ranking(*RIGHT), facts).save(folder / "ranking.html")


@pytest.mark.slow
def test_the_first_screen_holds_the_ranking_and_its_chart(browser: "Browser", path: Path):
    page = open_page(browser, path, 1280, 900)
    lead = page.locator(".lead").inner_text()
    assert lead.startswith("runs/<b>0</b>/a_long_name_of_a_checkpoint.safetensors is best: top-1")
    words = [text.partition("\n")[0] for text in page.locator("tbody .gap").all_inner_texts()[:5]]
    assert words == ["", "not separable", "separable", "separable", "separable"]
    axis = box(page, ".ranking tfoot")
    assert axis["y"] + axis["height"] < 900
    dots = [box(page, ".ranking b", row) for row in range(5)]
    at = [dot["x"] + dot["width"] / 2 for dot in dots]
    for row, count in enumerate(RIGHT):  # one scale for all, the rows of the table
        share = (at[row] - at[0]) / (at[-1] - at[0])
        assert share == pytest.approx((RIGHT[0] - count) / (RIGHT[0] - RIGHT[-1]), abs=0.01)
        line, name = box(page, ".ranking .range", row), box(page, ".ranking tbody th", row)
        assert line["x"] < at[row] < line["x"] + line["width"]
        assert name["y"] <= line["y"] <= name["y"] + name["height"]
    hollow = page.evaluate(
        "[...document.querySelectorAll('.ranking b')].map(dot => {"
        "const s = getComputedStyle(dot); return s.backgroundColor != s.borderTopColor})"
    )
    assert hollow == [False, False, True, True, True]
    ticks = page.locator(".ranking tfoot .dots span").all_inner_texts()
    assert ticks == sorted(ticks)
    assert len(ticks) >= 3
    page.close()


def test_the_menu_leads_to_every_section(browser: "Browser", path: Path):
    page = open_page(browser, path, 1280, 900)
    links = page.locator("nav[aria-label=Sections] a")
    assert links.all_inner_texts() == ["Ranking", "Scores", "Figure"]
    assert page.locator("section").count() == 3
    for number in range(3):
        links.nth(number).click()
        target = page.locator(str(links.nth(number).get_attribute("href")))
        assert target.evaluate("each => each.closest('section') !== null")
    page.close()


def test_tables_of_scores_are_folded_below_and_the_panels_come_last(browser: "Browser", path: Path):
    page = open_page(browser, path, 1280, 900)
    titles = page.locator(".folds details:not(.notes) > summary").all_inner_texts()
    assert titles[:2] == ["Which score to trust", "Strengths and variability"]
    assert not page.locator("table.rows").first.is_visible()
    page.locator("summary").first.click()
    assert page.locator("table.rows").first.is_visible()
    assert box(page, ".plate")["y"] > box(page, ".folds")["y"] > box(page, ".ranking")["y"]
    page.close()


def test_a_telephone_shows_all_without_scrolling_sideways(browser: "Browser", path: Path):
    page = open_page(browser, path, 390, 844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for row in range(5):
        for part in ("th", ".accuracy", ".dots"):
            own = box(page, f".ranking tbody {part}", row)
            assert 0 <= own["x"] < own["x"] + own["width"] <= 390
    assert "not separable from the first" in page.locator("tbody .gap").nth(1).inner_text()
    page.close()


@pytest.mark.slow
def test_a_long_ranking_folds_its_end_and_a_single_row_compares_with_none(
    browser: "Browser", tmp_path: Path
):
    long = TransferReport(make_ranking(*range(180, 166, -1))).save(tmp_path / "long.html")
    page = open_page(browser, long, 1280, 900)
    rows = page.locator(".ranking tbody tr")
    assert [rows.nth(row).is_visible() for row in (11, 12, 13)] == [True, False, False]
    page.get_by_text("2 more below").click()
    assert rows.nth(13).is_visible()
    first, last = box(page, ".ranking .dots"), box(page, ".ranking tbody .dots", 13)
    assert first["x"] == pytest.approx(last["x"], abs=2)
    page.close()
    alone = TransferReport(make_ranking(180)).save(tmp_path / "alone.html").read_text()
    assert "From the first" not in alone
    assert "eparable" not in alone.partition("</style>")[2]


def test_a_table_says_its_sizes_and_what_a_dash_is():
    ranking = make_ranking(9, 8)
    checkpoints = [
        replace(each, size=(600, 10, 2**place)) for place, each in enumerate(ranking.checkpoints)
    ]
    lines = format_ranking_latex(replace(ranking, checkpoints=checkpoints)).splitlines()
    rows = [line for line in lines if line.startswith("1 &")]
    assert [row.endswith(r"& -- & -- \\") for row in rows] == [True]
    held_out = len(checkpoints[0].answers.correct)
    assert (
        rf"$n$ = 600, $K$ = 10, $d$ = 1 and 2; accuracies of {held_out} held-out samples"
        in "\n".join(lines)
    )
    assert any("--: the first itself" in line for line in lines)
    assert "held-out" in format_ranking_latex(ranking)


def test_an_error_of_rounding_is_no_error():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    apart = torch.eye(4)[labels]
    for noise, has_error in ((0.0, False), (1.0, True)):
        features = apart + noise * torch.randn(40, 4, generator=generator)
        scores = sample_scores(check_downstream(features.double(), labels), expensive=False)
        assert ("explained_entropy" in scores.errors) is has_error
