"""The section on single classes, in a real browser: desktop, phone and dark."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from matplotlib.figure import Figure
from playwright.sync_api import Browser, Page

import ncscope
from ncscope.report.classes import MOST_CHARTED, MOST_LISTED, describe_classes
from ncscope.report.figures import plot_classes

NAMES = ("cat", "dog", "<b>bird</b>", "a class with a very long name indeed")
CHARTS = ("classes-overlap", "classes-spread", "classes-accuracy")
DRAWN = "[...document.querySelectorAll('#classes .chart')].every((c) => c.dataset.drawn === 'true')"
TICKS = "(id) => [...document.querySelectorAll(`#${id} .ytick text`)].map((t) => t.textContent)"
Open = Callable[..., Page]


def report(k: int, spread: float = 1.0, head: bool = True) -> ncscope.Report:
    """Classes 0 and 1 have nearly one mean."""
    draws = torch.Generator().manual_seed(0)
    means = 3 * torch.randn(k, 8, generator=draws)
    means[1] = means[0] + 0.2
    labels = torch.arange(20 * k) % k
    features = means[labels] + spread * torch.randn(20 * k, 8, generator=draws)
    return ncscope.measure(features, labels, means - means.mean(0) if head else None)


def test_no_class_is_singled_out_where_several_tie() -> None:
    def read(k: int) -> str:
        means = 10 * torch.arange(float(k))  # on a line: every neighbour is as near
        noise = torch.tensor([-0.1, 0.1])
        features = (means[:, None] + noise).reshape(-1, 1)
        measured = ncscope.measure(features, torch.arange(2 * k) // 2, torch.zeros(k, 1))
        names = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu"][:k]
        return " ".join(describe_classes(measured.per_class.table, names))

    assert "pairs of classes: ant and bee; bee and cat, with a CDNV of 0.0001." in read(3)
    assert "variance: ant, bee and cat have 33.3 % of it each." in read(3)
    assert "by the head: bee and cat, 0 %." in read(3)  # the head decides for the first class
    assert "pairs of classes: 6 pairs alike" in read(7)
    assert "variance: 7 of 7 classes alike have 14.3 % of it each." in read(7)
    assert "by the head: 6 of 7 classes alike, 0 %." in read(7)
    assert "separated pair of classes: ant and bee, with a CDNV" in read(2)
    assert "at 1 times the typical distance" in read(2)


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def show(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Show a report; every page has one address, so that its scripts are compiled once."""
    path = tmp_path_factory.getbasetemp() / "classes.html"
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def shown(measured: ncscope.Report | ncscope.History, width: int = 1280) -> Page:
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(measured.save(path).as_uri())
        page.wait_for_function(DRAWN)
        return page

    yield shown
    assert complaints == []


@pytest.mark.slow
def test_charts_and_table_have_the_worst_class_first_by_name(show: Open) -> None:
    measured = report(4)
    measured.class_names = NAMES
    page = show(measured)
    worst = [row["class_name"] for row in measured.per_class.rows()]
    for chart in CHARTS:
        ticks = page.evaluate(TICKS, chart)
        assert [tick.rstrip("…") for tick in ticks] == [
            name[: len(tick.rstrip("…"))] for name, tick in zip(worst, ticks, strict=True)
        ]
    rows = page.locator(".classes tbody th").all_text_contents()
    assert rows == worst
    reading = page.locator("#classes .reading").inner_text()
    assert "Least separated pair of classes: cat and dog, " in reading
    assert {"cat", "dog"} == set(worst[:2])


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_many_classes_fit_the_page(show: Open, width: int) -> None:
    page = show(report(60), width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".classes tbody tr").count() == MOST_LISTED
    assert len(page.evaluate(TICKS, CHARTS[0])) == MOST_CHARTED
    boxes = [page.locator(f"#{chart}").bounding_box() for chart in CHARTS]
    below = [later["y"] >= box["y"] + box["height"] for box, later in pairwise(boxes)]
    assert below == [width < 760] * 2
    # Labels of neighbouring rows do not touch.
    tops = page.evaluate(
        "[...document.querySelectorAll('#classes-overlap .ytick text')]"
        ".map((t) => t.getBoundingClientRect()).map((b) => [b.top, b.bottom])"
    )
    tops.sort()
    assert all(lower[0] >= upper[1] - 1 for upper, lower in pairwise(tops))


@pytest.mark.slow
def test_the_camera_is_above_the_dots(show: Open) -> None:
    page = show(report(12))
    for chart in CHARTS:
        page.locator(f"#{chart}").hover(position={"x": 120, "y": 90})
        icon = page.locator(f"#{chart} .modebar-btn").bounding_box()
        dots = page.locator(f"#{chart} .point")
        first = min(dots.nth(index).bounding_box()["y"] for index in range(dots.count()))
        assert icon["height"] > 0
        assert icon["y"] + icon["height"] <= first


@pytest.mark.slow
def test_colours_follow_the_scheme_and_the_slider_the_steps(show: Open) -> None:
    history = ncscope.History()
    for step, spread in enumerate((2.0, 0.5)):
        history.add(report(4, spread), step=step)
    page = show(history)
    dot = "getComputedStyle(document.querySelector('#classes-overlap .point')).fill"
    light = page.evaluate(dot)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{dot} !== {light!r}")
    page.emulate_media(color_scheme="light")
    last = page.locator("#classes .reading").inner_text()
    page.locator("#classes .frame-time").fill("0")
    page.wait_for_function(
        "(last) => document.querySelector('#classes .reading').innerText !== last", arg=last
    )


@pytest.mark.slow
def test_without_accuracies_there_are_two_panels(show: Open) -> None:
    moments = ncscope.ClassMoments(num_classes=3, dim=2)
    moments.update(
        torch.tensor([[0.0, 1], [2, 1], [-1, 1], [3, 1], [9, 0], [9, 1]]), torch.arange(6) // 2
    )
    page = show(ncscope.measure_moments(moments))
    assert page.locator("#classes .chart").count() == 2
    assert page.locator("#classes-overlap .annotation-text").all_text_contents() == ["∞", "∞"]
    assert "coincide" in page.locator("#classes .reading").inner_text()


def test_figure() -> None:
    figure = plot_classes(report(4).record.per_class, NAMES)
    assert isinstance(figure, Figure)
    overlap, _, accuracy = figure.axes
    assert {text.get_text() for text in overlap.get_yticklabels()[:2]} == {"cat", "dog"}
    assert len(overlap.lines) == 4
    assert [line.get_label() for line in accuracy.lines] == ["nearest mean", "head"]
    assert len(plot_classes(report(40, head=False).record.per_class).axes[0].lines) == MOST_CHARTED
