"""The terminal phase, and claims over networks and seeds."""

import math

import pytest

from ncscope.lab.evidence.judging import below
from ncscope.lab.papers.mse.terminal import (
    changes,
    in_words,
    kept,
    most,
    over_networks,
    terminal_phase,
    zero_error,
)
from tests.lab.papers.mse.histories import history_of, small

CONFIG = small("mse")
FALLING = {"nc1": (4, 3, 2, 1)}


def test_the_terminal_phase_runs_from_the_first_epoch_of_zero_training_error() -> None:
    results = history_of("a", {"nc1": (4, 3, 2, 1)}, {"nc1": (8, 7, 6, 5)})
    found = [(row.epoch, row["nc1"]) for row in terminal_phase(results, "a", "test")]
    assert found == [(8, pytest.approx(6)), (12, pytest.approx(5))]
    never = history_of("a", {"accuracy": (0, 0.5, 0.9, 0.9989)})
    assert terminal_phase(never, "a") == []
    effectively = history_of("a", {"accuracy": (0, 0.9991, 0.9, 1)})
    assert terminal_phase(effectively, "a") == effectively[1:]


def test_a_phase_of_one_epoch_has_no_change() -> None:
    results = history_of("a", FALLING) + history_of("b", FALLING | {"accuracy": (0, 0, 0, 1)})
    found = changes(results, ["a", "b"], "nc1")
    assert found == {"a": (pytest.approx(2), 1), "b": None}
    assert kept(found["a"]) == pytest.approx(0.5)
    assert math.isnan(kept(found["b"]))
    assert in_words(found["a"]) == "2 to 1"


@pytest.mark.parametrize(
    ("good", "open_", "verdict"),
    [(3, 0, "held"), (2, 0, "held"), (1, 1, "undecided"), (1, 0, "not held"), (0, 1, "not held")],
)
def test_two_of_three_networks_are_most(good: int, open_: int, verdict: str) -> None:
    values = {}
    for index, name in enumerate(CONFIG.runs):
        network, seed = divmod(index, 3)
        values[name] = 0.5 if network < good else (0.1, 0.9, 1.7)[seed] * (network < good + open_)
        values[name] += 2.0 * (network >= good + open_) + 1e-7 * seed
    claim = over_networks("it is small", CONFIG, values, source="ours", region=below(1))
    assert claim.verdict == verdict
    assert claim.evidence.startswith(f"{good} of 3 networks held, {open_} undecided")


def test_most_is_two_thirds() -> None:
    assert [most(count) for count in (0, 1, 2, 3, 4, 13)] == [0, 1, 2, 2, 3, 9]


@pytest.mark.parametrize(
    ("accuracy", "verdict"),
    [((0, 0, 1, 1), "held"), ((0, 0, 0, 1), "not held"), ((0, 0, 0, 0.9), "not held")],
)
def test_zero_error_must_come_before_the_end(accuracy: tuple[float, ...], verdict: str) -> None:
    results = history_of("a", FALLING) + history_of("b", {"accuracy": accuracy})
    assert zero_error(results, ["a", "b"]).verdict == verdict


def test_zero_error_of_a_run_without_results_is_undecided() -> None:
    assert zero_error(history_of("a", FALLING), ["a", "b"]).verdict == "undecided"
