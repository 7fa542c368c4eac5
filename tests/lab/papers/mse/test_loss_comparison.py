"""MSE against cross-entropy: every claim seen held and seen not held."""

from collections.abc import Sequence

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.mse.loss_comparison import RECIPE
from ncscope.lab.papers.mse.training import BOTH
from tests.lab.observed import results_of
from tests.lab.papers.mse.histories import ACCURACY, history_of, small, tiny

CONFIG = small(*BOTH)
MSE = [name for name in CONFIG.runs if name.endswith(", mse")]
CROSS_ENTROPY = [name for name in CONFIG.runs if name not in MSE]


TRAIN, TEST = (4, 3, 2, 0.5), (5, 4, 3, 2)


def results(
    train: Sequence[float] = TRAIN,
    test: Sequence[float] = TEST,
    *,
    loss: str = "mse",
    harder: float = 0.1,
    accuracy: Sequence[float] = ACCURACY,
) -> Results:
    """NC1 of networks on harder and harder data, in proportion; other numbers under one loss."""
    found = []
    for name in CONFIG.runs:
        own = name in (MSE if loss == "mse" else CROSS_ENTROPY)
        rank = (MSE if name in MSE else CROSS_ENTROPY).index(name)
        scale = (1 if name in MSE else 2) * (1 + rank)
        seen, held_out = (train, test) if own else (TRAIN, TEST)
        right = 0.5 - rank * (harder if own else 0.1)
        found += history_of(
            name,
            {"nc1": [scale * value for value in seen], "accuracy": accuracy if own else ACCURACY},
            {"nc1": [scale * value for value in held_out], "accuracy": [right] * 4},
        )
    return Results(found)


def failing(found: Results) -> set[int]:
    return {index for index, one in enumerate(RECIPE.claims(CONFIG, found)) if not one.held}


def test_all_claims_hold_as_in_the_paper() -> None:
    assert len(RECIPE.claims(CONFIG, results())) == 8
    assert failing(results()) == set()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (results(accuracy=(0, 0, 0, 0.9)), {0, 3, 5}),
        (results((40, 30, 20, 5), (50, 40, 30, 20)), {1}),
        (results(test=(0.5, 0.5, 0.45, 0.4)), {2}),
        (results(test=(5, 4, 7, 8)), {3}),
        (results(test=(5, 4, 7, 8), loss="cross-entropy"), {4}),
        (results((4, 3, 2, 1.5), loss="cross-entropy"), {5}),
        (results(harder=-0.1), {6}),
        (results(harder=-0.1, loss="cross-entropy"), {7}),
    ],
)
def test_each_claim_can_fail(found: Results, expected: set[int]) -> None:
    assert failing(found) == expected


def test_figures_10_and_12() -> None:
    drawn = {drawing.name: drawing.figure for drawing in RECIPE.drawings(CONFIG, results())}
    assert list(drawn) == ["fig-10", "fig-12"]
    for figure in drawn.values():
        assert [len(axes.get_lines()) for axes in figure.axes] == [4] * 3
    ends = [drawn[name].axes[0].get_lines()[0].get_ydata()[-1] for name in drawn]
    assert ends == [0.5, 2]


def test_it_runs() -> None:
    config = tiny(small(*BOTH))
    found = results_of(*RECIPE.parts(config))
    assert {row.part for row in found} == set(config.runs)
    assert len(RECIPE.drawings(config, found)) == 2
    assert all("nc1" in row for row in found)
