"""What VCI's experiments share: courses, trends, parts of the squared distance, spectra."""

from math import inf, nan

import pytest

from ncscope.lab.claims import judge, one
from ncscope.lab.experiment import Trainings
from ncscope.lab.experiments.vci.variability_runs import (
    RESNET50,
    at_end,
    change,
    claim_parts,
    claim_trend,
    of_settings,
    over_setting,
    read_spectra,
    repeat_with_seeds,
    share_off_signal,
    skip_start,
    tabulate_spectra,
    unevenness,
)
from ncscope.lab.quantities import Runs
from tests.lab.experiments.vci.courses import FALLING, NONE, RETURNING, RISING, made

SETTINGS = Trainings(runs=repeat_with_seeds({"a": RESNET50, "b": RESNET50}, seeds=(0, 1)))
SEEDED = list(SETTINGS.runs)


def collect(changed=NONE, names=SEEDED, **spectra) -> Runs:
    return Runs.of({name: SETTINGS.runs[name] for name in names}, made(names, changed, **spectra))


def verdict(changed=NONE, names=SEEDED, **options) -> str:
    claim = claim_trend("", "vci", source="", where=of_settings("a", "b"), **options)
    return judge([claim], collect(changed, names))[0].verdict


def test_courses_begin_after_the_first_training() -> None:
    run = collect()[0]
    assert [row.epoch for row in skip_start(run, "test")] == [2, 4, 6]
    assert (at_end("vci")(run), change("vci")(run)) == pytest.approx((1, 1 / 3))


@pytest.mark.parametrize(
    ("courses", "expected"),
    [
        ((FALLING, FALLING), "held"),
        ((RISING, RISING), "not held"),
        ((FALLING, RISING), "undecided"),
        (((9.0, 1.0, 1.0, 0.95),) * 2, "not held"),
        (((9.0, 1.0, 1.0, 0.85),) * 2, "held"),
    ],
)
def test_a_trend_needs_its_factor_in_every_setting(courses, expected: str) -> None:
    changed = {(f"b, seed {seed}", "train", "vci"): courses[seed] for seed in (0, 1)}
    assert verdict(changed) == expected


def test_a_trend_of_one_setting_is_enough_if_so_said() -> None:
    changed = {(f"b, seed {seed}", "train", "vci"): RISING for seed in (0, 1)}
    assert verdict(changed, rises=True) == "not held"
    assert verdict(changed, rises=True, enough=one) == "held"
    assert verdict(split="test") == "held"


def test_one_seed_decides_nothing() -> None:
    assert verdict(names=SEEDED[:1]) == "undecided"


def test_a_run_is_compared_with_the_run_of_its_seed() -> None:
    runs = collect({("a, seed 1", "train", "vci"): (9.0, 3.0, 2.0, 4.0)})
    compared = [over_setting("a", at_end("vci"))(run) for run in runs]
    assert compared == pytest.approx([1, 1, 1, 1 / 4])
    assert over_setting("c", at_end("vci"))(runs[0]) != over_setting("c", at_end("vci"))(runs[0])


def test_the_share_off_signal_begins_with_the_untrained_network() -> None:
    assert share_off_signal(collect()[0]) == pytest.approx([0.1 / 9.1, 1 / 4, 2 / 4, 4 / 5])


@pytest.mark.parametrize(
    ("key", "course", "held"),
    [
        ("within_in_signal", RETURNING, [True, True]),
        ("within_in_signal", RISING, [False, True]),
        ("within_off_signal", FALLING, [True, False]),
    ],
)
def test_parts_are_judged_apart(key: str, course, held: list[bool]) -> None:
    runs = collect({(run, "train", key): course for run in SEEDED[:2]})
    assert [finding.held for finding in judge(claim_parts("a"), runs)] == held


@pytest.mark.parametrize(
    ("between", "total", "expected"),
    [
        ((4.0, 1.0), (5.0, 3.0, 0.5), (4.0, 5 / 3)),
        ((4.0, 1.0), (5.0, 3.0, 1e-20), (4.0, 5 / 3)),
        ((4.0, 0.0), (5.0, 2.0), (inf, 2.5)),
        ((4.0, 1.0), (5.0,), (nan, nan)),
    ],
)
def test_as_many_eigenvalues_of_both_are_compared(between, total, expected) -> None:
    spectra = read_spectra(collect(between=between, total=total)[0])
    assert spectra == (list(between), list(total))
    assert unevenness(*spectra) == pytest.approx(expected, nan_ok=True)


def test_the_table_of_eigenvalues_has_a_line_for_each_setting() -> None:
    table = tabulate_spectra(collect())
    assert len(table.columns) == 5
    assert table.lines == {name: ["2", "nan", "nan", "4", "1.67"] for name in ("a", "b")}
