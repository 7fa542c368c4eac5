"""The pages, seen in a real browser."""

import base64
import gzip
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Request

from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord
from ncscope.metrics.registry import METRICS
from ncscope.report.comparison import ComparisonSource, render_comparison_page
from ncscope.report.curves import describe_layers
from ncscope.report.formulas import formula
from ncscope.report.overview import (
    build_details,
    build_headlines,
    choose_headlines,
    describe_history,
    flatten_config,
    select_last,
)
from ncscope.report.page import (
    build_history_view,
    render_history_page,
    render_model_page,
    render_page,
)
from ncscope.report.payload import build_profile

from ..pace import others_slow

CLAIMS = [
    SimpleNamespace(
        text="PFC1 falls at every layer.",
        source="PFC, figure 2",
        verdict="held",
        evidence="5 of 5 <pairs> fall",
    ),
    SimpleNamespace(
        text="Test features collapse as far.",
        source="ours",
        verdict="not held",
        evidence="0.4 against 0.1",
    ),
]
CONFIG = {"seed": 0, "optimizer": {"lr": 0.1}, "measure_at": [0, 1]}
HEADLINES = [
    *("nc1_quotient", "nc2_etf", "nc3_self_duality", "nc4_disagreement"),
    *("ncc_accuracy", "accuracy"),
]
GRAM_CHARTS = ("gram-measured", "gram-difference")
RUN_CHARTS = [
    *(f"headline-{key}" for key in HEADLINES),
    "history-chart",
    *(f"layers-pfc{number}" for number in (1, 2, 3)),
    *GRAM_CHARTS,
    "spectra-eigenvalues",
    "spectra-snr",
]
Open = Callable[..., Page]
Scheme = Literal["light", "dark"]
SHOWN = "[...document.querySelectorAll('section:not(.absent) .chart')]"
DRAWN = f"{SHOWN}.every((chart) => chart.dataset.drawn === 'true')"

RESET = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const set = (node, value) => {
    if (node.value === value) return;
    node.value = value;
    node.dispatchEvent(new Event(node.type === "range" ? "input" : "change"));
  };
  all(".time button").filter((b) => b.textContent === "Stop").forEach((b) => b.click());
  all(".frame-split").forEach((node) => set(node, "train"));
  all(".frame-time").forEach((node) => set(node, node.max));
  all(".layers-axis").forEach((node) => set(node, "position"));
  all("#history-metric").forEach((node) => set(node, "nc1_quotient"));
  all("input[type=checkbox]").filter((box) => !box.checked).forEach((box) => box.click());
  all('.legend button[aria-pressed="false"]').forEach((button) => button.click());
}"""


@pytest.fixture(scope="module")
def complaints() -> list[str]:
    """Console messages, uncaught errors and requests for anything but the page itself."""
    return []


@pytest.fixture(autouse=True)
def _silent(complaints: list[str]) -> Iterator[None]:
    yield
    found = complaints.copy()
    complaints.clear()
    assert found == []


@pytest.fixture(scope="module")
def tab(browser: Browser, complaints: list[str]) -> Iterator[Callable[[], Page]]:
    """Opens a tab whose messages, errors and requests to the network are complaints."""
    opened = []

    def open_tab() -> Page:
        page = browser.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend(foreign(request)))
        opened.append(page)
        return page

    yield open_tab
    for page in opened:
        page.close()


@pytest.fixture(scope="module")
def show(tab: Callable[[], Page], tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Shows a page and waits until every chart is drawn.

    The tab and the address are the same for every page: a browser compiles the pages' 4 MB of
    script once for both (1.6 s for the first page, 0.4 s for the next).
    """
    path, tabs = tmp_path_factory.mktemp("pages") / "page.html", []

    def shown(html: str, width: int = 1280, color_scheme: Scheme = "light") -> Page:
        tabs.append(tabs[0] if tabs else tab())
        return opened(tabs[0], html, path, width, color_scheme)

    return shown


def opened(
    page: Page, html: str, path: Path, width: int = 1280, color_scheme: Scheme = "light"
) -> Page:
    """Show `html` in a tab once every chart is drawn."""
    path.write_text(html, encoding="utf-8")
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media="screen", color_scheme=color_scheme)
    page.goto(path.as_uri())
    page.wait_for_function(DRAWN)
    return page


def foreign(request: Request) -> list[str]:
    """Name what a page asks for beside itself."""
    itself = request.is_navigation_request() or request.url.startswith(("data:", "blob:"))
    return [] if itself else [f"asked for {request.url}"]


@pytest.fixture(scope="module")
def run_html(measurements: list[Measurement]) -> str:
    run = {"name": "", "claims": CLAIMS, "tables": (), "images": (), "config": {}}
    run |= {"ended": True, "columns": (), "table": {}}
    return render_page(
        title="A run",
        lead="What it is about.",
        facts=describe_history(measurements, "epoch"),
        history=build_history_view(measurements, "epoch"),
        details=[
            build_details(probe, caption)
            for caption, probe in select_last(measurements, "epoch").items()
        ],
        runs=[run],
        config=flatten_config(CONFIG),
    )


@pytest.fixture(scope="module")
def window(
    tab: Callable[[], Page], run_html: str, tmp_path_factory: pytest.TempPathFactory
) -> Page:
    return opened(tab(), run_html, tmp_path_factory.mktemp("run") / "run.html")


@pytest.fixture
def run(window: Page) -> Page:
    """The run's page, its controls as they are when it opens."""
    window.emulate_media(media="screen", color_scheme="light")
    window.evaluate(RESET)
    window.wait_for_timeout(60)
    return window


