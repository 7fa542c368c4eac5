"""Sources of claims: a claim of a paper names an item of the paper."""

import json
from collections.abc import Iterable

import pytest
from lab.tests.observed import results_of

from ncscope_lab.catalogue import REPRODUCTIONS, find_experiment
from ncscope_lab.observations import Results
from ncscope_lab.report.verdicts import PAPERS
from tests.docs.pages import ROOT, load_hook

items_of = load_hook("inventory").items_of
SIMULATED = ("xufm/ufm", "xufm/extended", "pfc/mufm", "mse/central-path")
"""Experiments whose claims need results, and whose small scale takes seconds."""
FEW = {"steps": 200, "first_steps": 200, "second_steps": 200, "every": 100, "starts": 2, "seeds": 2}
"""Sizes of runs that are long enough to have every claim, whatever its verdict."""
FILES = sorted((ROOT / "docs" / "figures").glob("verdicts-*.json"))


def nameless(sources: Iterable[str]) -> list[str]:
    """Sources that are neither a paper alone, nor ours, nor lead to an item."""
    return [one for one in sources if one not in PAPERS and not items_of(one)]


@pytest.mark.parametrize("name", [name for name in REPRODUCTIONS if name not in SIMULATED])
def test_claims_of_a_run_without_results_name_items(name: str):
    experiment = find_experiment(name)
    claims = experiment.judge(experiment.scales["small"], Results())
    assert nameless(claim.source for claim in claims) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.usefixtures("unchecked_signatures")
def test_claims_of_a_simulated_experiment_name_items(name: str):
    experiment = find_experiment(name)
    small = experiment.scales["small"]
    config = small.model_copy(
        update={key: few for key, few in FEW.items() if key in type(small).model_fields}
    )
    claims = experiment.judge(config, results_of(*experiment.parts(config)))
    assert claims
    assert nameless(claim.source for claim in claims) == []


def test_committed_claims_name_items():
    for file in FILES:
        experiments = json.loads(file.read_text())["experiments"]
        assert set(experiments) <= set(REPRODUCTIONS)
        claims = [claim for one in experiments.values() for claim in one["claims"]]
        assert nameless(claim["source"] for claim in claims) == []


@pytest.mark.parametrize("name", [name for name in REPRODUCTIONS if name not in SIMULATED])
def test_committed_claims_are_those_of_today(name: str):
    experiment = find_experiment(name)
    for file in FILES:
        record = json.loads(file.read_text())
        committed = record["experiments"].get(name, {"claims": [], "outdated": False})
        if committed["outdated"]:  # the page says so
            continue
        config = experiment.scales[record["scale"]]
        today = [claim.text for claim in experiment.judge(config, Results())]
        if today:  # the demo has no claims without results
            assert [claim["claim"] for claim in committed["claims"]] in ([], today)


def test_a_source_without_an_item_is_seen():
    sources = ["VCI", "ours", "VCI, figure 2", "VCI, figure 9", "VCI 6", "Galanti, figure 2"]
    assert nameless(sources) == ["VCI, figure 9", "VCI 6", "Galanti, figure 2"]
