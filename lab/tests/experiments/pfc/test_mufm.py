"""PFC figures 4 and 5: what the results hold, claims that can fail, figures."""

import pytest
from lab.tests.observed import gathered, with_each
from pydantic import ValidationError

from ncscope_lab.experiments.pfc.mufm import EXPERIMENT, PFCConfig
from ncscope_lab.observations import Observation, Results, together
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


def test_minima_are_stationary_and_ordered(results: Results):
    for scaling in ("plain", "printed"):
        minima = f"minima, {scaling}, seed 1"
        data, tied, free = (row for row in results if row.part == minima)
        assert tied["gradient_norm"] < 1e-10
        assert free["gradient_norm"] < 1e-10
        assert free["pfc1"] < 1e-9 < tied["pfc1"] < data["pfc1"]


def test_claims_fail_where_the_results_say_otherwise(results: Results):
    def wrong(row: Observation) -> Observation:
        values = {"objective": 1.0 + row.step if "MUFM," in row.part else 0.5}
        values |= {"pfc1": 0.0 if row.part.startswith("M") else 30.0, "pfc2": 0.9, "pfc3": 0.5}
        values |= {"data_pfc1": 20.0, "data_pfc2": 0.9, "data_distance": 0.1, "unread_norm": 5.0}
        return row.with_values(values)

    assert set(claims(with_each(results, wrong)).values()) == {False}


@pytest.mark.parametrize(
    ("prices", "needed"),
    [
        ((0.02, 0.01), "ascending prices"),
        ((0.01, 0.01), "ascending prices"),
        ((0.0, 0.1), "every value greater than 0"),
    ],
)
def test_prices_ascend(prices: tuple[float, ...], needed: str):
    with pytest.raises(ValidationError, match=needed):
        PFCConfig(transports=prices)