def unpack(html: str, place: str) -> str:
    """Return what a page holds packed."""
    (packed,) = re.findall(rf'id="{place}">([^<]+)<', html)
    return gzip.decompress(base64.b64decode(packed)).decode()


def drawn(page: Page, chart: str) -> list[dict[str, object]]:
    """The traces that Plotly holds for a chart."""
    script = "(id) => JSON.stringify(document.getElementById(id).data)"
    found: list[dict[str, object]] = json.loads(page.evaluate(script, chart))
    return found


def axis_range(page: Page, chart: str, axis: str) -> list[float]:
    script = "([id, axis]) => document.getElementById(id)._fullLayout[axis].range"
    found: list[float] = page.evaluate(script, [chart, axis])
    return found


def drawn_width(page: Page) -> int:
    width: int = page.evaluate("document.querySelector('#history-chart .main-svg').clientWidth")
    return width


def narrowed(page: Page) -> Page:
    """The page on a phone, once its charts have followed."""
    page.set_viewport_size({"width": 380, "height": 900})
    page.wait_for_function(
        "[...document.querySelectorAll('.chart .main-svg')].every((svg) => svg.clientWidth < 380)"
    )
    return page


def overflow(page: Page) -> int:
    width: int = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    return width


@contextmanager
def changes(page: Page, chart: str) -> Iterator[None]:
    before = drawn(page, chart)
    yield
    page.wait_for_timeout(60)
    assert drawn(page, chart) != before


def test_run_page_draws_every_chart(run: Page) -> None:
    charts = run.locator(".chart")
    assert [charts.nth(n).get_attribute("id") for n in range(charts.count())] == RUN_CHARTS
    assert run.locator(".chart .main-svg").count() >= len(RUN_CHARTS)
    assert all(charts.nth(n).get_attribute("aria-label") for n in range(charts.count()))


def test_run_page_holds_one_plotly_and_one_payload(run_html: str) -> None:
    assert unpack(run_html, "plotly").count("plotly.js v") == 1
    assert json.loads(unpack(run_html, "data"))["shown"] == ""
    assert len(run_html) < 2.2e6
    assert not re.search(r"<(?:script|img|iframe)[^>]*\ssrc=|@import|url\(http", run_html[:40_000])


def test_headings_come_in_order(run: Page) -> None:
    levels = run.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_claims_come_first_with_their_evidence(run: Page) -> None:
    first, second = run.locator("section").all()[:2]
    assert first.locator(".tally li").all_inner_texts() == ["1 held", "1 not held"]
    assert first.locator(".claims .verdict").all_inner_texts() == ["✓ held", "✕ not held"]
    assert "5 of 5 <pairs> fall" in first.inner_text()
    assert second.locator(".cell").count() == len(HEADLINES)
    # The run was measured without intervals.
    assert "No change is judged" in second.inner_text()


def test_metric_and_split_change_the_history(run: Page) -> None:
    assert len(drawn(run, "history-chart")) == 12
    with changes(run, "history-chart"):
        run.locator("#history-metric").select_option("ncc_accuracy")
    assert "nearest-class-mean accuracy" in run.locator("#history-about").inner_text().lower()
    assert run.locator("#history-about .formula").count() == 1
    with changes(run, "history-chart"):
        run.locator(".history-split[value=test]").uncheck()
    assert len(drawn(run, "history-chart")) == 6
    with changes(run, "history-chart"):
        run.locator("#history .legend button").first.click()
    assert len(drawn(run, "history-chart")) == 5


def test_epoch_zero_is_on_the_logarithmic_axis(run: Page, epochs: tuple[int, ...]) -> None:
    trace = drawn(run, "history-chart")[0]
    assert trace["x"][0] == 0  # type: ignore[index]
    assert trace["customdata"] == list(epochs)
    labels = run.locator("#history-chart .xaxislayer-above text").all_text_contents()
    assert labels[0] == "0"
    assert str(epochs[-1]) in labels
    assert "log(1 + t)" in run.locator("#history-chart .xtitle").text_content()
    with changes(run, "history-chart"):
        run.locator("#history-log").uncheck()
    assert drawn(run, "history-chart")[0]["x"] == list(epochs)


@pytest.mark.slow
def test_zero_has_its_place_below_the_logarithmic_scale(show: Open) -> None:
    def measured(epoch: int, *values: float) -> Measurement:
        layers = tuple(
            LayerRecord(name, {"nc1_quotient": value, "pfc1": value}, (), 2, 4, 3)
            for name, value in zip(("first", "last"), values, strict=True)
        )
        return Measurement(ModelRecord(layers), epoch)

    page = show(render_history_page("Zeros", [measured(0, 2.0, 0.5), measured(1, 1e-3, 0.0)]))
    for chart in ("history-chart", "layers-pfc1"):
        traces = drawn(page, chart)
        zero = traces[-1]["y"][-1]  # type: ignore[index]
        assert 1e-5 < zero < 0.7e-3
        assert traces[-1]["text"][-1] == 0  # type: ignore[index]
        labels = page.locator(f"#{chart} .yaxislayer-above text").all_text_contents()
        assert labels[0] == "0"
        assert labels[1].startswith("10") or float(labels[1]) >= 1e-3
        assert axis_range(page, chart, "yaxis")[0] < math.log10(zero)
    assert "exactly 0 stand at the mark 0" in page.locator("#history .reading").inner_text()
    assert "not drawn" not in page.locator("#history .reading").inner_text()


