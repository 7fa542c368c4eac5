"""Sources of claims: a claim of a paper names an item of the paper."""

import json
from collections.abc import Iterable

import pytest

from ncscope_lab.catalogue import REPRODUCTIONS, find_experiment
from ncscope_lab.observations import Results
from ncscope_lab.report.verdicts import PAPERS
from tests.docs.pages import ROOT, load_hook

items_of = load_hook("inventory").items_of
FILES = sorted((ROOT / "docs" / "figures").glob("verdicts-*.json"))


def nameless(sources: Iterable[str]) -> list[str]:
    """Sources that are neither a paper alone, nor ours, nor lead to an item."""
    return [one for one in sources if one not in PAPERS and not items_of(one)]


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_claims_name_items_and_are_those_committed(name: str):
    experiment = find_experiment(name)
    claims = experiment.judge(experiment.scales["small"], Results())
    assert claims
    assert nameless(claim.source for claim in claims) == []
    for file in FILES:
        record = json.loads(file.read_text())
        committed = record["experiments"].get(name, {"claims": [], "outdated": False})
        if committed["outdated"]:  # the page says so
            continue
        if record["scale"] != "small":
            claims = experiment.judge(experiment.scales[record["scale"]], Results())
        today = [claim.text for claim in claims]
        assert [claim["claim"] for claim in committed["claims"]] in ([], today)


def test_committed_claims_name_items():
    for file in FILES:
        experiments = json.loads(file.read_text())["experiments"]
        assert set(experiments) <= set(REPRODUCTIONS)
        claims = [claim for one in experiments.values() for claim in one["claims"]]
        assert nameless(claim["source"] for claim in claims) == []


def test_a_source_without_an_item_is_seen():
    sources = ["VCI", "ours", "VCI, figure 2", "VCI, figure 9", "VCI 6", "Galanti, figure 2"]
    assert nameless(sources) == ["VCI, figure 9", "VCI 6", "Galanti, figure 2"]
