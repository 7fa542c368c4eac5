"""PFC figures 4 and 5: what the results hold, claims that can fail, figures."""

import pytest
from lab.tests.observed import gathered

from ncscope_lab.experiments.pfc.mufm import EXPERIMENT, PFCConfig
from ncscope_lab.observations import Results, together
from ncscope_lab.runs.resources import Resources

TINY = PFCConfig(
    steps=20, every=10, transports=(0.0005, 0.02), small_transports=(1e-8, 1e-4), seeds=2
)


@pytest.fixture(scope="module")
def results() -> Results:
    found = []
    for part in EXPERIMENT.parts(TINY):
        own = list(part.run(Resources()))
        assert len(own) == part.yields
        found.append(gathered(own, part.name))
    return together(found)


def claims(results: Results) -> dict[str, bool]:
    return {claim.text: claim.held for claim in EXPERIMENT.judge(TINY, results)}


@pytest.mark.slow
def test_claims_about_minima_hold_and_short_descents_have_not_arrived(results: Results):
    held = claims(results)
    for scaling in ("Plain", "Printed"):
        own = [value for name, value in held.items() if name.startswith(scaling)]
        assert len(own) == 19
        assert [not value for value in own[:4]] == [True] * 4  # of descents
        assert own[4:10] == [True] * 6  # of minima
        assert not own[-1]


@pytest.mark.slow
def test_minima_are_stationary_and_ordered(results: Results):
    for scaling in ("plain", "printed"):
        minima = f"minima, {scaling}, seed 1"
        data, tied, free = (row for row in results if row.part == minima)
        assert tied["gradient_norm"] < 1e-10
        assert free["gradient_norm"] < 1e-10
        assert free["pfc1"] < 1e-9 < tied["pfc1"] < data["pfc1"]
