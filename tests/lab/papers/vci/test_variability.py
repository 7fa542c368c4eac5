"""What VCI's experiments share: trends, parts of the squared distance, spectra."""

import pytest

from ncscope.lab.papers.vci.variability import (
    falls,
    projection_claims,
    projections,
    rises,
    spectra,
    spectrum_claims,
    trained,
    trend_claim,
)
from tests.lab.papers.vci.courses import FALLING, RETURNING, RISING, made


def test_a_course_falls_if_it_ends_near_its_least() -> None:
    assert falls([2.0, 1.0])
    assert falls([2.0, 1.0, 1.09])
    assert not falls([2.0, 1.0, 1.11])
    assert not falls([1.0, 1.0])
    assert not falls([1.0])


def test_a_course_rises_if_it_ends_near_its_greatest() -> None:
    assert rises([1.0, 2.0, 1.81])
    assert not rises([1.0, 2.0, 1.79])
    assert not rises([1.0, 1.0])


def test_courses_begin_after_the_first_training() -> None:
    assert [row.epoch for row in trained(made(["a"]), "a", "test")] == [2, 4, 6]


@pytest.mark.parametrize(("course", "one_falls"), [(FALLING, True), (RETURNING, False)])
def test_a_trend_is_claimed_of_every_run_or_denied_of_one(course, one_falls: bool) -> None:
    results = made(["a", "b"], {("b", "test", "vci"): course})
    every = trend_claim("", results, ["a", "b"], "vci", "test", all_fall=True)
    some = trend_claim("", results, ["a", "b"], "vci", "test", all_fall=False)
    assert every.held == one_falls == (not some.held)
    assert trend_claim("", results, ["a", "b"], "vci", "train", all_fall=True).held
    assert every.evidence.startswith("a: 3 to 1 (least 1); b: 3 to ")


def test_the_two_parts_add_up_to_the_squared_distance() -> None:
    path = trained(made(["a"]), "a")
    found = projections(path)
    parts = zip(found.inside, found.outside, found.between, strict=True)
    sums = [(inside + outside) / between for inside, outside, between in parts]
    assert sums == pytest.approx([row["nc1_quotient"] for row in path])


@pytest.mark.parametrize(
    ("key", "course", "held"),
    [
        ("within_in_signal", FALLING, [True, True]),
        ("within_in_signal", RETURNING, [False, True]),
        ("within_off_signal", RISING, [True, True]),
        ("within_off_signal", FALLING, [True, False]),
    ],
)
def test_projections_are_judged_apart(key: str, course, held: list[bool]) -> None:
    results = made(["a"], {("a", "train", key): course})
    assert [claim.held for claim in projection_claims(results, "a")] == held


@pytest.mark.parametrize(
    ("between", "total", "held"),
    [
        ((4.0, 1.0), (5.0, 3.0, 0.5), [True, True]),
        ((4.0, 1.0), (5.0, 1.9, 0.5), [False, True]),
        ((4.0, 2.0), (9.0, 4.0, 0.5), [True, False]),
    ],
)
def test_spectra_are_compared_where_that_of_the_means_ends(between, total, held) -> None:
    results = made(["a"], between=between, total=total)
    assert spectra(results, "a") == (list(between), list(total))
    assert [claim.held for claim in spectrum_claims(results, "a")] == held


def test_evidence_of_the_spectra() -> None:
    first, second = (claim.evidence for claim in spectrum_claims(made(["a"]), "a"))
    share = "later eigenvalues have 5.88% of Sigma_T's trace"
    assert first == f"eigenvalue 2: 1 of Sigma_B, 3 of Sigma_T; {share}"
    assert second == "first eigenvalue over eigenvalue 2: 4 for Sigma_B, 1.67 for Sigma_T"
