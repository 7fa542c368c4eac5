"""The evidence page against the inventory, the theory's table and verdicts of runs."""

import json
import re
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError

from ncscope_lab.catalogue import REPRODUCTIONS
from ncscope_lab.findings import Finding
from ncscope_lab.theory.table import STATEMENTS
from tests.docs.pages import ROOT, load_hook

FIGURES = ROOT / "docs" / "figures"
SOURCE = (ROOT / "docs" / "evidence.md").read_text()
evidence, errata = load_hook("evidence"), load_hook("errata")
ITEMS = evidence.ITEMS
ALL = [item for items in ITEMS.values() for item in items]
THEORY = evidence.theory_of(FIGURES)


def claim(source: str, verdict: str = "held") -> Finding:
    return Finding(text="A claim.", source=source, verdict=verdict, evidence="")


def line_of(page: str, paper: str, label: str) -> str:
    section = page.partition(f"\n## {paper}\n")[2].partition("\n## ")[0]
    (line,) = re.findall(rf"^\| {re.escape(label)} \|.*$", section, re.M)
    return line


def test_verdicts_on_statements_are_those_of_the_table():
    assert list(THEORY) == [one.id for one in STATEMENTS], "run docs/figures/evidence.py"
    corrected = {one.id for one in STATEMENTS if one.corrected is not None}
    assert {name for name, one in THEORY.items() if one["verdict"] != "holds"} == corrected


def test_every_item_has_its_line():
    page = evidence.written(SOURCE, THEORY, {})
    for item in ALL:
        assert item.content in line_of(page, item.paper, item.label)
        assert item.note[1:].replace("|", r"\|") in line_of(page, item.paper, item.label)


def test_links_lead_to_sections():
    anchors = errata.anchors()
    for name in [name for item in ALL for name in item.statements]:
        assert re.sub("[/.]", "-", name) in anchors
    for name in (*REPRODUCTIONS, "pfc/demo"):
        page, _, anchor = evidence.page_of_experiment(name).partition("#")
        text = (ROOT / "docs" / page).read_text()
        assert f"{{ #{anchor} }}" in text or not anchor
        assert page != "experiments/index.md" or name == "pfc/demo"


def test_without_runs_no_claim_is_counted():
    page = evidence.written(SOURCE, THEORY, {})
    assert page.count("not run since the claims have intervals") == sum(
        len(set(item.experiments) & set(REPRODUCTIONS)) for item in ALL
    )
    assert "claims held," not in page


def test_claims_are_counted_with_the_item_that_they_name():
    claims = [claim("VCI, figure 3"), claim("VCI, figures 1-3", "undecided"), claim("ours")]
    runs = {"small": {"vci/training": claims}, "paper": {"vci/training": None}}
    page = evidence.written(SOURCE, THEORY, runs)
    ended = "small scale: {}; paper scale: its run did not end"
    assert f"`vci/training`: {ended.format('1/2, 1 undecided')}" in line_of(page, "VCI", "figure 3")
    assert f"`vci/training`: {ended.format('0/1, 1 undecided')}" in line_of(page, "VCI", "figure 1")
    assert "`vci/imagenet`: not run since" in line_of(page, "VCI", "figure 6")
    alone = evidence.written(SOURCE, THEORY, {"small": {"vci/training": claims}})
    found = line_of(alone, "VCI", "figure 6").split("|")[4]
    assert "vci/training" not in found
    assert "`vci/imagenet`: not run since" in found
    broken = evidence.written(SOURCE, THEORY, {"small": {"vci/training": None}})
    assert "`vci/training`: small scale: its run did not end" in line_of(broken, "VCI", "figure 3")
    (counts,) = re.findall(r"^\| \[VCI\]\(#vci\).*$", page, re.M)
    assert counts.endswith("| 1/2, 1 undecided | 0/0 |")
    assert re.findall(r"^\| ours \|.*$", page, re.M) == ["| ours |  |  | 1/1 | 0/0 |"]


def test_counts_are_those_of_the_inventory():
    page = evidence.written(SOURCE, THEORY, {})
    for paper, items in ITEMS.items():
        (counts,) = re.findall(rf"^\| \[{paper}\]\(#{paper.lower()}\) .*$", page, re.M)
        covered, statements = counts.split("|")[2:4]
        assert sum(map(int, re.findall(r"\d+", covered))) == len(items)
        checked = {name for item in items for name in item.statements}
        counted = [name for name in checked if THEORY[name].get("kind") != "definition"]
        without_grades = re.sub(r"\(.*?\)", "", statements)
        assert sum(map(int, re.findall(r"\d+", without_grades))) == len(counted)


def test_grades_and_definitions_are_told():
    theory = {
        "vci/theorem-5.1": {"verdict": "holds-as-corrected", "grade": "gap"},
        "vci/theorem-5.1-proof": {"verdict": "holds", "kind": "definition"},
        "vci/remark-5.1": {"verdict": "fails", "grade": "false"},
    }
    page = evidence.written(SOURCE, theory, {})
    line = line_of(page, "VCI", "theorem 5.1")
    assert "[`vci/theorem-5.1`][vci-theorem-5-1]" in line
    assert "`vci/theorem-5.1`: holds as corrected (gap)" in line
    assert "`vci/theorem-5.1-proof`: holds (a definition)" in line
    assert "`vci/remark-5.1`: **fails** (false)" in line
    assert "`vci/theorem-5.1-imbalanced`: not checked" in line
    (counts,) = re.findall(r"^\| \[VCI\]\(#vci\).*$", page, re.M)
    assert counts.endswith("| 0 hold, 1 as corrected (1 gap), 1 fail |")


def test_verdicts_of_runs_are_read_as_they_are_written(tmp_path: Path):
    interval = {"estimate": 1.0, "low": 0.5, "high": None, "count": 3, "method": "t"}
    given = {**claim("VCI, figure 3").record(), "interval": {**interval, "scale": "plain"}}
    experiments = {
        "vci/training": {"failure": "", "claims": [given, claim("ours").record()]},
        "vci/imagenet": {"failure": "no data", "claims": []},
        "pfc/demo": {"failure": "", "claims": [claim("PFC, figure 2").record()]},
    }
    record = {"scale": "small", "experiments": experiments}
    (tmp_path / "verdicts-small.json").write_text(json.dumps(record))
    assert evidence.read_runs(tmp_path.parent / "nowhere") == {}
    (scale,) = evidence.read_runs(tmp_path).items()
    assert scale[0] == "small"
    assert [one.source for one in scale[1]["vci/training"]] == ["VCI, figure 3", "ours"]
    assert scale[1]["vci/imagenet"] is None
    assert "pfc/demo" not in scale[1]
    page = evidence.written(SOURCE, THEORY, dict([scale]))
    assert "`pfc/demo`: illustrates, and is not counted" in line_of(page, "PFC", "figure 2")
    (counts,) = re.findall(r"^\| \[PFC\]\(#pfc\).*$", page, re.M)
    assert counts.endswith("| 0/0 |")


def test_a_paper_without_a_mark_is_an_error():
    with pytest.raises(PluginError, match="a section with <!-- evidence: PFC -->"):
        evidence.written(SOURCE.replace("<!-- evidence: PFC -->", ""), THEORY, {})
