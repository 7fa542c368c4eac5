"""Verdicts on the papers' statements, for the terminal."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from ncscope.report.tables import make_table
from ncscope_lab.theory.statement import Grade, Result, Verdict, tally

_STYLES: dict[Verdict, str] = {"holds": "green", "holds-as-corrected": "yellow", "fails": "red"}
_GRADE_STYLES: dict[Grade, str] = {"false": "red", "gap": "yellow", "slip": "dim"}
_CAPTION = (
    "Deviation: largest error of the statement over the instances. The statement holds if the "
    "deviation is rounding, {tolerance}. For a corrected statement, the deviation of the printed "
    "form is in brackets. Grade of the printed form: false, a counterexample refutes it; gap, it "
    "needs a condition that is not printed; slip, a typing error or a constant. A definition is an "
    "identity that no input can violate."
)


def headline(results: Iterable[Result]) -> str:
    """Count the verdicts in one line: those that hold, and grades of those that do not."""
    counts = tally(results)
    parts = [
        f"{counts.statements} statements: {counts.holds} hold as printed",
        f"{counts.false} false",
        f"{counts.gap} with a gap",
        f"{counts.slip} with a slip",
    ]
    line = ", ".join(parts) + "."
    if counts.definitions:
        line += f" Definitions, checked but not counted: {counts.definitions}."
    if counts.fails:
        line += f" Failed, also as corrected: {counts.fails}."
    return line


def theory_table(results: Sequence[Result], seed: int) -> Table:
    """Build a table of statements: text, source and verdict.

    Args:
        results: Checked statements, at least one.
        seed: Seed of the instances.

    Returns:
        A table that an 80-column terminal can show.
    """
    values = sorted(result.tolerance for result in results)
    ends = dict.fromkeys(f"{value:.0e}" for value in (values[0], values[-1]))
    table = make_table()
    table.padding = (0, 1, 1, 0)
    table.title = f"The theory on random instances, seed {seed}"
    table.caption = _CAPTION.format(tolerance=f"at most {' to '.join(ends)}")
    table.add_column("statement, source", overflow="fold", ratio=1)
    table.add_column("instances", justify="right", no_wrap=True)
    table.add_column("deviation", justify="right", no_wrap=True)
    table.add_column("verdict", width=10)
    table.add_column("grade", width=5)
    for result in results:
        sentence = Text(result.id, style="bold")
        sentence.append(f"\n{result.statement}", style="not bold")
        sentence.append(f"\n{result.source}", style="not bold dim")
        deviations = Text(f"{result.deviation:.1e}")
        if result.printed_deviation is not None:
            deviations.append(f"\n({result.printed_deviation:.1e})", style="dim")
        verdict = Text(result.verdict.replace("-", " "), style=_STYLES[result.verdict])
        if result.kind == "definition":
            verdict.append("\ndefinition", style="dim")
        table.add_row(
            sentence,
            f"{result.instances:,}",
            deviations,
            verdict,
            Text(result.grade, style=_GRADE_STYLES[result.grade]) if result.grade else Text(),
        )
    return table