@pytest.mark.slow
def test_an_axis_of_zeros_alone_says_0(show: Open) -> None:
    layer = LayerRecord("only", {"nc1_quotient": 0.0}, (), 2, 4, 3)
    measurements = [Measurement(ModelRecord((layer,)), step) for step in (0, 1)]
    page = show(render_history_page("Zeros", measurements))
    assert page.locator("#history-chart .yaxislayer-above text").all_text_contents() == ["0"]
    assert len(drawn(page, "history-chart")) == 1


def test_a_line_has_a_gap_where_a_value_is_undefined_and_none_where_nothing_is(show: Open) -> None:
    def measure(epoch: int, value: float | None) -> Measurement:
        own = {} if value is None else {"nc1_quotient": value, "pfc1": value}
        layers = [
            LayerRecord(name, values, (), 3, 9, 3)
            for name, values in (("a", own), ("b", {"nc1_quotient": 1.0, "pfc1": 1.0}))
        ]
        return Measurement(ModelRecord(tuple(layers)), epoch)

    values = [0.5, math.nan, 0.25, None, 0.125]
    page = show(render_history_page("Gaps", list(map(measure, range(5), values))))
    for chart in ("history-chart", "headline-nc1_quotient"):
        first = drawn(page, chart)[0]
        assert first["x"] == [0, 1, 2, 4]
        assert first["y"] == [0.5, None, 0.25, 0.125]
        assert not first.get("connectgaps")
        assert page.locator(f"#{chart} .trace").first.locator(".js-line").count() == 2
    frames = build_profile(measure(0, math.nan).model_record)["gaps"]["pfc1"]
    assert (frames, build_profile(measure(0, None).model_record)["gaps"]["pfc1"]) == ([0], [])


@pytest.mark.parametrize(
    ("figure", "chart"),
    [("layers", "layers-pfc1"), ("gram", "gram-measured"), ("spectra", "spectra-eigenvalues")],
)
def test_slider_moves_the_chart_and_not_its_axis(
    run: Page, epochs: tuple[int, ...], figure: str, chart: str
) -> None:
    before = axis_range(run, chart, "yaxis")
    with changes(run, chart):
        run.locator(f"#{figure} .frame-time").fill("0")
    assert run.locator(f"#{figure} output").inner_text() == f"epoch {epochs[0]}"
    assert axis_range(run, chart, "yaxis") == pytest.approx(before)
    with changes(run, chart):
        run.locator(f"#{figure} .frame-split").select_option("test")
    if figure == "layers":
        with changes(run, chart):
            run.locator(f"#{figure} button", has_text="Play").click()
            run.wait_for_timeout(600)


def test_geodesic_and_effective_depth_stand_beside_the_layers(run: Page) -> None:
    assert len(drawn(run, "layers-pfc2")) == 2
    run.locator("#layers .layers-axis").select_option("layer")
    run.wait_for_timeout(60)
    assert len(drawn(run, "layers-pfc2")) == 1
    assert len(drawn(run, "layers-pfc2")[0]["x"]) == 6  # type: ignore[arg-type]
    assert run.locator("#layers-pfc3 .shapelayer path").count() == 1
    words = run.locator("#layers .reading").inner_text()
    assert "Effective depth" in words
    assert "without a relative position: stage1.block0 (d = 48)" in words


def test_difference_from_the_simplex_is_measured_minus_etf(run: Page) -> None:
    measured, gap = (drawn(run, chart)[0]["z"] for chart in GRAM_CHARTS)
    assert gap[0][0] == pytest.approx(0)  # type: ignore[index]
    assert gap[0][1] == pytest.approx(measured[0][1] + 0.2)  # type: ignore[index]


def test_numbers_below_the_noise_are_counted_and_not_drawn(run: Page) -> None:
    between = next(t for t in drawn(run, "spectra-eigenvalues") if t["name"] == "between classes")
    assert len(between["x"]) == 5  # type: ignore[arg-type]
    assert "Not drawn of the 6 values" in run.locator("#spectra .reading").inner_text()


@pytest.mark.slow
def test_nothing_hangs_over_the_edge_of_a_phone(show: Open, run_html: str) -> None:
    assert overflow(show(run_html, width=380)) <= 0


def test_nothing_hangs_over_the_edge_of_a_window_made_narrow(run: Page) -> None:
    assert overflow(narrowed(run)) <= 0
    run.set_viewport_size({"width": 1280, "height": 900})
    run.wait_for_function("document.querySelector('#history-chart .main-svg').clientWidth > 900")


