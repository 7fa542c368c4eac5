"""What VCI's experiments share: trends, parts of the squared distance, spectra."""

from math import inf, nan

import pytest

from ncscope.lab.papers.vci.variability import (
    Spectra,
    groups_of,
    projection_claims,
    projections,
    share_off_signal,
    spectra,
    spectrum_table,
    trained,
    trend_claim,
    unevenness,
)
from tests.lab.papers.vci.courses import FALLING, RETURNING, RISING, made

SEEDED = ["a, seed 0", "a, seed 1", "b, seed 0", "b, seed 1"]


def test_courses_begin_after_the_first_training() -> None:
    assert [row.epoch for row in trained(made(["a"]), "a", "test")] == [2, 4, 6]


def judge(changed, **options) -> str:
    claim = trend_claim("", made(SEEDED, changed), groups_of(SEEDED), "vci", source="", **options)
    return claim.verdict


@pytest.mark.parametrize(
    ("courses", "verdict"),
    [
        ((FALLING, FALLING), "held"),
        ((RISING, RISING), "not held"),
        ((FALLING, RISING), "undecided"),
        (((9.0, 1.0, 1.0, 0.95),) * 2, "not held"),
        (((9.0, 1.0, 1.0, 0.85),) * 2, "held"),
    ],
)
def test_a_trend_needs_its_factor_in_every_group(courses, verdict: str) -> None:
    changed = {(f"b, seed {seed}", "train", "vci"): courses[seed] for seed in (0, 1)}
    assert judge(changed) == verdict


def test_a_trend_of_one_group_is_enough_if_so_said() -> None:
    changed = {(f"b, seed {seed}", "train", "vci"): RISING for seed in (0, 1)}
    assert judge(changed, rises=True) == "not held"
    assert judge(changed, rises=True, enough=1) == "held"
    assert judge({}, split="test") == "held"


def test_one_seed_decides_nothing() -> None:
    claim = trend_claim("", made(["a"]), {"a": ["a"]}, "vci", source="")
    assert claim.verdict == "undecided"


def test_the_two_parts_add_up_to_the_squared_distance() -> None:
    path = trained(made(["a"]), "a")
    found = projections(path)
    parts = zip(found.inside, found.outside, found.between, strict=True)
    sums = [(inside + outside) / between for inside, outside, between in parts]
    assert sums == pytest.approx([row["nc1_quotient"] for row in path])


def test_the_share_off_signal_begins_with_the_untrained_network() -> None:
    assert share_off_signal(made(["a"]), "a") == pytest.approx([0.1 / 9.1, 1 / 4, 2 / 4, 4 / 5])


@pytest.mark.parametrize(
    ("key", "course", "held"),
    [
        ("within_in_signal", FALLING, [True, True]),
        ("within_in_signal", RETURNING, [True, True]),
        ("within_in_signal", RISING, [False, True]),
        ("within_off_signal", FALLING, [True, False]),
    ],
)
def test_projections_are_judged_apart(key: str, course, held: list[bool]) -> None:
    results = made(SEEDED, {(run, "train", key): course for run in SEEDED[:2]})
    claims = projection_claims(results, groups_of(SEEDED))
    assert [claim.held for claim in claims] == held


@pytest.mark.parametrize(
    ("between", "total", "expected"),
    [
        ((4.0, 1.0), (5.0, 3.0, 0.5), (4.0, 5 / 3)),
        ((4.0, 1.0), (5.0, 3.0, 1e-20), (4.0, 5 / 3)),
        ((4.0, 0.0), (5.0, 2.0), (inf, 2.5)),
    ],
)
def test_as_many_eigenvalues_of_both_are_compared(between, total, expected) -> None:
    results = made(SEEDED, between=between, total=total)
    found = spectra(results, SEEDED[0])
    assert found == (list(between), list(total))
    assert unevenness(found) == pytest.approx(expected)
    assert unevenness(Spectra([4.0, 1.0], [5.0])) == pytest.approx((nan, nan), nan_ok=True)


def test_the_table_of_eigenvalues_has_a_line_for_each_group() -> None:
    table = spectrum_table(made(SEEDED), groups_of(SEEDED))
    assert len(table.columns) == 5
    assert table.lines == {name: ["2", "nan", "nan", "4", "1.67"] for name in ("a", "b")}
