"""The table of a sweep: which rows it takes, on the page, in the terminal and as CSV."""

import csv
import io

from rich.console import Console

from ncscope_lab.claims import decide
from ncscope_lab.observations import Observation, Results
from ncscope_lab.report.run_page import RunView, build_run_page
from ncscope_lab.report.sweep import SweepRow, build_sweep_table, sweep_csv, sweep_table

COLUMNS = ("nc1", "accuracy")
CLAIMS = [
    decide(f"Claim {index}.", source="ours", held=held, evidence="")
    for index, held in enumerate([True, None, True, False])
]
ROWS = [
    Observation(0, 0, layer="stem", part="a", values={"nc1": 9.0, "accuracy": 0.1}),
    Observation(0, 0, layer="last", part="a", values={"nc1": 0.5, "accuracy": 0.9}),
    Observation(0, 0, "unlabelled", "last", part="a", values={"nc1": 7.0}),
]
ONE = SweepRow("seed=1,rate=0.1", {"seed": 1, "rate": 0.1}, CLAIMS, ROWS)
TWO_PARTS = SweepRow(
    "seed=2",
    {"seed": 2},
    CLAIMS,
    [*ROWS, Observation(0, 0, layer="x", part="b", values={"nc1": 1e-9})],
)
FAILED = SweepRow("seed=3", {"seed": 3}, error="expected data, found <none>")


def test_a_line_is_the_last_place_where_all_was_measured() -> None:
    (line,) = sweep_table([ONE], COLUMNS).lines
    assert (line.name, line.held, line.cells) == (
        "seed=1,rate=0.1",
        "2/4, 1 undecided",
        ["0.5", "0.9"],
    )


def test_a_run_of_several_parts_has_a_line_for_each() -> None:
    lines = sweep_table([TWO_PARTS], COLUMNS).lines
    assert [(line.name, line.held) for line in lines] == [
        ("seed=2", "2/4, 1 undecided"),
        ("a", None),
        ("b", None),
    ]
    assert lines[2].cells == ["1e-09", ""]


def test_the_terminal_names_runs_whole_and_says_which_failed() -> None:
    out = io.StringIO()
    Console(file=out, width=60).print(
        build_sweep_table(sweep_table([ONE, TWO_PARTS, FAILED], COLUMNS))
    )
    text = " ".join(out.getvalue().split())
    assert "held 2/4, 1 undecided" in text
    assert "seed=1, rate=0.1" in text
    assert "failed" in text


def test_the_page_begins_with_the_table_and_says_why_a_run_failed() -> None:
    page = build_run_page("Title", "Lead.", [], [], sweep_table([ONE, FAILED], COLUMNS))
    assert '<td class="number">2/4, 1 undecided</td><td class="number">0.5</td>' in page
    assert "expected data, found &lt;none&gt;" in page
    assert "Findings" not in page  # of no run
    assert "✕ failed" not in build_run_page("Title", "Lead.", [], [], sweep_table([ONE], COLUMNS))


def test_runs_that_differ_in_the_seed_have_a_mean_and_a_spread() -> None:
    def run(seed: int, rate: float, value: float) -> SweepRow:
        rows = [Observation(0, 0, layer="last", part="a", values={"nc1": value, "accuracy": 0.5})]
        settings = {"optimiser.seed": seed, "rate": rate}
        return SweepRow(f"{seed}, {rate}", settings, CLAIMS, rows)

    runs = [run(0, 0.1, 1.0), run(1, 0.1, 2.0), run(0, 0.2, 5.0)]
    spread = sweep_table(runs, COLUMNS).spread
    assert spread is not None
    assert spread.lines == {"rate=0.1": ["2", "1.5 ± 0.71", "0.5 ± 0"]}
    page = build_run_page("Title", "Lead.", [], [], sweep_table(runs, COLUMNS))
    assert page.index("Mean and spread over seeds") < page.index("Every run")
    assert sweep_table(runs[1:], COLUMNS).spread is None
    runs[0] = run(0, 0.1, float("nan"))
    undefined = sweep_table(runs, COLUMNS).spread
    assert undefined is not None
    assert undefined.lines["rate=0.1"][1] == "undefined"


def test_claims_of_several_runs_are_one_matrix() -> None:
    def view(name: str, *held: bool, ended: bool = True) -> RunView:
        claims = [
            decide(f"Claim {index}.", source="ours", held=verdict, evidence=f"of {name} <{index}>")
            for index, verdict in enumerate(held)
        ]
        return RunView(name, claims, [], Results([], []), (), {}, ended=ended)

    runs = [view("one", True, False), view("two", True), view("three", ended=False)]
    page = build_run_page("Title", "Lead.", [], runs)
    assert page.count("Claim 0.") == page.count("Claim 1.") == 1
    assert (page.count("✓ held"), page.count("✕ not")) == (2, 1)
    assert '<td class="number">2/2</td>' in page
    assert 'title="of one &lt;1&gt;"' in page
    assert "three has not ended" in page


def test_csv_has_settings_in_columns_and_every_digit() -> None:
    text = sweep_csv([ONE, TWO_PARTS, FAILED], COLUMNS)
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [(line["seed"], line["rate"], line["part"]) for line in lines] == [
        ("1", "0.1", "a"),
        ("2", "", "a"),
        ("2", "", "b"),
        ("3", "", ""),
    ]
    assert (lines[0]["layer"], lines[0]["split"], lines[0]["nc1"]) == ("last", "train", "0.5")
    counts = [lines[0][key] for key in ("claims_held", "claims_undecided", "claims")]
    assert counts == ["2", "1", "4"]
    assert (lines[3]["claims_held"], lines[3]["error"]) == ("", "expected data, found <none>")
