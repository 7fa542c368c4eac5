"""The terminal phase, the claim that there is one, and the grid of the figures."""

import math

import pytest
from lab.tests.experiments.mse.histories import history_of, run_of, small

from ncscope_lab.claims import judge
from ncscope_lab.experiments.mse.networks import BOTH
from ncscope_lab.experiments.mse.terminal_phase import (
    ZERO_ERROR_CLAIM,
    at_zero_error,
    draw_losses,
    draw_networks,
    end_over_zero_error,
    select_phase,
)
from ncscope_lab.observations import Observation, Results
from ncscope_lab.quantities import Runs

NC1 = {"nc1": (4, 3, 2, 1)}
LATE = NC1 | {"accuracy": (0, 0, 0, 1)}


def test_the_terminal_phase_runs_from_the_first_epoch_of_zero_training_error() -> None:
    run = run_of(history_of("a", NC1, {"nc1": (8, 7, 6, 5)}))
    found = [(row.epoch, row["nc1"]) for row in select_phase(run, "test")]
    assert found == [(8, pytest.approx(6)), (12, pytest.approx(5))]
    assert select_phase(run_of(history_of("a", {"accuracy": (0, 0.5, 0.9, 0.9989)}))) == []
    nearly = history_of("a", {"accuracy": (0, 0.9991, 0.9, 1)})
    assert select_phase(run_of(nearly)) == nearly[1:]


def test_a_phase_of_one_epoch_has_no_change() -> None:
    run, late = run_of(history_of("a", NC1)), run_of(history_of("a", LATE))
    assert at_zero_error("nc1")(run) == pytest.approx(2)
    assert end_over_zero_error("nc1")(run) == pytest.approx(0.5)
    assert select_phase(late) == []
    assert math.isnan(end_over_zero_error("nc1")(late))


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        (history_of("", NC1), "held"),
        (history_of("", LATE), "not held"),
        (history_of("", NC1 | {"accuracy": (0, 0, 0, 0.9)}), "not held"),
        ([], "undecided"),
    ],
)
def test_zero_error_must_come_before_the_end(last: list[Observation], verdict: str) -> None:
    runs = small("mse").runs
    *others, odd = runs
    rows = [row for name in others for row in history_of(name, NC1)]
    rows += [Observation.of_line(row.as_line() | {"part": odd}) for row in last]
    (claim,) = judge([ZERO_ERROR_CLAIM], Runs.of(runs, Results(rows)))
    assert claim.verdict == verdict


def test_the_grid_has_a_column_a_data_set_and_a_row_a_kind_of_network() -> None:
    runs = small(*BOTH).runs
    rows = Results(row for name in runs for row in history_of(name, NC1))
    figure = draw_networks(
        Runs.of(runs, rows), "NC1", lambda axes, own: draw_losses(axes, own, "nc1")
    )
    shown = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in shown]
    assert titles == ["VGG, digits", "VGG, warped-digits", "ResNet, digits"]
    assert len(figure.axes) == 4
    assert [axes.get_xlabel() for axes in shown] == ["", "epoch", "epoch"]  # below the last cell
    lines = [len(axes.get_lines()) for axes in shown]
    assert lines == [3 * 4] * 3  # three seeds of two curves, each with a dot at zero error
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["MSE", "zero training error", "cross-entropy"]