@pytest.fixture(scope="module")
def glossary() -> str:
    """Every metric's formula in the style of the pages, and one in a line of text."""
    style = files("ncscope.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    entries = [f"<dd>{formula(row.formula, display=True)}</dd>" for row in METRICS.values()]
    mark = '<i style="display: inline-block"></i>'
    line = f'<p style="font-size: 40px">{mark}{formula("d")}<b>d</b>{formula("y")}</p>'
    definitions = f'<dl class="definitions">{"".join(entries)}</dl>'
    return f"<style>{style}</style><main>{line}{definitions}</main>"


@pytest.mark.slow
def test_a_formula_stands_on_the_line_as_high_as_the_letters(show: Open, glossary: str) -> None:
    page = show(glossary)
    drawn, mark, letter = (
        page.locator(f"p {tag}").first.bounding_box() for tag in ("svg", "i", "b")
    )
    assert drawn is not None
    assert mark is not None
    assert letter is not None
    assert drawn["y"] + drawn["height"] == pytest.approx(mark["y"], abs=1.5)
    assert 0.6 * 40 < drawn["height"] < 40
    below = page.locator("p svg").last.bounding_box()
    assert below is not None
    assert below["y"] + below["height"] == pytest.approx(mark["y"] + 0.2 * 40, abs=3)


def test_formulas_are_as_large_as_their_text_and_take_its_colour(show: Open, glossary: str) -> None:
    for scheme in ("light", "dark"):
        page = show(glossary, color_scheme=scheme)
        boxes = page.evaluate("""() => [...document.querySelectorAll("dd svg")].map((svg) => {
          const size = parseFloat(getComputedStyle(svg.closest("dd")).fontSize);
          const { width, height } = svg.getBoundingClientRect();
          const colours = [svg, svg.closest("dd")].map((node) => getComputedStyle(node));
          return [width / size, height / size, colours[0].fill === colours[1].color];
        })""")
        assert len(boxes) > len(METRICS)
        # A part of small letters alone, such as an alpha and an equals sign, is 0.45 em high.
        assert all(0.5 < width < 25 and 0.4 < height < 5 for width, height, _ in boxes)
        assert all(same for *_, same in boxes)


def test_long_formulas_break_on_a_phone(show: Open, glossary: str) -> None:
    page = show(glossary, width=390)
    assert overflow(page) <= 0
    wide = page.evaluate("""() => [...document.querySelectorAll("dd")]
      .filter((entry) => entry.scrollWidth > entry.clientWidth).length""")
    assert wide == 0


def test_print_hides_the_controls_and_fits_the_charts(run: Page, epochs: tuple[int, ...]) -> None:
    run.emulate_media(media="print")
    run.wait_for_timeout(200)
    assert not run.locator(".controls").first.is_visible()
    assert run.locator("#gram .moment").inner_text() == f"Train, epoch {epochs[-1]}"
    page_width = run.locator("main").bounding_box()["width"]  # type: ignore[index]
    for chart in RUN_CHARTS:
        svg = run.locator(f"#{chart} .main-svg").first.bounding_box()
        assert svg is not None
        assert svg["width"] <= page_width
    run.emulate_media(media="screen")
    run.wait_for_timeout(200)
    assert run.locator(".controls").first.is_visible()


def test_charts_take_the_width_of_the_paper_before_they_are_printed(run: Page) -> None:
    width = run.evaluate("""() => {
      dispatchEvent(new Event("beforeprint"));
      const width = document.querySelector("#history-chart .main-svg").clientWidth;
      dispatchEvent(new Event("afterprint"));
      return width;
    }""")
    assert 600 < width <= 673
    assert drawn_width(run) > 900


def test_plots_follow_the_dark_scheme(run: Page) -> None:
    colour = "document.getElementById('history-chart')._fullLayout.font.color"
    light = run.evaluate(colour)
    run.emulate_media(color_scheme="dark")
    run.wait_for_function(f"{colour} !== '{light}'")
    run.emulate_media(color_scheme="light")
    run.wait_for_function(f"{colour} === '{light}'")


@pytest.mark.slow
def test_probe_page_of_many_layers(show: Open, measurements: list[Measurement]) -> None:
    page = show(render_model_page("Many layers", measurements[-1].model_record))
    assert page.locator(".chart").count() == 7
    assert page.locator(".frame-time").count() == 0
    heads = page.locator("table.details").first.locator("thead th").all_inner_texts()
    assert heads[:2] == ["Metric", "stage3.block1"]
    others = page.locator("table.progress tbody th").all_inner_texts()
    assert others == [
        "stage3.block0",
        "stage2.block1",
        "stage2.block0",
        "stage1.block1",
        "stage1.block0",
    ]
    assert overflow(narrowed(page)) <= 0


@pytest.mark.slow
def test_probe_page_chooses_the_layer(show: Open, single_layer: ModelRecord) -> None:
    last = single_layer.layers[0]
    flat = [[1.0 if row == column else 0.0 for column in range(6)] for row in range(6)]
    first = LayerRecord("early", last.metrics, (), 6, 120, 32, last.spectra, flat)
    page = show(render_model_page("Two layers", ModelRecord((first, last))))
    with changes(page, "gram-measured"):
        page.locator("#gram .frame-layer").select_option("0")
    assert drawn(page, "gram-measured")[0]["z"] == flat


@pytest.mark.slow
def test_probe_page_of_one_layer_names_what_is_undefined(
    show: Open, single_layer: ModelRecord
) -> None:
    page = show(render_model_page("One layer", single_layer))
    assert page.locator("#layers").count() == 0
    assert page.locator("#gram, #spectra").count() == 2
    row = page.locator("table.details tr", has_text="Novel metric")
    assert row.locator("td").first.inner_text() == "undefined"
    assert "novel_metric is undefined: it has no value" in page.locator(".notes").text_content()
    assert "1 infinite" in page.locator("#spectra .reading").inner_text()
    assert overflow(narrowed(page)) <= 0


@pytest.mark.slow
def test_probe_page_without_data_has_no_figures(show: Open, bare: ModelRecord) -> None:
    title = "<b>a_rather_long_file_name_without_any_space_in_it</b>.npz"
    # What leads the page is not in the table again: a third number makes one.
    layer = replace(bare.layers[0], metrics={**bare.layers[0].metrics, "novel_metric": 1.0})
    page = show(render_model_page(title, replace(bare, layers=(layer,))))
    assert page.locator("h1").inner_text() == title
    assert page.locator("figure, .chart").count() == 0
    assert "<script>alert(1)</script>" in page.locator("table.details").inner_text()
    assert "undefined" in page.locator(".numbers").inner_text()
    assert overflow(narrowed(page)) <= 0


@pytest.mark.slow
def test_runs_of_one_measurement_of_nothing_defined_and_of_steps(
    show: Open, measurements: list[Measurement]
) -> None:
    probe = measurements[0].model_record
    page = show(render_history_page("One", [Measurement(probe, 0)]))
    assert page.locator(".frame-time, .history-split").count() == 0
    undefined = LayerRecord("a", {"accuracy": float("nan")}, ("undefined: why",), 2, 4, 1)
    page = show(render_history_page("NaN", [Measurement(ModelRecord((undefined,)), 0)]))
    assert "nothing to draw" in page.locator("#history .reading").inner_text()
    twice = [Measurement(measurements[step // 10].model_record, step) for step in (0, 50)]
    page = show(render_history_page("Steps", twice, unit="step"))
    assert page.locator("#history-log").is_checked() is False
    assert "step" in page.locator("#history-chart .xtitle").text_content()


def test_pages_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one measurement"):
        render_history_page("Nothing", [])
    with pytest.raises(ValueError, match="at least one layer"):
        render_model_page("Nothing", ModelRecord(layers=()))


def test_a_page_says_what_was_measured_warns_first_and_leaves_out_what_does_not_apply(
    show: Open, measurements: list[Measurement]
) -> None:
    """The layers are those of a CNN: two share a dimension, and the last has another."""
    probe = measurements[-2].model_record
    dims = [64, 64, 32, 32, 16, 8]
    layers = [replace(one, dim=dim) for one, dim in zip(probe.layers, dims, strict=True)]
    layers[-1] = replace(
        layers[-1],
        warnings=("n = 60 is less than 5 d.",),
        baseline={"nc1_quotient": 7.5},
        standard_errors={"nc1_quotient": 0.25},
        bias_corrected={"nc1_quotient": 1.0},
        metrics={**layers[-1].metrics, "nc1_quotient": 1.0},
    )
    two = replace(
        probe, layers=tuple(layers), comparable=probe.comparable[1:3], relative_position=(0.0, 1.0)
    )
    names = ("cat", "<dog>", "eel", "fox", "gnu", "hen")
    origin = Provenance(model="resnet", weights="best.pt", data="pets", class_names=names)
    page = show(render_model_page("My <title>", two, origin))
    assert page.locator("h1").inner_text() == "My <title>"
    assert page.locator(".facts li").all_inner_texts()[:3] == ["resnet", "best.pt", "pets"]
    assert "best.pt" in page.locator("section", has_text="Provenance").last.inner_text()
    title = "95 % interval, bias corrected, class sizes held"
    assert page.locator(".numbers dd[title]").get_attribute("title") == title
    box = page.locator("main > *").nth(1)
    assert box.inner_text().endswith("stage3.block1: n = 60 is less than 5 d.")
    assert page.locator(".notes li").first.is_hidden()
    assert page.locator(".layers-axis").count() == 0
    assert [len(drawn(page, f"layers-pfc{number}")) for number in (1, 2, 3)] == [1, 1, 1]
    reading = page.locator("#layers").inner_text()
    assert "Effective depth" in reading
    assert not re.search("geodesic|position|straight line", reading)
    number = page.locator(".numbers > div").first.inner_text().splitlines()
    assert number[1].endswith("± 0.25")
    assert number[2:5] == [
        "95 %: 0.583 to 1.72",
        "by chance 7.5",
        "collapsed at 0 ↓",
    ]
    for axis in "xy":
        ticks = page.locator(f"#gram-measured .{axis}axislayer-above text").all_text_contents()
        assert ticks == list(names)
    assert drawn(page, "gram-measured")[0]["text"][0][1] == "cat and &lt;dog>"  # type: ignore[index]
    assert re.search("Closest to each other: .* and .*, with", page.locator("#gram").inner_text())


@pytest.mark.slow
def test_nothing_is_said_of_a_plot_that_is_not_there(show: Open, single_layer: ModelRecord) -> None:
    spectra = {**single_layer.layers[0].spectra, "snr_singular_values": [math.inf] * 9}
    record = replace(single_layer.layers[0], spectra=spectra)
    page = show(render_model_page("One", ModelRecord((record,))))
    assert page.locator("#spectra-snr").count() == 0
    assert "9 infinite" not in page.locator("#spectra").inner_text()


@pytest.mark.slow
def test_intervals_stand_below_the_values_that_are_compared(
    show: Open, single_layer: ModelRecord
) -> None:
    record = replace(single_layer.layers[0], baseline={"nc1_quotient": 7.5})
    one = [Measurement(ModelRecord((record,)), 0)]
    page = show(
        render_comparison_page("Two", [ComparisonSource(n, one, "", Provenance()) for n in "ab"])
    )
    cell = page.locator(".compared tr", has_text="nc1_quotient").locator("td").nth(1)
    assert cell.inner_text().splitlines()[1:] == ["chance 7.5"]


def test_keys_stand_beside_titles(single_layer: ModelRecord) -> None:
    one = [Measurement(single_layer, 0)]
    compared = render_comparison_page(
        "Two", [ComparisonSource(n, one, "", Provenance()) for n in "ab"]
    )
    for markup in (render_model_page("One", single_layer), compared):
        tables = markup.partition("What each metric is")[0]
        written = re.findall(r' <span class="key">(.*?)</span></(?:th|dt)>', tables)
        keys = [key.replace("<wbr>", "") for key in written]
        assert set(single_layer.layers[0].metrics) - {"pfc1", "pfc2", "pfc3"} == set(keys)
        assert len(keys) == len(set(keys))  # no number twice


def test_the_layers_that_are_compared_are_named(measurements: list[Measurement]) -> None:
    probe = measurements[-2].model_record
    said = " ".join(describe_layers(probe))
    dim = probe.layers[-1].dim
    chain = f"the 4 layers of one dimension (d = {dim}) from stage2.block0 to stage3.block1"
    assert f"compare {chain}; without a relative position: stage1.block0 (d = 48)" in said
    assert "class means of stage2.block0 and stage3.block1 that do not oppose" in said
    assert "first and last layer" not in said


def top(page: Page) -> float:
    """Distance of the first chart from the top of the page."""
    found: float = page.evaluate(
        "Math.min(...[...document.querySelectorAll('.chart')].map((c) => c.getBoundingClientRect())"
        ".filter((box) => box.height).map((box) => box.top + scrollY))"
    )
    return found


CUT_TICKS = """[...document.querySelectorAll('#headlines .chart')].flatMap((chart) => {
  const box = chart.getBoundingClientRect();
  const inside = ({ left, right, top, bottom }) =>
    left >= box.left - 2 && right <= box.right + 2 &&
    top >= box.top - 2 && bottom <= box.bottom + 2;
  return [...chart.querySelectorAll('.xtick text, .ytick text')]
    .filter((tick) => !inside(tick.getBoundingClientRect()) || tick.textContent.includes("…"))
    .map((tick) => tick.textContent);
})"""
"""Marks and names of the headline charts that are cut, or hang over the edge."""


@pytest.mark.parametrize(
    "kind",
    others_slow(["history", "report", "comparison", "comparison of reports"], "history", "report"),
)
def test_the_first_chart_stands_on_the_first_screen(
    show: Open, measurements: list[Measurement], kind: str
) -> None:
    one, two = measurements, [replace(each, step=each.step + 1) for each in measurements]
    # As of a language model: long warnings on the numbers that lead, chance and intervals.
    *layers, last = one[-1].model_record.layers
    warning = f"nc1 and accuracy {'are those of few samples and many classes, ' * 4}so read others"
    last = replace(
        last,
        warnings=tuple(f"{warning}: {number}" for number in range(4)),
        baseline=last.metrics,
        standard_errors=dict.fromkeys(last.metrics, 0.01),
        bias_corrected=last.metrics,
    )
    crowded = replace(one[-1].model_record, layers=(*layers, last))
    unit = "" if "reports" in kind else "epoch"
    pair = [one[-1:], one[-2:-1]] if "reports" in kind else [one, two]
    sources = [
        ComparisonSource(name, of, unit, Provenance())
        for name, of in zip(("a name of one run", "two"), pair, strict=True)
    ]
    html, jumps = {
        "report": lambda: (
            render_model_page("Report", crowded),
            ["Numbers", "Layers", "Class means", "Spectra", "Every other number"],
        ),
        "history": lambda: (
            render_history_page("History", one),
            ["Overview", "Metrics", "Layers", "Class means", "Spectra", "Every number"],
        ),
    }.get(
        kind,
        lambda: (
            render_comparison_page("Comparison", sources),
            ["Side by side", *["Metrics"] * bool(unit), *["Layers"] * (not unit)],
        ),
    )()
    page = show(html)
    assert top(page) <= 600
    links = page.locator("nav a")
    shown = [link.inner_text() for link in links.all() if link.is_visible()]
    assert shown[: len(jumps)] == jumps
    places = [page.locator(link.get_attribute("href") or "") for link in links.all()]
    heights = [place.bounding_box() for place in places if place.is_visible()]
    assert heights == sorted(heights, key=lambda box: box["y"] if box else 0)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(150)
    assert top(page) <= 1000
    assert overflow(page) <= 0
    assert page.evaluate(CUT_TICKS) == []


def test_a_headline_says_first_and_last_and_judges_nothing_inside_the_noise() -> None:
    def at(step: int, value: float, error: float | None) -> Measurement:
        known = {} if error is None else {"nc1": error}
        record = LayerRecord("last", {"nc1": value, "accuracy": 0.5}, (), 2, 40, 3)
        errors = {"standard_errors": known, "bias_corrected": {"nc1": value} if known else {}}
        return Measurement(ModelRecord((replace(record, **errors),)), step, values={"loss": 1.0})

    for errors, trend in [
        ((None, None), ""),
        ((None, 0.001), ""),
        ((0.001, 0.001), "↓ towards collapse"),
        ((0.3, 0.3), "within the 95 % interval"),
    ]:
        both = [at(0, 1.0, errors[0]), at(1, 0.9, errors[1])]
        nc1, accuracy, loss = build_headlines(both, "epoch")
        assert (nc1.tag, nc1.ends, nc1.trend) == ("NC1", {"train": ("1", "0.9")}, trend)
        assert (accuracy.tag, accuracy.trend, loss.metric.key) == ("", "", "loss")
    page = render_history_page("None", [at(0, 1.0, None), at(1, 0.9, None)])
    assert "towards collapse</p>" not in page
    assert "No change is judged without 95 % intervals" in page


def test_last_values_at_different_epochs_say_their_epochs() -> None:
    def at(step: int, run: str) -> Measurement:
        record = LayerRecord("last", {"nc1": 1.0 / (1 + step)}, (), 2, 40, 3)
        return Measurement(ModelRecord((record,)), step, run=run)

    short, long = [at(step, "a") for step in (0, 5)], [at(step, "b") for step in (0, 5, 10)]
    (nc1,) = build_headlines([*short, *long], "epoch")
    assert list(nc1.ends) == ["a, train, to epoch 5", "b, train, to epoch 10"]
    (nc1,) = build_headlines([*short, *long[1:]], "epoch")
    assert list(nc1.ends) == ["a, train, epoch 0 to 5", "b, train, epoch 5 to 10"]
    (nc1,) = build_headlines([*short, *long[:2]], "epoch")
    assert list(nc1.ends) == ["a, train", "b, train"]


def test_a_curve_that_comes_back_is_said_to_be_nearer_than_at_its_worst() -> None:
    def at(step: int, value: float) -> Measurement:
        record = LayerRecord("last", {"nc2_etf": value}, (), 3, 40, 4)
        errors = {"standard_errors": {"nc2_etf": 0.01}, "bias_corrected": {"nc2_etf": value}}
        return Measurement(ModelRecord((replace(record, **errors),)), step)

    (back,) = build_headlines([at(0, 0.8), at(1, 1.1), at(9, 0.9)], "epoch")
    assert (
        back.trend
        == "↑ farther from collapse than at epoch 0 (before training), nearer than at epoch 1"
    )
    (away,) = build_headlines([at(0, 0.8), at(1, 0.7), at(9, 0.9)], "epoch")
    assert away.trend == "↑ farther from collapse than at epoch 0 (before training)"
    page = render_history_page("Away", [at(0, 0.8), at(9, 0.9)])
    assert "judged only where both have 95 % intervals" in page


@pytest.mark.parametrize(
    ("k", "dim", "led"),
    [
        (3, 2, ["nc1", "nc2_etf", "nc3_self_duality"]),
        (4, 2, ["nc1", "gnc2_log", "unc3"]),
        (2, 2, ["nc1", "nc3_self_duality"]),
    ],
)
def test_the_metrics_that_lead_are_those_that_mean_something(
    k: int, dim: int, led: list[str]
) -> None:
    keys = ["nc1", "nc2_etf", "nc3_self_duality", "gnc2_log", "unc3", "mse_loss"]
    record = LayerRecord("last", dict.fromkeys(keys, 0.5), (), k, 40, dim)
    assert [each.metric.key for each in choose_headlines(keys, record)] == led


def test_a_warning_on_none_of_the_leading_numbers_is_folded(single_layer: ModelRecord) -> None:
    (layer,) = single_layer.layers
    said = ("mse_nc1 says little", "nc2_etf says little", "classes are few")
    page = render_model_page("One", ModelRecord((replace(layer, warnings=said),)))
    box = page.partition('class="warnings"')[2].partition("</aside>")[0]
    shown, _, folded = box.partition("<details>")
    assert [text in shown for text in said] == [False, True, True]
    assert said[0] in folded
    alone = render_model_page("One", ModelRecord((replace(layer, warnings=said[:1]),)))
    assert "<summary>Read with care: mse_nc1</summary>" in alone


def test_values_that_either_side_reaches_are_explained_once(single_layer: ModelRecord) -> None:
    (layer,) = single_layer.layers
    said = "without one can be reached from either side"
    for key, times in (("nc2_of", 1), ("nc2_etf", 0)):
        metrics = {"nc1": 0.5, "nc1_quotient": 0.2, key: 0.5}
        page = render_model_page("One", ModelRecord((replace(layer, metrics=metrics),)))
        assert page.count(said) == times


def test_the_camera_stands_above_the_charts_of_every_class(
    show: Open, single_layer: ModelRecord
) -> None:
    (layer,) = single_layer.layers
    count = 28
    gram = np.eye(count).tolist()
    record = replace(layer, gram=gram, num_classes=count, metrics={"nc1": 0.5, "nc2_of": 0.5})
    page = show(render_model_page("One", ModelRecord((record,))))
    for chart in (*GRAM_CHARTS, "spectra-eigenvalues"):
        bar = page.locator(f"#{chart} .modebar-btn svg").bounding_box()
        drawing = page.locator(f"#{chart} .main-svg").first.bounding_box()
        assert bar["y"] + bar["height"] <= drawing["y"] + 2
    ticks = page.locator("#gram-measured .xtick").all_text_contents()
    assert ticks == [str(label) for label in range(count)]
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(150)
    ticks = page.locator("#gram-measured .xtick").all_text_contents()
    assert len(ticks) > 8
    assert ticks == [str(n) for n in range(0, count, int(ticks[1]))]
    # The table of all metrics folds: nothing of it lies beyond the edge.
    table = page.locator("table.details.single")
    assert table.evaluate("(node) => node.scrollWidth - node.parentElement.clientWidth") <= 0


def test_short_runs_have_linear_epochs(show: Open, measurements: list[Measurement]) -> None:
    page = show(render_history_page("Short", [each for each in measurements if each.step <= 10]))
    assert drawn(page, "headline-accuracy")[0]["x"] == [0, 1, 3, 10]
    assert drawn(page, "history-chart")[0]["x"] == [0, 1, 3, 10]
    page.locator("#history-log").check()
    page.wait_for_timeout(60)
    assert drawn(page, "history-chart")[0]["x"] != [0, 1, 3, 10]


def test_three_splits_are_told_apart(show: Open, single_layer: ModelRecord) -> None:
    names = ["train", "test", "val"]
    three = [Measurement(single_layer, step, name) for step in (0, 1) for name in names]
    page = show(render_history_page("Three", three))
    for chart in ("history-chart", "headline-accuracy"):
        traces = drawn(page, chart)
        assert len({(trace["line"]["dash"], trace["marker"]["symbol"]) for trace in traces}) == 3
    for figure in ("history", "headlines"):
        keys = page.locator(f"#{figure} .legend .key .swatch:not(.none)")
        assert len(set(keys.evaluate_all("all => all.map((each) => each.className)"))) == 3
    ticks = page.locator("#headline-accuracy .xtick text").all_text_contents()
    assert set(ticks) == {"0", "1"}


def test_one_measurement_has_one_value_and_a_whole_step(
    show: Open, single_layer: ModelRecord
) -> None:
    page = show(render_history_page("One", [Measurement(single_layer, 3)]))
    assert page.locator("#headlines-heading").inner_text() == "Collapse at epoch 3"
    assert "→" not in page.locator("#headlines").inner_text()
    text = page.locator("main").inner_text()
    assert [words in text for words in ("judged", "Move through", "keep moving")] == [False] * 3
    for chart in ("history-chart", "headline-accuracy"):
        ticks = page.locator(f"#{chart} .xtick text").all_text_contents()
        assert "3" in ticks
        assert all(tick.lstrip("−").isdigit() for tick in ticks)


def test_a_headline_is_enlarged_by_the_keyboard(run: Page) -> None:
    run.keyboard.press("Tab")
    run.locator(".cell[data-key=nc4_disagreement] button").focus()
    assert run.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    run.keyboard.press("Enter")
    assert run.locator("#history-metric").input_value() == "nc4_disagreement"
    assert run.evaluate("document.activeElement.id") == "history-metric"


def test_everything_that_is_operated_has_a_name_and_takes_the_focus(run: Page) -> None:
    unnamed = run.evaluate("""() => [...document.querySelectorAll(
        'button, select, input, summary, a, .scroll, [role=img]')].filter((node) => {
      const own = node.getAttribute("aria-label") || node.textContent.trim();
      const named = own || node.closest("label");
      const still = node.matches("[role=img]") || node.tabIndex >= 0;
      return !named || !still;
    }).map((node) => node.outerHTML.slice(0, 80))""")
    assert unnamed == []
    formulas = run.locator(".formula")
    assert formulas.count() > 3
    assert all(formulas.nth(n).get_attribute("aria-label") for n in range(formulas.count()))


def test_colours_stand_out_from_the_page() -> None:
    """Text at 4.5:1 and lines at 3:1, on the paper and on what is raised, in both schemes."""
    style = files("ncscope.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for block in re.findall(r":root[^{]*\{(.*?)\}", style, re.DOTALL)[:2]
    )
    for colours in (light, light | dark):
        for ground in (colours["paper"], colours["raised"]):
            for name in ("ink", "soft", "accent", "held", "broken"):
                assert contrast(colours[name], ground) >= 4.5, (name, ground)
            stops = [channels(colours[f"ramp-{stop}"]) for stop in range(5)]
            mixed = [
                [low + part / 4 * (high - low) for low, high in zip(*pair, strict=True)]
                for pair in pairwise(stops)
                for part in range(5)
            ]
            lines = [channels(colours[name]) for name in ("accent", "second", "third")]
            for line in lines + mixed * (ground == colours["paper"]):
                assert contrast(line, ground) >= 3, line


def channels(colour: str) -> list[float]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def contrast(*pair: str | list[float]) -> float:
    """Contrast of two colours by WCAG 2."""
    luminances = []
    for colour in pair:
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in (
                value / 255 for value in (channels(colour) if isinstance(colour, str) else colour)
            )
        ]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    low, high = sorted(luminances)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
def test_a_comparison_draws_every_run_and_all_in_one(
    show: Open, measurements: list[Measurement]
) -> None:
    other = [replace(each, step=each.step + 1) for each in measurements]
    compared = [
        ComparisonSource("one <b>", measurements, "epoch", Provenance(model="A", data="set")),
        ComparisonSource("two", other, "epoch", Provenance(model="B", data="set")),
        ComparisonSource("single", measurements[:1], "", Provenance()),
    ]
    page = show(render_comparison_page("All", compared))
    names = [trace["name"] for trace in drawn(page, "history-chart")]
    assert names == ["one <b>, train", "two, train", "one <b>, test", "two, test"]
    assert page.locator("#run option").all_inner_texts() == [
        "one <b>", "two", "all runs by epoch, last layer", "single"
    ]  # fmt: skip
    heads = page.locator(".compared").first.locator("thead th").all_inner_texts()[2:]
    names = ["one <b>, train", "one <b>, test", "two, train", "two, test", "single"]
    assert [head.partition(", epoch ")[0] for head in heads] == names
    assert [", epoch " in head for head in heads] == [True] * 4 + [False]
    facts = page.locator(".compared").last
    assert facts.locator("tr.same th").all_inner_texts()[:1] != ["model"]
    assert facts.locator("tr", has_text="model").get_attribute("class") is None
    page.locator("#run").select_option("single")
    page.wait_for_timeout(60)
    assert not page.locator("#history").is_visible()
    assert page.locator("#gram").is_visible()
    assert overflow(page) <= 0
