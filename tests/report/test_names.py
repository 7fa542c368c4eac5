"""Names of any kind in tables, pages and figures."""

import json
import re
import xml.dom.minidom
from dataclasses import replace
from io import BytesIO, StringIO

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from ncscope.lab.report.rows import rows_table
from ncscope.lab.report.sweep import SweptRun, printed_sweep, sweep_table
from ncscope.probing.records import Measurement, ProbeRecord
from ncscope.report.figures import plot_probe
from ncscope.report.names import figure_text
from ncscope.report.page import history_page, probe_page
from ncscope.report.summary import Summary, summary_table
from ncscope.report.tables import probe_table, run_table
from tests.lab.observed import observed

NAMES = (
    "\x1b[31mred",
    "two\nlines",
    "\u202ereversed",
    "stray \udcff",
    "$x_1$ of $\\frac$",
    "[/] [red] :warning: " + "x" * 300,
)
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def test_layers_named_by_numbers_are_quoted(measurements: list[Measurement]) -> None:
    probe = measurements[-1].probe
    numbered = [replace(one, layer=f"{i}") for i, one in enumerate(probe.layers)]
    numbered[-1] = replace(numbered[-1], warnings=("few samples",))
    named = tuple(record.layer for record in numbered[2:])
    page = probe_page("Numbers", replace(probe, layers=tuple(numbered), comparable=named))
    assert "<li>layer &#39;5&#39;: few samples</li>" in page
    assert "At the last layer, layer &#39;5&#39;" in page
    assert "from layer '2' to layer '5'" in page


@pytest.fixture
def odd(measurements: list[Measurement]) -> list[Measurement]:
    """A run whose layers have names from outside."""
    return [replace(each, probe=renamed(each.probe)) for each in measurements]


def renamed(probe: ProbeRecord) -> ProbeRecord:
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
    for table in (probe_table(odd[-1].probe), run_table(odd)):
        text = shown(table)
        assert not RAW.search(text)
        for name in ("\\x1b[31mred", "two\\nlines", "\\u202ereversed", "[/] [red] :warning:"):
            assert name in text
        assert {len(line) for line in text.splitlines()} <= {80}
        assert len(re.findall(r"\d\.\d+", text)) > 15  # beside a name of 300 characters


def test_tables_of_runs_show_them() -> None:
    cells = {name: ["0.1234", "5.678"] for name in NAMES}
    rows = observed({"part": name, "layer": name, "step": 1, "pfc1": 0.5} for name in NAMES)
    runs = [SweptRun(name, {"seed": 0}, rows=rows[:1]) for name in NAMES]
    tables = (
        summary_table(Summary("", ["one", "two"], cells)),
        rows_table(rows, ["pfc1"]),
        printed_sweep(sweep_table(runs, ["pfc1"])),
    )
    for table in tables:
        text = shown(table)
        assert not RAW.search(text)
        assert "two\\nlines" in text
        assert text.count("0.1234") + text.count("0.5") >= len(NAMES)


def test_pages_show_them(odd: list[Measurement]) -> None:
    for page in (history_page(NAMES[0], odd), probe_page(NAMES[3], odd[-1].probe)):
        page.encode()
        own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
        assert not RAW.search(own)
        data = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.DOTALL)
        assert data
        content = json.loads(data[1])
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


def test_figures_show_them(odd: list[Measurement]) -> None:
    probe = replace(odd[-1].probe, relative_position=(), geodesic=None)
    figure = plot_probe(probe)
    image = saved(figure, "svg")
    xml.dom.minidom.parseString(image)
    assert not RAW.search(image.decode())
    assert "$x_1$ of $\\frac$" in image.decode()  # as it stands, and no formula
    assert saved(figure, "pdf").startswith(b"%PDF")


def test_a_long_name_is_cut_in_the_middle() -> None:
    assert figure_text("a" * 30 + "b" * 30) == "a" * 19 + "…" + "b" * 20
    assert figure_text("a" * 40) == "a" * 40
    assert figure_text("$" * 41, 60) == r"\$" * 41
