"""An experiment's table of what it came to, on the page and in the terminal."""

import io

from lab.tests.observed import observed
from rich.console import Console

from ncscope.report.tables import Summary, build_summary_table
from ncscope_lab.observations import Results
from ncscope_lab.report.rows import rows_table
from ncscope_lab.report.run_page import RunView, build_run_page
from ncscope_lab.report.sweep import SweepRow, build_sweep_table, sweep_table
from tests.report.test_names import NAMES, RAW, shown

TABLE = Summary("Errors, <mean>", ["10 labels", "40 labels"], {"plain": ["2.0 ± 0.1", "1.0"]})


def test_the_page_shows_the_table_with_its_caption() -> None:
    run = RunView("", [], [], Results(), [], {}, tables=[TABLE])
    page = build_run_page("Title", "Lead.", [], [run])
    assert "<figcaption>Errors, &lt;mean&gt;</figcaption>" in page
    assert '<th scope="row">plain</th><td class="number">2.0 ± 0.1</td>' in page
    without = build_run_page("Title", "Lead.", [], [RunView("", [], [], Results(), [], {})])
    assert "<figcaption>Errors" not in without


def test_the_terminal_shows_the_table_with_its_caption() -> None:
    out = io.StringIO()
    Console(file=out, width=60).print(build_summary_table(TABLE))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["10", "labels", "40", "labels"] in lines
    assert ["plain", "2.0", "±", "0.1", "1.0"] in lines
    assert ["Errors,", "<mean>"] in lines


def test_tables_of_runs_show_names_of_any_kind() -> None:
    rows = observed({"part": name, "layer": name, "step": 1, "pfc1": 0.5} for name in NAMES)
    runs = [SweepRow(name, {"seed": 0}, rows=rows[:1]) for name in NAMES]
    for table in (rows_table(rows, ["pfc1"]), build_sweep_table(sweep_table(runs, ["pfc1"]))):
        text = shown(table)
        assert not RAW.search(text)
        assert "two\\nlines" in text
        assert text.count("0.5") >= len(NAMES)
