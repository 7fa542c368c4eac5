"""MSE against cross-entropy: every claim seen held and seen not held."""

import math
from collections.abc import Sequence
from operator import mul

import pytest
from lab.tests.experiments.mse.histories import ACCURACY, history_of, small

from ncscope_lab.claims import judge
from ncscope_lab.experiments.mse.loss_comparison import (
    EXPERIMENT,
    claim_difficulty,
    epochs_to,
    fit_exponent,
    fit_growth,
)
from ncscope_lab.experiments.mse.networks import BOTH, MSETrainings
from ncscope_lab.observations import Observation, Results

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
    return {index for index, one in enumerate(EXPERIMENT.judge(CONFIG, found)) if not one.held}


def test_all_claims_hold_as_in_the_paper() -> None:
    claims = EXPERIMENT.judge(CONFIG, results())
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
    (two,) = {claim.source for claim in EXPERIMENT.judge(CONFIG, results())[7::4]}
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
    settings = MSETrainings(runs=runs)
    table = [claim_difficulty(settings, "mse")]
    (claim,) = judge(table, EXPERIMENT.collect(settings, Results(found)))
    assert (claim.verdict, claim.source) == ("held", "MSE, figure 12")
    assert "geometric mean 2," in claim.evidence
    assert "from one to the next harder" in claim.text


def course(values: dict[int, float]) -> list[Observation]:
    return [Observation(epoch, epoch, values={"nc1": value}) for epoch, value in values.items()]


@pytest.mark.parametrize(
    ("level", "epoch"), [(10.0, 2.0), (1.0, 4.0), (0.1, 7.0), (0.01, 10.0), (100.0, math.nan)]
)
def test_epochs_to_a_value_are_interpolated_on_its_logarithm(level: float, epoch: float) -> None:
    path = course({0: 100.0, 4: 1.0, 10: 0.01})
    assert epochs_to(path, level) == pytest.approx(epoch, nan_ok=True)


def test_the_first_of_several_passages_counts() -> None:
    assert epochs_to(course({0: 10.0, 2: 0.1, 4: 10.0, 6: 0.1}), 1.0) == pytest.approx(1)
    assert math.isnan(epochs_to(course({0: 10.0, 2: math.nan}), 1.0))
    assert math.isnan(epochs_to(course({0: 10.0, 2: 1.0}), math.nan))


def test_the_rate_is_the_exponent_of_a_power_of_the_epoch() -> None:
    path = course({0: 7.0} | {epoch: 5 * epoch**-1.5 for epoch in (1, 3, 10, 30)})
    assert fit_exponent(path) == pytest.approx(1.5)
    assert math.isnan(fit_exponent(path[:2]))
    assert math.isnan(fit_exponent(course({1: 1.0, 2: 0.0})))


def test_growth_needs_positive_values() -> None:
    assert fit_growth([(0, 3.0), (1, 6.0), (2, 12.0)]) == pytest.approx(2)
    assert math.isnan(fit_growth([(0, 3.0)]))
    assert math.isnan(fit_growth([(0, 3.0), (1, math.nan)]))
