"""The recipe of XUFM figures 3-4 and 8-9, at a length at which nothing has converged."""

import pytest

from ncscope.lab.observations import Results, together
from ncscope.lab.papers.xufm.extended import DEVIATIONS, RECIPE, XUFMExtendedConfig, part_name
from ncscope.lab.runs.resources import Resources
from tests.lab.observed import gathered, results_of

CONFIG = XUFMExtendedConfig(
    first_steps=40, second_steps=20, every=20, per_class=(20, 40, 80), seeds=3
)


@pytest.fixture(scope="module")
def results() -> Results:
    found = []
    for part in RECIPE.parts(CONFIG):
        own = list(part.run(Resources()))
        assert len(own) == part.yields
        found.append(gathered(own, part.name))
    return together(found)


def test_every_setting_has_a_part(results: Results):
    names = [part_name(k, activation) for k in (4, 6) for activation in ("linear", "relu")]
    assert list(dict.fromkeys(row.part for row in results)) == [*names, "growing n"]
    small = RECIPE.parts(RECIPE.scales["small"])
    assert [part.name for part in small] == [*names[:2], "growing n"]


def test_claims_are_of_both_settings_and_see_that_nothing_converged(results: Results):
    claims = RECIPE.claims(CONFIG, results)
    assert len(claims) == 30
    arrived = [claim.held for claim in claims if "arrives" in claim.text]
    assert arrived == [False] * 4
    assert len({claim.text for claim in claims}) == len(claims)


def test_starts_are_the_papers(results: Results):
    assert DEVIATIONS == {(6, "relu"): (0.1, 0.1, 0.2)}
    starts = {row.part: row for row in results if row.step == 0 and row.layer == "H1"}
    assert starts["K = 6, ReLU"]["objective"] > starts["K = 6, Linear"]["objective"] + 0.1


def test_figures_are_those_of_the_paper(results: Results):
    drawings = RECIPE.drawings(CONFIG, results)
    assert [drawing.name for drawing in drawings] == [
        "two-levels-k4",
        "two-levels-k6",
        "attenuation",
    ]
    for drawing in drawings:
        drawing.figure.canvas.draw()


def test_the_first_setting_is_as_long_at_both_scales():
    assert {config.first_steps for config in RECIPE.scales.values()} == {60_000}
    assert RECIPE.scales["small"].settings == "first"


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(("scale", "count"), [("small", 16), ("paper", 30)])
def test_all_claims_hold(scale: str, count: int):
    config = RECIPE.scales[scale]
    claims = RECIPE.claims(config, results_of(*RECIPE.parts(config)))
    assert len(claims) == count
    assert [claim.text for claim in claims if not claim.held] == []
