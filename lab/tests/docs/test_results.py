"""Experiments' pages: what marks are filled with, and that nothing else is a result."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError

from ncscope_lab.catalogue import REPRODUCTIONS, find_experiment
from ncscope_lab.findings import Finding
from ncscope_lab.intervals import Interval
from tests.docs.pages import ROOT, load_hook

results = load_hook("results")
RUNS = results.read_runs(results.FIGURES)
PAGES = [
    *sorted((ROOT / "docs" / "experiments").glob("*.md")),
    *sorted((ROOT / "docs" / "models").glob("*.md")),
]
TEXTS = {page: page.read_text() for page in PAGES}


def claim(evidence: str, text: str = "A claim.") -> Finding:
    return Finding(text=text, source="VCI, figure 3", verdict="held", evidence=evidence)


def runs_with(*claims: Finding) -> dict:
    return {"small": {"vci/training": list(claims)}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_mark_is_filled(page: Path):
    filled = results.fill(TEXTS[page], RUNS, str(page.relative_to(ROOT / "docs")))
    assert not re.findall(r"<!-- (?:protocol|claims|number|verdict|experiments)\b", filled)
    for line in re.findall(r"^\| .*$", filled, re.M):
        assert line.endswith(" |"), line


def test_every_experiment_has_one_protocol_and_one_table_of_claims():
    text = "".join(TEXTS.values())
    for name in REPRODUCTIONS:
        assert text.count(f"<!-- protocol: {name} -->") == 1, name
        assert text.count(f"<!-- claims: {name} -->") == 1, name
        page, _, anchor = results.page_of_experiment(name).partition("#")
        assert f"{{ #{anchor} }}" in (ROOT / "docs" / page).read_text()


TYPED = {
    "an interval": r"-?\d[\d.e-]* ?\[-?[\d.]+, -?[\d.]+\]",
    "a spread": r"\d ?± ?\d",
    "a count of claims": r"\d+ of \d+ claims|\d+ (?:are|is) undecided|[Oo]f \w+ claims",
    "a verdict": r"^\|.*\| \**(?:held|not held|undecided)\b",
    "seeds": r"[Ss]eeds? \d",
}
"""What a result looks like that somebody typed."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_result_is_typed(page: Path):
    prose = re.sub(r"^```.*?^```$|`[^`\n]+`", "", TEXTS[page], flags=re.M | re.S)
    for what, form in TYPED.items():
        if page.stem == "index" and what == "a verdict":
            continue  # the table says what verdicts mean
        assert not re.findall(form, prose, re.M), f"{page.name}: {what} is typed"


def test_typed_results_are_seen():
    for typed in ("0.51 [0.4, 0.64]", "3.1 ± 0.2", "15 of 28 claims held", "on seeds 0 to 4"):
        assert any(re.search(form, typed, re.M) for form in TYPED.values())


def test_the_protocol_is_that_of_the_settings():
    small = find_experiment("info/semi-supervised").scales["small"].runs.values()
    settings = results.tabulate_protocol("info/semi-supervised", RUNS)
    table, paper = settings.split("</details>")[:2]
    assert "<summary>Settings of the small scale</summary>" in table
    assert "<summary>Settings of the paper scale, not run</summary>" in paper
    cell = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()}
    for field, label in (("method", "method"), ("labels", "labels")):
        values = ", ".join(dict.fromkeys(str(getattr(run, field)) for run in small))
        assert f"| {values} |" in cell[label]
    assert results._write(tuple(dict.fromkeys(run.seed for run in small))) in cell["seeds"]
    assert f"`{results.COMMAND} info/semi-supervised`" in table


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ((0, 1, 2), "0, 1, 2"),
        ((5, 6, 7, 8), "5 to 8"),
        ((0.5, None), "0.5, default"),
        ((), results.NONE),
        (True, "yes"),
        (60_000, "60,000"),
    ],
)
def test_values_are_written_briefly(values: object, written: str):
    assert results._write(values) == written


def test_numbers_of_groups():
    def interval(estimate: float, low: float, high: float) -> Interval:
        return Interval(estimate=estimate, low=low, high=high, count=3, method="t")

    groups = {
        "step decay": replace(claim(""), interval=interval(0.5, 0.4, 0.62)),
        "cosine": replace(claim(""), interval=interval(-1, -2, math.inf), verdict="undecided"),
        "none": replace(
            claim(""), interval=interval(-1, -2, 0), verdict="not held", detectable=0.25
        ),
    }
    grouped = replace(claim("2 of 3 settings held", text="VCI falls"), groups=groups)
    runs = runs_with(grouped, claim("in 3 of 3 runs; a", text="It stays"))
    assert results.write_measured("vci/training | VCI | step decay", runs) == "0.5 [0.4, 0.62]"
    table = results.tabulate_claims("vci/training", runs, "page.md")
    assert (
        "| step decay: 0.5&nbsp;[0.4,&nbsp;0.62]"
        "<br>cosine: -1&nbsp;[-2,&nbsp;inf]<br>*about a thousand or more seeds would decide*"
        "<br>none: -1&nbsp;[-2,&nbsp;0]<br>*a mean of 0.25 would have shown* |"
    ) in table
    marks = "<!-- number: vci/training | VCI | cosine --> <!-- verdict: vci/training | stays -->"
    assert results.fill(marks, runs, "page.md") == "-1 [-2, inf] held"
    assert results.write_measured("vci/training | stays", runs) == "in 3 of 3 runs"


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("claims: vci/nothing", "names no experiment"),
        ("number: vci/training | nothing", "0 claims of vci/training"),
        ("number: vci/training | claim | nothing", "no number of 'nothing'; it has those of none"),
        ("verdict: vci/imagenet | claim", "vci/imagenet has no verdicts"),
    ],
)
def test_a_mark_that_leads_nowhere_is_an_error(mark: str, message: str):
    with pytest.raises(PluginError, match=re.escape(message)):
        results.fill(f"<!-- {mark} -->", runs_with(claim("")), "page.md")


