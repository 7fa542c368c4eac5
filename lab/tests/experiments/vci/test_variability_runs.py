"""What VCI's experiments share: trends, parts of the squared distance, spectra."""

from math import inf, isnan, nan

import pytest
from lab.tests.experiments.vci.courses import FALLING, NONE, RISING, made

from ncscope_lab.claims import judge, one
from ncscope_lab.experiment import Trainings, repeat_with_seeds
from ncscope_lab.experiments.vci.variability_runs import (
    FALLS,
    RESNET50,
    RISES,
    claim_parts,
    claim_trend,
    in_setting,
    read_spectra,
    spacing_of_trends,
    tabulate_spectra,
    trend,
    unevenness,
)
from ncscope_lab.quantities import Runs, last

SETTINGS = Trainings(runs=repeat_with_seeds({"a": RESNET50, "b": RESNET50}, seeds=(0, 1, 2)))
SEEDED = list(SETTINGS.runs)


def collect(changed=NONE, names=SEEDED, **spectra) -> Runs:
    return Runs.of({name: SETTINGS.runs[name] for name in names}, made(names, changed, **spectra))


def verdict(*courses, names=SEEDED, **options) -> str:
    """Verdict on a claim that VCI falls in both settings, whose second has these courses."""
    changed = {(f"b, seed {seed}", "train", "vci"): course for seed, course in enumerate(courses)}
    fields = {"text": "", "source": "", "quantity": trend("vci"), "region": FALLS} | options
    return judge([claim_trend(**fields)], collect(changed, names))[0].verdict


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        ((9.0, 3.0, 2.0, 1.0, 0.5), -1),
        ((0.1, 3.0, 2.0, 1.0, 0.5), -1),  # the untrained network does not count
        ((0.1, 1.0, 2.0, 3.0, 4.0), 1),
        ((9.0, 1.0, 2.0, 4.0, 3.0), 0.8),  # 1 - 6 * 2 / (4 * 15)
        ((9.0, 1.0, nan, 2.0, 3.0), nan),
    ],
)
def test_a_trend_is_the_rank_correlation_with_the_epoch(course, expected: float) -> None:
    run = collect({(SEEDED[0], "test", "vci"): course})[0]
    assert trend("vci", "test")(run) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("courses", "expected"),
    [
        ([FALLING] * 3, "held"),
        ([RISING] * 3, "not held"),
        ([FALLING, RISING, RISING], "undecided"),
    ],
)
def test_a_trend_must_hold_in_every_setting(courses, expected: str) -> None:
    assert verdict(*courses) == expected
    assert verdict(*courses, names=SEEDED[:1]) == "undecided"


def test_a_trend_of_one_setting_is_enough_if_so_said() -> None:
    rises = {"region": RISES}
    assert verdict(*[RISING] * 3, **rises) == "not held"
    assert verdict(*[RISING] * 3, **rises, enough=one) == "held"
    assert verdict(*[RISING] * 3, quantity=trend("vci", "test")) == "held"


def test_a_run_is_compared_with_the_run_of_its_seed() -> None:
    runs = collect({("a, seed 1", "train", "vci"): (9.0, 3.0, 2.0, 2.0, 4.0)})
    compared = last("vci") / in_setting("a", last("vci"))
    assert [compared(run) for run in runs] == pytest.approx([1, 1, 1, 1, 1 / 4, 1])
    assert isnan(in_setting("c", last("vci"))(runs[0]))


def test_a_trend_can_begin_later() -> None:
    # Epochs 0 to 4, of which a half begins at 2.
    run = collect({(SEEDED[0], "train", "vci"): (0.1, 9.0, 2.0, 3.0, 4.0)})[0]
    late = trend("vci", since=0.5)
    assert (late(run), late.parts[0](run)) == (pytest.approx(1), pytest.approx(2, rel=0.01))
    assert trend("vci", since=0.25)(run) == pytest.approx(-1 + 0.8)


def test_trends_of_short_courses_are_coarse() -> None:
    # Two ranks exchanged change the sum of squared differences by 2: of 4 epochs 1 - 6 * 2 / 60.
    run = collect({(SEEDED[0], "train", "vci"): (9.0, 1.0, 2.0, 4.0, 3.0)})[0]
    assert spacing_of_trends(Runs([run])) == pytest.approx(1 - trend("vci")(run))
    assert spacing_of_trends(Runs()) == 0.5


@pytest.mark.parametrize(
    ("key", "course", "held"),
    [
        ("within_in_signal", (9.0, 3.0, 2.0, 1.0, 2.5), [True, True]),
        ("within_in_signal", RISING, [False, True]),
        ("within_off_signal", FALLING, [True, False]),
    ],
)
def test_parts_are_judged_apart(key: str, course, held: list[bool]) -> None:
    runs = collect({(run, "train", key): course for run in SEEDED[:3]})
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
