"""Names of any kind in tables, pages and figures."""

import base64
import csv
import gzip
import json
import re
import xml.dom.minidom
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

import ncscope
from ncscope.api.tables import csv_text
from ncscope.api.writable import write_figure
from ncscope.measurement.provenance import Provenance
from ncscope.measurement.records import Measurement, ModelRecord
from ncscope.report.comparison import ComparisonSource, render_comparison_page
from ncscope.report.figures import plot_metric, plot_model, plot_run
from ncscope.report.latex import format_classes_latex
from ncscope.report.page import render_history_page, render_model_page
from ncscope.report.tables import Summary, build_model_table, build_run_table, build_summary_table
from ncscope.report.wording import format_figure_text
from tests.pace import others_slow

NAMES = (
    "\x1b[31mred",
    "two\nlines",
    "\u202ereversed",
    "stray \udcff",
    "$x_1$ of $\\frac$",
    "[/] [red] :warning: " + "x" * 300,
)
ODD = (*NAMES, "$$", "cost $\\x$", "_hidden", "x" * 5000)
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def test_layers_named_by_numbers_are_quoted(measurements: list[Measurement]) -> None:
    probe = measurements[-1].model_record
    numbered = [replace(one, layer=f"{i}") for i, one in enumerate(probe.layers)]
    numbered[-1] = replace(numbered[-1], warnings=("few samples",))
    named = tuple(record.layer for record in numbered[2:])
    page = render_model_page("Numbers", replace(probe, layers=tuple(numbered), comparable=named))
    assert "<li>layer &#39;5&#39;: few samples</li>" in page
    assert "At the last layer, layer &#39;5&#39;" in page
    (packed,) = re.findall(r'id="data">([^<]+)<', page)
    assert b"from layer '2' to layer '5'" in gzip.decompress(base64.b64decode(packed))


@pytest.fixture
def odd(measurements: list[Measurement]) -> list[Measurement]:
    """A run whose layers have names from outside."""
    return [replace(each, model_record=renamed(each.model_record)) for each in measurements]


def renamed(probe: ModelRecord) -> ModelRecord:
    new = dict(zip([record.layer for record in probe.layers], NAMES, strict=True))
    layers = tuple(
        replace(record, layer=new[record.layer], notes=(f"note of {new[record.layer]}",))
        for record in probe.layers
    )
    return replace(probe, layers=layers, comparable=tuple(new[name] for name in probe.comparable))


def shown(table: object) -> str:
    out = StringIO()
    Console(file=out, width=80, markup=False, emoji=False).print(table)
    return out.getvalue()


def test_tables_show_them(odd: list[Measurement]) -> None:
    for table in (build_model_table(odd[-1].model_record), build_run_table(odd)):
        text = shown(table)
        assert not RAW.search(text)
        for name in ("\\x1b[31mred", "two\\nlines", "\\u202ereversed", "[/] [red] :warning:"):
            assert name in text
        assert {len(line) for line in text.splitlines()} <= {80}
        assert len(re.findall(r"\d\.\d+", text)) > 15  # beside a name of 300 characters


def test_tables_in_words_show_them() -> None:
    cells = {name: ["0.1234", "5.678"] for name in NAMES}
    text = shown(build_summary_table(Summary("", ["one", "two"], cells)))
    assert not RAW.search(text)
    assert "two\\nlines" in text
    assert text.count("0.1234") == len(NAMES)


def test_pages_show_them(odd: list[Measurement]) -> None:
    for page in (
        render_history_page(NAMES[0], odd),
        render_model_page(NAMES[3], odd[-1].model_record),
    ):
        page.encode()
        own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
        assert not RAW.search(own)
        data = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert data
        content = json.loads(gzip.decompress(base64.b64decode(data[1])))
        (content,) = content["runs"].values() if "runs" in content else (content,)
        assert content["layers"][:3] == [
            "\\x1b[31mred",
            "two\\nlines",
            "\\u202ereversed",
        ]


def saved(figure: Figure, kind: str) -> bytes:
    content = BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


@pytest.mark.slow
def test_figures_show_them(odd: list[Measurement]) -> None:
    probe = replace(odd[-1].model_record, relative_position=(), geodesic=None)
    figure = plot_model(probe)
    image = saved(figure, "svg")
    xml.dom.minidom.parseString(image)
    assert not RAW.search(image.decode())
    assert "$x_1$ of $\\frac$" in image.decode()  # as it stands, and no formula
    assert saved(figure, "pdf").startswith(b"%PDF")


