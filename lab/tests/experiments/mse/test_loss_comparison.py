"""MSE against cross-entropy: every claim seen held and seen not held."""

import math

import pytest
from lab.tests.experiments.mse.histories import ACCURACY, history_of
from lab.tests.experiments.mse.stories import COMPARISON_SETTINGS, compared

from ncscope_lab.claims import judge
from ncscope_lab.experiments.mse.loss_comparison import (
    EXPERIMENT,
    claim_difficulty,
    epochs_to,
    fit_exponent,
    fit_growth,
)
from ncscope_lab.experiments.mse.networks import MSETrainings
from ncscope_lab.observations import Observation, Results


def test_two_data_sets_are_compared_and_more_are_ranked_by_their_errors() -> None:
    (two,) = {claim.source for claim in EXPERIMENT.judge(COMPARISON_SETTINGS, compared())[7::4]}
    assert two == "ours"
    runs = {
        f"{data} {name}": run.model_copy(update={"data": data})
        for name, run in COMPARISON_SETTINGS.runs.items()
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
