"""The table of verdicts, as an 80-column terminal shows it."""

from dataclasses import replace

import pytest
from rich.console import Console

from ncscope_lab.report.theory import headline, theory_table
from ncscope_lab.theory.statement import Result

HELD = Result(
    "made/up-1", "1 <= 2 for all x.", "nowhere 1.1", "statement", 1234, 2e-16, 1e-9, "holds", 7
)
CORRECTED = replace(
    HELD,
    id="made/up-2",
    verdict="holds-as-corrected",
    grade="gap",
    printed_deviation=0.25,
    tolerance=1e-6,
)
FAILED = replace(HELD, id="made/up-3", verdict="fails", grade="false", deviation=float("inf"))
DEFINED = replace(HELD, id="made/up-4", kind="definition")


def shown(*results: Result, color: bool = False) -> str:
    console = Console(width=80, force_terminal=color, color_system="standard" if color else None)
    with console.capture() as capture:
        console.print(theory_table(results, seed=7))
    return capture.get()


def test_a_row_says_everything() -> None:
    text = shown(HELD)
    for part in ("made/up-1", "1 <= 2 for all x.", "nowhere 1.1", "1,234", "2.0e-16", "seed 7"):
        assert part in text
    assert "at most 1e-09." in " ".join(text.split())


def test_a_corrected_row_shows_the_deviation_of_both_forms() -> None:
    text = shown(HELD, CORRECTED)
    assert "(2.5e-01)" in text
    assert "holds as" in text
    assert "at most 1e-09 to 1e-06." in " ".join(text.split())


@pytest.mark.parametrize(
    ("result", "code"),
    [(HELD, "32"), (CORRECTED, "33"), (FAILED, "31")],
    ids=lambda part: str(part),
)
def test_verdicts_are_coloured(result: Result, code: str) -> None:
    assert f"\x1b[{code}m{result.verdict.split('-')[0]}" in shown(result, color=True)


def test_eighty_columns_hold_it() -> None:
    long = replace(CORRECTED, id="paper/" + "x" * 60, statement="a word " * 60)
    lines = shown(long, FAILED).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)


def test_a_corrected_row_shows_its_grade_and_a_definition_says_so() -> None:
    lines = shown(HELD, CORRECTED, FAILED).splitlines()
    graded = {
        name: next(line for line in lines if name in line) for name in ("up-1", "up-2", "up-3")
    }
    assert [line.split()[-1] for line in graded.values()] == ["holds", "gap", "false"]
    assert "definition" in shown(DEFINED).partition("Deviation:")[0]
    assert "definition" not in shown(HELD).partition("Deviation:")[0]


def test_the_headline_counts_grades_and_leaves_out_definitions() -> None:
    slip = replace(CORRECTED, grade="slip")
    line = headline([HELD, HELD, CORRECTED, slip, DEFINED])
    assert line == (
        "4 statements: 2 hold as printed, 0 false, 1 with a gap, 1 with a slip. "
        "Definitions, checked but not counted: 1."
    )
    assert headline([FAILED]).endswith("Failed, also as corrected: 1.")
    assert "Definitions" not in headline([HELD])
