"""The recipe of XUFM figures 1-2 and 6-7: parts, claims that can fail, figures."""

import math

import pytest
from pydantic import ValidationError

from ncscope.lab.observations import Results, together
from ncscope.lab.papers.xufm import plain_starts
from ncscope.lab.papers.xufm.ufm import RECIPE, SIZES, XUFMConfig, threshold
from tests.lab.observed import gathered, with_each

SHORT = XUFMConfig(
    settings="first", first_steps=100, every=50, starts=2, bias_decays=(1.001 * threshold(), 0.05)
)
STARTS = (plain_starts.DECAYS, plain_starts.NO_DECAYS, plain_starts.RELU)


def run(config: XUFMConfig) -> Results:
    found = []
    for part in RECIPE.parts(config):
        own = list(part.run(None))
        assert len(own) == part.yields
        found.append(gathered(own, part.name))
    return together(found)


@pytest.fixture(scope="module")
def short() -> Results:
    return run(SHORT)


def failed(config: XUFMConfig, results: Results) -> list[str]:
    return [claim.text for claim in RECIPE.judge(config, results) if not claim.held]


@pytest.mark.slow
def test_a_short_descent_has_not_arrived_and_the_sweep_holds(short: Results) -> None:
    claims = RECIPE.judge(SHORT, short)
    assert [claim.text for claim in claims if claim.held] == [
        "Regularised bias: centred means are a simplex ETF, aligned with the classifier",
        "Regularised bias: the minimiser is a simplex exactly for decays up to c / (1-c)",
        "Regularised bias: the solver's objective and mean equal those of the closed form",
    ]
    assert len(claims) == 4 + 5 + 3 + 3
    for claim in claims:
        assert claim.source == "ours" or claim.source.startswith("XUFM, "), claim


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "change", "which"),
    [
        ("nc2_etf", 1e-3, "centred means"),
        ("nc3_alignment", 1e-3, "centred means"),
        ("bias_decay", 0.03, "the minimiser is a simplex"),
        ("objective", 1e-6, "the solver's objective"),
        ("stated_mean_share", 1e-3, "the solver's objective"),
    ],
)
def test_each_claim_of_the_sweep_can_fail(
    short: Results, key: str, change: float, which: str
) -> None:
    wrong = with_each(
        short,
        lambda row: row.with_values({key: float(row[key]) + change}) if key in row else row,
    )
    (claim,) = [text for text in failed(SHORT, wrong) if text.startswith("Regularised bias")]
    assert claim.startswith(f"Regularised bias: {which}")


@pytest.mark.slow
def test_figures_are_those_of_the_paper_and_the_sweep(short: Results) -> None:
    drawings = RECIPE.draw(SHORT, short)
    assert [drawing.name for drawing in drawings] == ["fig-1", "fig-2", "bias-decay"]
    assert [len(drawing.figure.axes) for drawing in drawings] == [4, 4, 3]
    (line,) = [line for line in drawings[2].figure.axes[1].lines if line.get_label() == "found"]
    assert list(line.get_xdata()) == [0.05, 1.001 * threshold()]


def test_scales() -> None:
    assert {part.name for part in RECIPE.parts(RECIPE.scales["paper"])} == {
        "K = 4, no bias",
        "K = 4, free bias",
        "K = 10, no bias",
        "K = 10, free bias",
        "bias decay",
        *STARTS,
    }
    assert len(RECIPE.parts(RECIPE.scales["small"])) == 3 + len(STARTS)


def test_decays_of_the_bias_are_positive() -> None:
    for wrong in (0.0, math.inf, math.nan):
        with pytest.raises(ValidationError, match=r"bias_decays\n.*every value greater than 0"):
            XUFMConfig(bias_decays=(0.1, wrong))


def test_the_first_setting_is_the_studys() -> None:
    assert SIZES[0] == (4, 20, 50, 0.005, 0.001)
    assert RECIPE.scales["paper"].first_steps == 80_000


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_signatures")
def test_all_claims_hold_at_the_papers_scale() -> None:
    results = run(RECIPE.scales["paper"])
    assert failed(RECIPE.scales["paper"], results) == []
    names = [drawing.name for drawing in RECIPE.draw(RECIPE.scales["paper"], results)]
    assert names == ["fig-1", "fig-2", "fig-6", "fig-7", "bias-decay"]
