"""PFC figures 4 and 5: what the results hold, claims that can fail, figures."""

import pytest
from pydantic import ValidationError

from ncscope.lab.experiments.pfc.mufm import EXPERIMENT, PFCConfig
from ncscope.lab.observations import Observation, Results, together
from ncscope.lab.runs.resources import Resources
from tests.lab.observed import gathered, with_each

TINY = PFCConfig(steps=20, every=10, transports=(0.0005, 0.02), seeds=2)


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
        own = {name: value for name, value in held.items() if name.startswith(scaling)}
        assert len(own) == 9
        concentrated = "the minimum is more concentrated than the data at every lambda"
        assert own[f"{scaling}: {concentrated}, in every draw"]
        rises = "as lambda grows, the minimum leaves the simplex: PFC1 rises by a factor of 1.1"
        assert own[f"{scaling}: {rises}"]
        assert not own[f"{scaling}: gradient descent on MUFM arrives at the minimum, to 1 %"]


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
        return row.with_values({**values, "data_pfc1": 20.0, "data_distance": 0.1})

    assert set(claims(with_each(results, wrong)).values()) == {False}


def test_four_figures(results: Results):
    drawings = EXPERIMENT.draw(TINY, results)
    assert [drawing.name for drawing in drawings] == [
        "fig-4-plain", "fig-5-plain", "fig-4-printed", "fig-5-printed",
    ]  # fmt: skip
    assert [len(drawing.figure.axes) for drawing in drawings] == [6, 4, 6, 4]


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