def test_markdown_in_a_claim_is_shown_as_it_is():
    text = "variance on V_B falls below |x| < 1 *"
    table = results.tabulate_claims(
        "vci/training", runs_with(claim("a_b", text=text)), "experiments/vci.md"
    )
    assert r"| variance on V\_B falls below \|x\| &lt; 1 \* | VCI, figure 3 | held | a b |" in table
    assert "1 claim: 1 held." in table


def test_every_figure_has_its_picture_and_caption():
    record = json.loads((results.FIGURES / "verdicts-small.json").read_text())["experiments"]
    pictures = {
        f"{name.replace('/', '-')}-{figure}.png"
        for name, one in record.items()
        for figure in one.get("figures", {})
    }
    assert {each.name for each in (results.DOCS / "images" / "runs").iterdir()} == pictures
    page = results.fill(TEXTS[ROOT / "docs/experiments/info.md"], RUNS, "experiments/info.md")
    assert re.search(r"!\[INFO table 2: .+\.\]\(../images/runs/info-supervised-table-2.png\)", page)
    assert "\n*INFO table 2" in page


def test_figures_are_drawn_by_the_code_of_today():
    record = json.loads((results.FIGURES / "verdicts-small.json").read_text())["experiments"]
    captions = [
        (name, each) for name, one in record.items() for each in one.get("figures", {}).values()
    ]
    assert [name for name, each in captions if results.is_older(each)] == []
    assert all(results.is_older(caption.upper()) for _, caption in captions)


def test_a_sentence_is_filled_from_the_evidence():
    finding = claim("nc1 0.5 at the start, 2e-05 after 1,000 steps; nc1 0.7 at the start")
    sentence = "from {nc1} to {start, * after} in {after} steps"
    assert results.fill_sentence(sentence, finding) == "from 0.5 to 0.7 to 2e-05 in 1,000 steps"
    for wrong in ("from {nc2}", "no place"):
        with pytest.raises(PluginError, match=r"has no (number|interval)"):
            results.fill_sentence(wrong, finding)


def test_a_run_is_described_by_its_settings():
    lines = {name: results.describe_run(name, "small") for name in REPRODUCTIONS}
    assert "pfc-mnist on mnist-5k" in lines["pfc/training"]
    small = find_experiment("pfc/training").scales["small"].runs.values()
    seeds = sorted(run.seed for run in small if run.data == "mnist-5k")
    assert f"mnist-5k: seeds {seeds[0]} to {seeds[-1]}, " in lines["pfc/training"]
    for name in ("xufm/ufm", "xufm/extended", "pfc/mufm", "mse/central-path"):
        assert re.search(
            r"K = \d+, d = \d+, n = \d+, .*\d+ (?:starts|draws|for)|one start", lines[name]
        )


def test_hardware_is_that_of_the_page():
    record = json.loads((results.FIGURES / "verdicts-small.json").read_text())["experiments"]
    for name, one in record.items():
        page = (ROOT / "docs" / results.page_of_experiment(name).partition("#")[0]).read_text()
        told = page + results.describe_run(name, "small").replace(one["hardware"], "")
        for part in re.findall(r"[\d,]{4,}|NVIDIA \w+", one["hardware"]):
            assert part in told, name
        assert not one["hardware"] or one["hardware"] in results.describe_run(name, "small")


def test_infinite_ends_of_intervals_are_read(tmp_path: Path):
    interval = {"estimate": 1.0, "low": 0.5, "high": None, "count": 3, "method": "t"}
    record = claim("").record() | {"interval": {**interval, "scale": "ratio"}}
    record |= {"verdict": "undecided", "seeds_to_decide": 8}
    experiments = {"vci/training": {"failure": "", "claims": [record]}}
    file = tmp_path / "verdicts-small.json"
    file.write_text(json.dumps({"scale": "small", "experiments": experiments}))
    (read,) = results.read_runs(tmp_path)["small"]["vci/training"]
    assert results._write_number(read) == "1 [0.5, inf]"
    table = results.tabulate_claims(
        "vci/training", {"small": {"vci/training": [read]}}, "experiments/vci.md"
    )
    assert "| 1&nbsp;[0.5,&nbsp;inf]<br>*about 8 seeds would decide* |" in table


def test_the_table_of_experiments_counts_the_committed_verdicts():
    table = results.tabulate_experiments(RUNS, "experiments/index.md")
    for name in (*REPRODUCTIONS, "pfc/demo"):
        (line,) = re.findall(rf"^\| \[`{name}`\].*$", table, re.M)
        if name not in REPRODUCTIONS:
            assert results.ILLUSTRATES in line
        else:
            claims = RUNS["small"][name]
            held = sum(one.held for one in claims)
            assert f"| {held}/{len(claims)}" in line