def test_a_long_name_is_cut_in_the_middle() -> None:
    assert format_figure_text("a" * 30 + "b" * 30) == "a" * 19 + "…" + "b" * 20
    assert format_figure_text("a" * 40) == "a" * 40
    assert format_figure_text("$" * 41, 60) == r"\$" * 41


@pytest.mark.parametrize("name", others_slow(ODD, *NAMES[3:5], "cost $\\x$", "_hidden"))
def test_units_runs_and_splits_are_no_formulas(name: str, odd: list[Measurement]) -> None:
    named = [replace(each, run=name, split=name) for each in odd]
    figure = plot_metric(named, "nc1_quotient", name)
    xml.dom.minidom.parseString(saved(figure, "svg"))
    # One line a layer: Matplotlib hides labels that begin with an underscore.
    assert len(figure.axes[0].get_legend_handles_labels()[1]) == len(NAMES)


@pytest.mark.slow
def test_the_figure_of_a_run_has_all_lines_and_no_formulas(odd: list[Measurement]) -> None:
    name = "_hidden $$ of cost $\\x$"
    named = [replace(each, run=name, split=name) for each in odd]
    figure = plot_run(named, name)
    xml.dom.minidom.parseString(saved(figure, "svg"))
    assert len(figure.subfigs[1].axes[0].get_legend_handles_labels()[1]) == 4


@pytest.mark.slow
def test_figures_use_no_tex_of_the_user(odd: list[Measurement], tmp_path: Path) -> None:
    with mpl.rc_context({"text.usetex": True}):
        figure = plot_run(odd, "cost_x")
        assert not any(text.get_usetex() for text in figure.findobj(Text))
        write_figure(tmp_path / "a.svg", figure)


@pytest.mark.parametrize("name", ["[2pt] a", "*b"])
def test_a_row_of_latex_begins_with_no_argument(name: str) -> None:
    table = ncscope.measure([[0.0], [1.0], [4.0], [6.0]], [0, 0, 1, 1]).record.per_class
    assert table is not None
    rows = format_classes_latex(table, [name] * 2).splitlines()
    assert not any(row.startswith(("[", "*")) for row in rows)
    assert sum(f"{{{name[0]}}}{name[1:]}" in row for row in rows) > 1


def test_text_that_a_spreadsheet_would_compute_is_quoted() -> None:
    cells = {
        "=1+1": "'=1+1",
        "+cmd": "'+cmd",
        "-x": "'-x",
        "@sum": "'@sum",
        "\t=1": "\\t=1",
        "\r=1": "\\r=1",
        "a\rb\x00": "a\\rb\\x00",
        "-1.5": "-1.5",
        "+2": "+2",
        "x=1": "x=1",
        'a,"b"': 'a,"b"',
        "": "",
    }
    row = {str(index): cell for index, cell in enumerate(cells)} | {"number": -1.5, "none": None}
    (read,) = csv.DictReader(StringIO(csv_text([row]), newline=""))
    assert list(read.values()) == [*cells.values(), "-1.5", ""]
    assert csv_text([{"=1+1": 2}]) == "'=1+1\n2\n"


def test_the_only_layer_is_named_and_a_table_has_neither_layer_nor_network(
    measurements: list[Measurement],
) -> None:
    last = measurements[-1].model_record.layers[-1]
    layer, table = (ModelRecord((replace(last, layer=name),)) for name in ("fc1", "features"))

    def pages(model: ModelRecord) -> list[str]:
        sources = [
            ComparisonSource(name, [Measurement(model, 0)], "", Provenance()) for name in "ab"
        ]
        history = render_history_page("H", [Measurement(model, 0), Measurement(model, 1)])
        return [render_model_page("R", model), history, render_comparison_page("C", sources)]

    report, history, comparison = pages(layer)
    assert "<li>layer: fc1</li>" in report
    assert "<li>layer: fc1</li>" in history
    assert '<th scope="row">layers</th><td>fc1</td><td>fc1</td>' in comparison
    for page in pages(table):
        words = re.sub(r"<(style|script).*?</\1>|<[^>]*>", "", page, flags=re.S)
        assert "network" not in words
        assert "ayer: " not in words
    assert '<th scope="row">layers' not in page
    assert "Last layer" not in page
