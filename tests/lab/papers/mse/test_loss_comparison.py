"""MSE against cross-entropy: every claim seen held and seen not held."""

from collections.abc import Sequence
from operator import mul

import pytest

from ncscope.lab.observations import Results
from ncscope.lab.papers.mse.difficulty import difficulty
from ncscope.lab.papers.mse.loss_comparison import RECIPE
from ncscope.lab.papers.mse.training import BOTH, MSETraining
from tests.lab.observed import results_of
from tests.lab.papers.mse.histories import ACCURACY, history_of, small, tiny

CONFIG = small(*BOTH)
TRAIN, TEST = {"mse": (8, 3, 0.9, 0.1), "cross-entropy": (8, 5, 3, 1)}, (8.1, 6, 4, 3)
GOLD = {"mse": (8, 6, 4, 3), "cross-entropy": (8, 7, 5, 4)}


def results(
    loss: str = "mse",
    train: Sequence[float] | None = None,
    test: Sequence[float] | None = None,
    *,
    left: float = 10,
    accuracy: Sequence[float] = ACCURACY,
    gap: float = 0,
) -> Results:
    """NC1 falls less on the harder data; under one loss with other numbers."""
    found = []
    for name, run in CONFIG.runs.items():
        own, hard = run.loss == loss, run.data != "digits"
        seen = train if own and train else TRAIN[run.loss]
        held_out = test if own and test else GOLD[run.loss]
        end = left if own else 10
        scale = (5, end, end, end) if hard else (1, 1, 1, 1)  # larger before training too
        right = 0.8 - 0.1 * hard + (gap if run.loss == "mse" else 0)
        found += history_of(
            name,
            {"nc1": list(map(mul, scale, seen)), "accuracy": accuracy if own else ACCURACY},
            {"nc1": list(map(mul, scale, held_out)), "accuracy": [0.1, 0.3, right, right]},
        )
    return Results(found)


def failing(found: Results) -> set[int]:
    return {index for index, one in enumerate(RECIPE.judge(CONFIG, found)) if not one.held}


def test_all_claims_hold_as_in_the_paper() -> None:
    claims = RECIPE.judge(CONFIG, results())
    assert len(claims) == 12
    assert failing(results()) == set()
    assert {claim.source for claim in claims} == {
        *("ours", "MSE, figure 10", "MSE, figure 12", "MSE, section 1.2")
    }


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (results(accuracy=(0, 0, 0, 0.9)), {0, 5, 6}),
        (results(train=(8, 5.9, 3, 1)), {1}),  # as late, but from a higher value at epoch 4
        (results(train=(8, 2, 0.9, 0.8)), {2, 6}),  # sooner, but no steeper
        (results(gap=0.02), {3}),
        (results(test=(8.1, 6, 0.2, 0.1)), {4}),
        (results(test=(8, 4, 3.1, 3)), {5}),
        (results(test=(8, 40, 40, 4)), {6}),
        (results(left=5), {7}),
        (results("cross-entropy", test=(8, 2.9, 2.1, 1)), {8, 10}),
        (results("cross-entropy", test=(8, 5, 4.1, 4)), {9}),
        (results("cross-entropy", left=5), {11}),
    ],
)
def test_each_claim_can_fail(found: Results, expected: set[int]) -> None:
    assert failing(found) == expected


def test_two_data_sets_are_compared_and_more_are_ranked_by_their_errors() -> None:
    (two,) = {claim.source for claim in RECIPE.judge(CONFIG, results())[7::4]}
    assert two == "ours"
    runs = {
        f"{data} {name}": run.model_copy(update={"data": data})
        for name, run in CONFIG.runs.items()
        for data in ("digits", "patterns", "warped-digits")
        if run.data == "digits" and "vgg" in name
    }
    right = {"digits": 0.9, "warped-digits": 0.8, "patterns": 0.7}
    ends = {"digits": 1, "warped-digits": 2, "patterns": 4}
    found = []
    for number, (name, run) in enumerate(runs.items()):
        course = [8, 6, 5, ends[run.data] * (1 + 1e-3 * number)]
        seen = {"nc1": course, "accuracy": [0.1, 0.3, right[run.data], right[run.data]]}
        found += history_of(name, {"nc1": [8, 6, 5, 1], "accuracy": ACCURACY}, seen)
    claim = difficulty(MSETraining(runs=runs), Results(found), "mse")
    assert (claim.verdict, claim.source) == ("held", "MSE, figure 12")
    assert "geometric mean 2," in claim.evidence
    assert "from one to the next harder" in claim.text


def test_figures_10_and_12() -> None:
    drawn = {drawing.name: drawing.figure for drawing in RECIPE.draw(CONFIG, results())}
    assert list(drawn) == ["fig-10", "fig-12"]
    for figure in drawn.values():
        lines = [len(axes.get_lines()) for axes in figure.axes if axes.get_visible()]
        assert lines == [3 * 4] * 3  # three seeds of two curves and two epochs of zero error
    ends = [drawn[name].axes[0].get_lines()[0].get_ydata()[-1] for name in drawn]
    assert ends == pytest.approx([0.1, 3])


@pytest.mark.slow
def test_it_runs() -> None:
    config = tiny(small(*BOTH))
    found = results_of(*RECIPE.parts(config))
    assert {row.part for row in found} == set(config.runs)
    assert len(RECIPE.draw(config, found)) == 2
    assert all("nc1" in row for row in found)
