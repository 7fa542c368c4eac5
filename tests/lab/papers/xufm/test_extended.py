"""The recipe of XUFM figures 3-4 and 8-9, at a length at which nothing has converged."""

import pytest

from ncscope.lab.observations import Results, together
from ncscope.lab.papers.xufm import landscape
from ncscope.lab.papers.xufm.extended import DEVIATIONS, RECIPE, XUFMExtendedConfig, part_name
from ncscope.lab.runs.resources import Resources
from tests.lab.observed import gathered

CONFIG = XUFMExtendedConfig(steps=4, every=2, starts=2, per_class=(10, 20, 40), seeds=3)


@pytest.fixture(scope="module")
def results() -> Results:
    found = []
    for part in RECIPE.parts(CONFIG):
        own = list(part.run(Resources()))
        assert len(own) == part.yields
        found.append(gathered(own, part.name))
    return together(found)


@pytest.mark.slow
def test_every_setting_has_a_part_for_each_start(results: Results) -> None:
    names = [
        part_name(k, activation, seed)
        for k in (4, 6)
        for activation in ("linear", "relu")
        for seed in (0, 1)
    ]
    others = [landscape.CRITICAL, landscape.FACTORS, landscape.FAINT, "growing n"]
    assert list(dict.fromkeys(row.part for row in results)) == names + others
    small = RECIPE.parts(RECIPE.scales["small"])
    assert len(small) == 2 * 10 + len(others)


@pytest.mark.slow
def test_claims_are_of_both_settings_and_see_that_nothing_converged(results: Results) -> None:
    claims = RECIPE.judge(CONFIG, results)
    assert len(claims) == 2 * 14 + 5 + 2
    assert len({claim.text for claim in claims}) == len(claims)
    of_descents = [claim for claim in claims if claim.text.startswith("K = ")]
    arrived = [claim.verdict for claim in of_descents if "arrives" in claim.text]
    assert len(arrived) == 4
    assert not any(claim.held for claim in of_descents)


@pytest.mark.slow
def test_every_claim_has_an_exact_owner(results: Results) -> None:
    for claim in RECIPE.judge(CONFIG, results):
        assert claim.source == "ours" or claim.source.startswith("XUFM, "), claim


@pytest.mark.slow
def test_starts_are_the_papers(results: Results) -> None:
    assert DEVIATIONS == {(6, "relu"): (0.1, 0.1, 0.2)}
    starts = {row.part: row for row in results if row.step == 0 and row.layer == "H1"}
    relu, linear = (starts[part_name(6, name, 0)]["objective"] for name in ("relu", "linear"))
    assert relu > linear + 0.1


@pytest.mark.slow
def test_figures_are_those_of_the_paper(results: Results) -> None:
    drawings = RECIPE.draw(CONFIG, results)
    assert [drawing.name for drawing in drawings] == [
        "two-levels-k4",
        "two-levels-k6",
        "attenuation",
    ]
    for drawing in drawings:
        drawing.figure.canvas.draw()


def test_scales_differ_in_the_settings_alone() -> None:
    small, paper = (RECIPE.scales[scale] for scale in ("small", "paper"))
    assert small == paper.model_copy(update={"settings": "first"})
