"""Verdicts, on statements made up to earn each of them."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import pytest
import torch

from ncscope_lab.theory.statement import (
    Check,
    Grade,
    Kind,
    Result,
    Statement,
    Tally,
    Verdict,
    tally,
)


def deviating(*values: float) -> Check:
    return lambda generator: iter(values)


def made_up(printed: Check, corrected: Check | None = None) -> Statement:
    grade: Grade | None = None if corrected is None else "gap"
    return Statement("made/up", "0 = 0.", "nowhere", 1e-3, printed, corrected, grade)


@pytest.mark.parametrize(
    ("statement", "verdict", "instances", "deviation", "printed_deviation"),
    [
        (made_up(deviating(0.0, 1e-3)), "holds", 2, 1e-3, None),
        (made_up(deviating(0.0), deviating(7.0, 7.0)), "holds", 1, 0.0, None),
        (made_up(deviating(0.0, 2e-3, 0.0)), "fails", 3, 2e-3, None),
        (made_up(deviating(5.0), deviating(0.0, 1e-4)), "holds-as-corrected", 2, 1e-4, 5.0),
        (made_up(deviating(5.0), deviating(3.0, 0.0)), "fails", 2, 3.0, 5.0),
        (made_up(deviating(0.0, nan, 0.0)), "fails", 3, inf, None),
        (made_up(deviating(nan), deviating(0.0)), "holds-as-corrected", 1, 0.0, inf),
    ],
)
def test_verdict(
    statement: Statement,
    verdict: str,
    instances: int,
    deviation: float,
    printed_deviation: float | None,
) -> None:
    result = statement.check(seed=3)
    assert result.verdict == verdict
    assert (result.instances, result.deviation) == (instances, deviation)
    assert result.printed_deviation == printed_deviation
    assert result.seed == 3


def test_a_check_without_instances_is_no_evidence() -> None:
    with pytest.raises(ValueError, match="made/up drew no instance"):
        made_up(deviating()).check(seed=0)


@pytest.mark.parametrize(
    ("printed", "corrected", "verdict", "grade"),
    [
        (0.0, None, "holds", None),
        (0.0, 0.0, "holds", None),
        (1.0, 0.0, "holds-as-corrected", "gap"),
        (1.0, 1.0, "fails", "gap"),
        (1.0, None, "fails", "false"),
    ],
)
def test_a_form_that_does_not_hold_is_graded(
    printed: float, corrected: float | None, verdict: str, grade: str | None
) -> None:
    other = None if corrected is None else deviating(corrected)
    result = made_up(deviating(printed), other).check(0)
    assert (result.verdict, result.grade) == (verdict, grade)
    assert result.record()["grade"] == grade


def test_a_correction_needs_a_grade_and_a_grade_a_correction() -> None:
    with pytest.raises(ValueError, match="made/up needs both"):
        Statement("made/up", "", "", 1.0, deviating(0.0), deviating(0.0))
    with pytest.raises(ValueError, match="made/up needs both"):
        Statement("made/up", "", "", 1.0, deviating(0.0), grade="slip")


def test_definitions_are_tallied_apart() -> None:
    def earned(verdict: Verdict, grade: Grade | None = None, kind: Kind = "statement") -> Result:
        held = made_up(deviating(0.0)).check(0)
        return replace(held, verdict=verdict, grade=grade, kind=kind)

    seen = tally(
        [
            earned("holds"),
            earned("holds", kind="definition"),
            earned("holds-as-corrected", "slip"),
            earned("fails", "false"),
            earned("fails", "false", "definition"),
        ]
    )
    assert seen == Tally(statements=3, definitions=2, holds=1, false=1, gap=0, slip=1, fails=2)


KEYS = [
    *("id", "statement", "source", "kind", "instances", "deviation", "tolerance", "verdict"),
    "grade",
]


def test_record_has_the_keys_of_the_contract() -> None:
    assert list(made_up(deviating(0.0)).check(0).record()) == KEYS
    corrected = made_up(deviating(inf), deviating(0.0)).check(0).record()
    assert list(corrected) == [*KEYS, "printed_deviation"]
    assert corrected["printed_deviation"] is None
    json.dumps(corrected, allow_nan=False)


def drawn(statement_id: str, seed: int) -> float:
    one_draw: Check = lambda generator: [torch.rand((), generator=generator).item()]  # noqa: E731
    return Statement(statement_id, "", "", 2.0, one_draw).check(seed).deviation


def test_instances_follow_seed_and_id() -> None:
    assert drawn("a", 0) == drawn("a", 0)
    assert len({drawn("a", 0), drawn("a", 1), drawn("b", 0), drawn("a", -1)}) == 4


def test_both_forms_see_the_same_instances() -> None:
    seen: list[float] = []

    def remembering(deviation: float) -> Callable[[torch.Generator], list[float]]:
        def check(generator: torch.Generator) -> list[float]:
            seen.append(torch.rand((), generator=generator).item())
            return [deviation]

        return check

    made_up(remembering(1.0), remembering(0.0)).check(seed=5)
    assert len(seen) == 2
    assert seen[0] == seen[1]
