"""Alerts: which conditions there are, when they are met, and that they end nothing."""

import math
import warnings
from typing import Any

import pytest
import torch

import ncscope
from ncscope import AlertWarning, History, InputError
from ncscope.measurement.records import LayerRecord, Measurement, ModelRecord


def measurement(step: int, value: float, split: str = "train", **trust: Any) -> Measurement:
    layer = LayerRecord("last", {"nc1": value, "rankme": 5.0}, (), 2, 10, 3, **trust)
    return Measurement(ModelRecord((layer,)), step, split)


def with_error(step: int, value: float) -> Measurement:
    trust = {"standard_errors": {"nc1": 0.01 * value}, "bias_corrected": {"nc1": value}}
    return measurement(step, value, **trust)


def alerts(condition: str, *measurements: Measurement) -> list[str]:
    """The warnings of a history, which are all alerts."""
    history = History(alert=condition)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for each in measurements:
            history.append(each)
    assert all(each.category is AlertWarning for each in caught)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        ("nc1 rises", [2]),
        ("nc1 falls", [1, 3]),
        ("nc1 above 0.5", [0, 2]),
        ("nc1>0.5", [0, 2]),
        (" nc1  below  4e-1 ", [3]),
        ("nc1 < .4", [3]),
        ("rankme rises", []),
        ("within_in_signal rises", []),  # which was not measured
    ],
)
def test_conditions(condition, steps):
    values = [0.6, 0.5, 0.7, 0.3, math.nan]
    said = alerts(condition, *(measurement(step, value) for step, value in enumerate(values)))
    assert [int(text.rpartition(" ")[2].rstrip(")")) for text in said] == steps


def test_the_warning_says_what_and_where():
    assert alerts("nc1 rises", measurement(1, 0.5), measurement(2, 0.625)) == [
        "nc1 rises: nc1 is 0.625 after 0.5 (train, step 2)"
    ]
    assert alerts("rankme < 10", measurement(1, 0.5, "val")) == [
        "rankme < 10: rankme is 5 (val, step 1)"
    ]


def test_a_change_counts_beyond_both_intervals():
    # half of an interval is 2.16 % of the value: those of 1 and 1.04 overlap, and of 1 and 1.05 not
    assert alerts("nc1 rises", measurement(0, 1.0), measurement(1, 1.04))
    assert not alerts("nc1 rises", with_error(0, 1.0), with_error(1, 1.04))
    assert alerts("nc1 rises", with_error(0, 1.0), with_error(1, 1.05))
    assert not alerts("nc1 falls", with_error(0, 1.04), with_error(1, 1.0))
    assert alerts("nc1 falls", with_error(0, 1.05), with_error(1, 1.0))


def test_splits_are_compared_apart_and_a_step_counts_once():
    rows = [
        measurement(1, 0.5),
        measurement(1, 0.7, "val"),
        measurement(2, 0.4),
        measurement(2, 0.8, "val"),
        measurement(2, 0.9, "val"),  # again: the earlier one of this step is replaced
    ]
    assert alerts("nc1 rises", *rows) == ["nc1 rises: nc1 is 0.8 after 0.7 (val, step 2)"]


def test_functions_get_the_measurement_and_their_errors_end_nothing():
    seen = []

    def fail(new: Measurement) -> None:
        raise KeyError(new.step)

    history = History(alert={"nc1 rises": seen.append, "nc1 above 0.6": fail})
    history.append(measurement(1, 0.5))
    with pytest.warns(AlertWarning, match=r"'nc1 above 0.6' failed .train, step 2.: KeyError: 2"):
        history.append(measurement(2, 0.75))
    assert seen == [history.measurements[1]]  # an equal copy
    assert len(history) == 2


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), KeyError("x")])
def test_what_a_function_does_ends_and_changes_nothing(error):
    def act(new: Measurement) -> None:
        new.model_record.layers[-1].metrics.clear()
        raise error

    history = History(alert={"nc1 above 0": act})
    with pytest.warns(AlertWarning, match=f"failed .*{type(error).__name__}"):
        history.append(measurement(1, 0.5))
    assert history["nc1"].tolist() == [0.5]


def test_ctrl_c_in_a_function_stops_the_program():
    def act(new: Measurement) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        History(alert={"nc1 above 0": act}).append(measurement(1, 0.5))


def test_a_warning_that_is_an_error_comes_after_the_measurement_and_the_other_conditions():
    seen = []
    history = History(alert={"nc1 above 0": None, "rankme above 0": seen.append})
    with pytest.raises(AlertWarning, match=r"nc1 is 0\.5"):  # warnings are errors in the tests
        history.append(measurement(1, 0.5))
    assert len(history) == len(seen) == 1


def test_reports_are_checked_and_files_hold_no_alerts(tmp_path):
    torch.manual_seed(0)
    labels = torch.arange(40) % 2
    history = History(alert=["nc1 rises"])
    for step, spread in enumerate((0.1, 1.0)):
        report = ncscope.measure(torch.eye(4)[labels] + spread * torch.randn(40, 4), labels)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history.add(report, step=step)
        assert len(caught) == step
    loaded = History.load(history.save(tmp_path / "run.json"))
    loaded.add(ncscope.measure(torch.randn(40, 4), labels), step=2)  # a warning would be an error


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("nc_1 rises", "write nc1 or"),
        ("rankm < 10", "write rankme"),
        ("nc1 grows", "rises, falls, or above or below"),
        ("nc1 >= 3", "rises, falls, or above or below"),
        ("nc1 above nan", "rises, falls, or above or below"),
        ("nc1", "rises, falls, or above or below"),
        ("", "rises, falls, or above or below"),
    ],
)
@pytest.mark.parametrize("form", [str, lambda text: [text], lambda text: {text: print}])
def test_what_is_no_condition_is_refused(condition, said, form):
    with pytest.raises(InputError, match=said):
        History(alert=form(condition))


@pytest.mark.parametrize("alert", [3, ["nc1 rises", 3], {"nc1 rises": "print"}])
@pytest.mark.usefixtures("unchecked_signatures")
def test_other_types_are_refused(alert):
    with pytest.raises(InputError, match="expected alert as"):
        History(alert=alert)
