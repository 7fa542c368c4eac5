"""Collapse under MSE: every claim seen held and seen not held, every figure drawn."""

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.mse.collapse import GROUPS, RECIPE, SHOWN
from ncscope.lab.runs.recipe import Claim
from tests.lab.observed import results_of
from tests.lab.papers.mse.histories import history_of, small, tiny

CONFIG = small("mse")
KEYS = [key for shown in SHOWN.values() for key in shown.curves]
COLLAPSING = dict.fromkeys(KEYS, (4, 3, 2, 1))
GAINING = {"accuracy": (0.1, 0.8, 0.9, 0.95)}


def results(**changed: tuple[float, ...]) -> Results:
    """Of networks that collapse; the last with other numbers."""
    *first, last = CONFIG.runs
    found = [row for name in first for row in history_of(name, COLLAPSING, GAINING)]
    return Results([*found, *history_of(last, COLLAPSING | changed, GAINING)])


def by_text(found: list[Claim]) -> dict[str, bool]:
    return {claim.text: claim.held for claim in found}


def test_all_claims_hold_for_networks_that_collapse() -> None:
    assert list(by_text(RECIPE.claims(CONFIG, results())).values()) == [True] * (1 + len(KEYS) + 1)


@pytest.mark.parametrize("index", range(len(KEYS)))
def test_a_metric_that_rises_in_one_network_fails_its_claim_alone(index: int) -> None:
    held = by_text(RECIPE.claims(CONFIG, results(**{KEYS[index]: (1, 1, 1, 2)})))
    assert [at for at, good in enumerate(held.values()) if not good] == [1 + index]


def test_zero_error_at_the_end_alone_fails_all_claims_of_the_metrics() -> None:
    held = by_text(RECIPE.claims(CONFIG, results(accuracy=(0, 0, 0, 1))))
    assert list(held.values()) == [False] * (1 + len(KEYS)) + [True]


@pytest.mark.parametrize(("ends", "good"), [((0.9, 0.91), True), ((0.9, 0.9), False)])
def test_most_networks_must_gain(ends: tuple[float, float], good: bool) -> None:
    accuracies = [(0.9, 0.8), ends, (0.9, 0.99)]
    found = [
        row
        for name, pair in zip(CONFIG.runs, accuracies, strict=True)
        for row in history_of(name, COLLAPSING, {"accuracy": (0, 0, *pair)})
    ]
    *_, claim = RECIPE.claims(CONFIG, Results(found))
    assert claim.held is good
    assert f"median {100 * (ends[1] - ends[0]):+.2f} points" in claim.evidence


def test_figures_3_to_8_and_table_1() -> None:
    drawn = {drawing.name: drawing.figure for drawing in RECIPE.drawings(CONFIG, results())}
    assert list(drawn) == [*(f"fig-{number}" for number in range(3, 9)), "table-1"]
    for name, shown in SHOWN.items():
        assert len(drawn[name].axes) == 3
        for axes in drawn[name].axes:
            assert len(axes.get_lines()) == len(shown.curves) + 1  # and the epoch of zero error
    (table,) = drawn["table-1"].axes
    assert [text.get_text() for text in table.texts] == ["+5.00"] * 3


def test_it_runs() -> None:
    config = tiny(RECIPE.scales["small"])
    found = results_of(*RECIPE.parts(config))
    assert {(row.epoch, row.split) for row in found} == {
        (epoch, split) for epoch in (0, 1) for split in ("train", "test")
    }
    assert all(set(KEYS) <= set(row.values) for row in found)
    assert len(RECIPE.claims(config, found)) == 2 + len(KEYS)
    assert len(RECIPE.drawings(config, found)) == 7
    assert {one.groups for one in RECIPE.scales["paper"].runs.values()} == {GROUPS}
