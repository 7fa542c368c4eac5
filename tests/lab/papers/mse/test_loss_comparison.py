"""MSE against cross-entropy: every claim seen held and seen not held."""

from collections.abc import Sequence

import pytest

from ncscope.lab.papers.mse.loss_comparison import RECIPE, claims
from ncscope.lab.papers.mse.training import BOTH
from ncscope.probing.records import Row
from tests.lab.papers.mse.rows import ACCURACY, history_of, rows_of, small, tiny

CONFIG = small(*BOTH)
MSE = [name for name in CONFIG.runs if name.endswith(", mse")]
CROSS_ENTROPY = [name for name in CONFIG.runs if name not in MSE]


TRAIN, TEST = (4, 3, 2, 0.5), (5, 4, 3, 2)


def rows(
    train: Sequence[float] = TRAIN,
    test: Sequence[float] = TEST,
    *,
    loss: str = "mse",
    harder: float = 0.1,
    accuracy: Sequence[float] = ACCURACY,
) -> list[Row]:
    """NC1 of networks on harder and harder data, in proportion; other numbers under one loss."""
    found = []
    for name in CONFIG.runs:
        own = name in (MSE if loss == "mse" else CROSS_ENTROPY)
        place = (MSE if name in MSE else CROSS_ENTROPY).index(name)
        scale = (1 if name in MSE else 2) * (1 + place)
        seen, held_out = (train, test) if own else (TRAIN, TEST)
        right = 0.5 - place * (harder if own else 0.1)
        found += history_of(
            name,
            {"nc1": [scale * value for value in seen], "accuracy": accuracy if own else ACCURACY},
            {"nc1": [scale * value for value in held_out], "accuracy": [right] * 4},
        )
    return found


def failing(found: list[Row]) -> set[int]:
    return {index for index, one in enumerate(claims(CONFIG, found)) if not one["held"]}


def test_all_claims_hold_as_in_the_paper() -> None:
    assert len(claims(CONFIG, rows())) == 8
    assert failing(rows()) == set()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (rows(accuracy=(0, 0, 0, 0.9)), {0, 3, 5}),
        (rows((40, 30, 20, 5), (50, 40, 30, 20)), {1}),
        (rows(test=(0.5, 0.5, 0.45, 0.4)), {2}),
        (rows(test=(5, 4, 7, 8)), {3}),
        (rows(test=(5, 4, 7, 8), loss="cross-entropy"), {4}),
        (rows((4, 3, 2, 1.5), loss="cross-entropy"), {5}),
        (rows(harder=-0.1), {6}),
        (rows(harder=-0.1, loss="cross-entropy"), {7}),
    ],
)
def test_each_claim_can_fail(found: list[Row], expected: set[int]) -> None:
    assert failing(found) == expected


def test_figures_10_and_12() -> None:
    drawn = {drawing.name: drawing.figure for drawing in RECIPE.drawings(CONFIG, rows())}
    assert list(drawn) == ["fig-10", "fig-12"]
    for figure in drawn.values():
        assert [len(axes.get_lines()) for axes in figure.axes] == [4] * 3
    ends = [drawn[name].axes[0].get_lines()[0].get_ydata()[-1] for name in drawn]
    assert ends == [0.5, 2]


def test_it_runs() -> None:
    config = tiny(small(*BOTH))
    found = rows_of(RECIPE.parts(config))
    assert {row["part"] for row in found} == set(config.runs)
    assert len(RECIPE.drawings(config, found)) == 2
    assert all("nc1" in row for row in found)
